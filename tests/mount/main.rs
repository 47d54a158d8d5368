//! The real programs on real mounts: pools over scratch members, real programs writing real data to them, members
//! pulled out, processes killed. What takes long is behind the feature `soak`.
//!
//! See docs/testing.md for how to run parts of it, and what each needs.

mod support;

mod build_inside;
mod df;
mod fio;
mod hanging;
mod kill;
mod layouts;
mod pool_cases;
mod user_cases;
