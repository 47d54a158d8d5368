//! Threads, locks, channels, time and randomness: the only module that takes them from the system.
//!
//! Everything else asks here, so that a test can put its own clock and its own random numbers in
//! place, and so that a seeded scheduler can one day drive the whole program.

mod clock;

pub use clock::{Clock, Timestamp};
pub use parking_lot::{
    Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use std::sync::atomic;
pub use std::sync::mpsc;
pub use std::sync::{Arc, OnceLock};
pub use std::thread::JoinHandle;

/// Starts a named thread. The name is what `ps -L` and a debugger show.
///
/// # Panics
/// When the system has no room for another thread.
pub fn spawn<F>(name: &str, body: F) -> JoinHandle<()>
where
    F: FnOnce() + Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("the system can start a thread")
}

/// Eight random bytes from the system, as a number: for ids that must differ between machines.
pub fn random_u64() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
