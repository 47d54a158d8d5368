//! The border to the kernel, and the only user of `fuser`: requests come in, [`crate::fs::Fs`] is asked, replies
//! go out. Translation only, no policy.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`session`] | mounts, serves until unmounted, unmounts |
//! | `negotiate` | what is asked of the kernel when the mount begins |
//! | `replies` | what they share |
//! | `requests` | one small function for each request |
//! | `border` | what all requests share: panics caught, errors, waiting |
//! | `convert` | the kernel's types to ours and back: attributes, times, flags, errors |
//! | `parking` | requests that must wait, and the threads that wait with them |
//! | [`mount_table`] | what is mounted where |

mod border;
mod convert;
pub mod mount_table;
mod negotiate;
mod parking;
mod replies;
mod requests;
pub mod session;

pub use session::{KernelFlag, MountError, MountOptions, Mounted, Unmounter, mount};
