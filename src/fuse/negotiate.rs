//! What is asked of the kernel when the mount begins.

use fuser::{InitFlags, KernelConfig};

/// Largest write that the kernel sends in one request. Larger ones gain nothing, and the kernel allows no more
/// unless `fs.fuse.max_pages_limit` was raised.
const MAX_WRITE_BYTES: u32 = 1024 * 1024;
/// Requests that the kernel keeps in flight in the background (read-ahead, asynchronous direct I/O, written-back
/// pages). Beyond it reads wait, so it is well above what slow writes can take.
const MAX_BACKGROUND: u16 = 128;

/// Capabilities that are asked for, each for itself since asking for one that is missing refuses all.
///
/// Not asked for on purpose:
/// - `WRITEBACK_CACHE`: the kernel would acknowledge writes before there is space for them;
/// - `POSIX_LOCKS`, `FLOCK_LOCKS`: one machine mounts the pool, so the kernel's own locks do;
/// - `ATOMIC_O_TRUNC`: `open` with `O_TRUNC` would hide whether suid bits must go;
/// - `AUTO_INVAL_DATA`: nobody else writes to the pool, so cached pages are never out of date;
/// - `ABORT_ERROR`, `SETXATTR_EXT`, `SECURITY_CTX`, `CREATE_SUPP_GROUP`, `HAS_RESEND`, `OVER_IO_URING`: fuser
///   0.18 takes the request and does not keep to it.
const WANTED: [InitFlags; 10] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    // Saves a request for `security.capability` before every write; in return suid and sgid bits and that
    // attribute are cleared here, on writes that say so, on truncation and on chown.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // Lookups of "." and "..", so that the mount can be exported by NFS.
    InitFlags::FUSE_EXPORT_SUPPORT,
    // Shared mappings of files that are open with O_DIRECT elsewhere.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

/// What came of it, as far as requests depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Negotiated {
    /// Files opened with `O_DIRECT` may go around the page cache altogether: the kernel keeps their pages and
    /// mappings coherent.
    pub direct_io: bool,
}

/// Asks, and logs what was granted.
pub(super) fn negotiate(config: &mut KernelConfig) -> Negotiated {
    let granted: Vec<InitFlags> =
        WANTED.into_iter().filter(|&wanted| config.add_capabilities(wanted).is_ok()).collect();
    // Neither value can be too large for the kernel: it takes the smaller of its own and ours.
    if config.set_max_write(MAX_WRITE_BYTES).is_err() || config.set_max_background(MAX_BACKGROUND).is_err() {
        log::warn!("the kernel's limits on requests stay as they were");
    }
    let names: Vec<String> =
        granted.iter().flat_map(|flags| flags.iter_names()).map(|(name, _)| name.to_owned()).collect();
    log::info!(
        "FUSE {}: writes up to {MAX_WRITE_BYTES} bytes, {MAX_BACKGROUND} background requests, {}",
        config.kernel_abi(),
        names.join(" ")
    );
    Negotiated { direct_io: granted.contains(&InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP) }
}
