//! Ctrl-C: the run ends at the next step, and cleans up after itself. A second one ends the process at once.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::failure::{Failure, Result};

/// What a shell shows for a program that Ctrl-C ended.
const STATUS: i32 = 130;

static STOPPED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on signals stop the run in an orderly way.
pub fn on_signals() -> Result<()> {
    let stopped = STOPPED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, STATUS, Arc::clone(stopped))
            .and_then(|_| flag::register(signal, Arc::clone(stopped)))
            .map_err(|source| Failure::Io { doing: "catching signals".into(), source })?;
    }
    Ok(())
}

/// Goes on, unless somebody stopped the run.
pub fn check() -> Result<()> {
    match STOPPED.get() {
        Some(stopped) if stopped.load(Ordering::Relaxed) => Err(Failure::Stopped),
        _ => Ok(()),
    }
}
