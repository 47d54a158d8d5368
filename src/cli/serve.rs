//! The life of a mounted pool: put together, mounted, served, unmounted, durable.

use std::fs;
use std::path::{Path, PathBuf};

use poolfs::control::answers::Answers;
use poolfs::control::registry;
use poolfs::control::server::Server;
use poolfs::fs::Fs;
use poolfs::fuse::{self, session};
use poolfs::maintain::{GRACE, MaintainOptions, Maintenance};
use poolfs::member::runtime_dir;
use poolfs::pool::Pool;
use poolfs::pool::status::Health;
use poolfs::sync::Arc;

use super::error::{CliError, Result};
use super::request::MountRequest;
use poolfs::control::mountpoint;

/// Serves the mount until it is unmounted. `ready` is called once it answers; when it fails, all ends.
///
/// # Errors
/// [`CliError`]; after an error at the end what could be made durable is.
pub fn serve(request: &MountRequest, log: Option<&Path>, ready: impl FnOnce() -> Result<()>) -> Result<()> {
    prepare_process();
    mountpoint::check(&request.mountpoint)?;
    for member in &request.members {
        mountpoint::check_beside(&request.mountpoint, member)?;
    }
    let pool = Pool::assemble(&request.members, &request.assemble_options())?;
    for member in &pool.status().members {
        mountpoint::check_beside(&request.mountpoint, Path::new(&member.path))?;
    }
    let name = pool.name();
    let fs_error = |source| CliError::Fs { pool: name.clone(), source };
    let fs = Fs::mount(Arc::clone(&pool), request.fs_options()).map_err(fs_error)?;
    let event_hook = request.options.event_hook.clone();
    let maintenance = Maintenance::start(
        &fs,
        MaintainOptions { event_hook, background: true, grace: Some(GRACE), announce: true },
    );
    let served = serve_fs(request, log, &maintenance, ready);
    maintenance.stop();
    note_members(&pool);
    let durable = fs.unmount();
    let ended = match (served, durable) {
        (Err(error), Ok(())) => Err(error),
        (_, Err(error)) => Err(CliError::NotDurable { pool: name.clone(), why: error.to_string() }),
        (Ok(()), Ok(())) => Ok(()),
    };
    leave_result(&pool, &ended);
    log::info!("{name}: unmounted");
    ended
}

/// From a file system that runs to one that nobody uses any more.
fn serve_fs(
    request: &MountRequest,
    log: Option<&Path>,
    maintenance: &Arc<Maintenance>,
    ready: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (fs, pool) = (maintenance.fs(), maintenance.fs().pool());
    warn_when_degraded(pool);
    let options = request.mount_options(&pool.name(), pool.read_only());
    let mounted = fuse::mount(Arc::clone(fs), &request.mountpoint, &options)?;
    let unmounter = mounted.unmounter();
    let control = begin(request, log, maintenance, unmounter.clone(), ready);
    if control.is_err()
        && let Err(error) = unmounter.unmount(true)
    {
        log::error!("{error}");
    }
    let ended = mounted.wait();
    if let Some(path) = &request.pid_file
        && let Err(error) = fs::remove_file(path)
    {
        log::debug!("{}: {error}", path.display());
    }
    // The socket goes with `control`.
    control.map(drop)?;
    ended.map_err(|source| CliError::SessionBroke { source })
}

/// What is still to be done once the kernel is connected, and until the mount is announced.
fn begin(
    request: &MountRequest,
    log: Option<&Path>,
    maintenance: &Arc<Maintenance>,
    unmounter: session::Unmounter,
    ready: impl FnOnce() -> Result<()>,
) -> Result<Server> {
    let fs = maintenance.fs();
    let (first, last) = (Arc::clone(fs), Arc::clone(fs));
    let sync = move || {
        if let Err(error) = first.sync_all() {
            log::error!("what was written is not durable yet: {error}");
        }
    };
    let give_up = move || {
        log::warn!("a second signal: the mount ends although programs use it");
        let code = if last.unmount().is_ok() { 0 } else { 1 };
        std::process::exit(code);
    };
    session::unmount_on_signals(unmounter, sync, give_up).map_err(CliError::system("catching signals"))?;
    let server = start_server(request, log, maintenance)?;
    answers(&request.mountpoint)?;
    if let Some(path) = &request.pid_file {
        fs::write(path, format!("{}\n", std::process::id()))
            .map_err(CliError::system(format!("writing {}", path.display())))?;
    }
    log::info!("{} is mounted at {}", fs.pool().name(), request.mountpoint.display());
    ready()?;
    Ok(server)
}

/// The mount is there when it says how much room it has.
fn answers(mountpoint: &Path) -> Result<()> {
    rustix::fs::statfs(mountpoint)
        .map(drop)
        .map_err(|e| CliError::system(format!("asking the mount at {}", mountpoint.display()))(e.into()))
}

fn start_server(
    request: &MountRequest,
    log: Option<&Path>,
    maintenance: &Arc<Maintenance>,
) -> Result<Server> {
    let uuid = maintenance.fs().pool().uuid();
    let mountpoint = request.mountpoint.display().to_string();
    let log = log.map(|path| path.display().to_string());
    let answers = Answers::new(Arc::clone(maintenance), mountpoint, log);
    Ok(Server::start(&runtime_dir()?, uuid, move |asked| answers.answer(asked))?)
}

/// Members may have come and gone: the registry says where they are at the next mount.
fn note_members(pool: &Pool) {
    let members = pool.status().present_paths();
    if let Err(error) = registry::note_members(&registry::path(), pool.uuid(), &members) {
        log::warn!("{error}");
    }
}

fn warn_when_degraded(pool: &Pool) {
    let status = pool.status();
    if status.health != Health::Online {
        let name = &status.name;
        eprintln!(
            "poolfs: pool {name} is degraded{}: what is missing, and what to do, says `poolctl status {name}`",
            if status.read_only { " and read-only" } else { "" }
        );
    }
}

/// Settings of the process that help a server of files. None is necessary, so failures are not errors.
fn prepare_process() {
    // The kernel must not make our own writes wait for dirty pages of our own mount.
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        log::debug!("PR_SET_IO_FLUSHER: {error}");
    }
    // Every slab that is in use is an open file.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        log::debug!("open files stay limited: {error}");
    }
}

/// Where a process leaves for `poolfs umount` how it ended.
pub fn result_path(dir: &Path, pool: uuid::Uuid) -> PathBuf {
    dir.join(format!("{pool}.result"))
}

fn leave_result(pool: &Pool, ended: &Result<()>) {
    let text = match ended {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    };
    if let Ok(dir) = runtime_dir()
        && let Err(error) = fs::write(result_path(&dir, pool.uuid()), text)
    {
        log::debug!("the result was not left: {error}");
    }
}
