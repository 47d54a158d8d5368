//! The cache over a backing made of byte arrays, with failures to order.

mod budget;
mod capture;
mod fake;
mod flusher;
mod model;
mod race;
mod read;
