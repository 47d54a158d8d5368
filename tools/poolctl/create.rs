//! `poolctl create`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use poolfs::control::{mountpoint, registry};
use poolfs::layout::usable_bytes;
use poolfs::member::open::{self, MemberSpec};
use poolfs::pool::{self, CreateOptions};
use poolfs::units::format_size;
use uuid::Uuid;

use super::devices;
use super::error::{Result, ToolError};
use super::layout_args::LayoutArgs;
use super::output::count;

/// Make a pool of directories, block devices or image files.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the pool is called.
    name: String,
    /// PATH[,size=SIZE][,reserve=SIZE]: an empty directory, a block device or an image file; size limits what is
    /// used of it, reserve leaves so much of a file system's free space alone.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    #[command(flatten)]
    layout: LayoutArgs,
    /// Where `poolfs mount DIR` is to mount it.
    #[arg(long, value_name = "DIR")]
    mountpoint: Option<PathBuf>,
    /// Take members that were used before, and destroy what they hold.
    #[arg(long)]
    force: bool,
    /// Show what would be made, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Makes the pool.
///
/// # Errors
/// [`ToolError`]; all that can be checked is checked before anything is written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let options = options(args)?;
    let plan = pool::plan(&options)?;
    let registry_path = registry::path();
    check_name(&options, &registry_path)?;
    let mountpoint = args.mountpoint.as_deref().map(|path| check_mountpoint(path, &options)).transpose()?;
    for warning in devices::warnings(&options.members) {
        eprintln!("poolctl: warning: {warning}");
    }
    let usable = usable_bytes(&plan.slabs, &options.resiliency, plan.dimensions.slab_bytes);
    let facts = format!(
        "{} over {}, slabs of {}, {} usable, {}",
        options.resiliency,
        count(options.members.len(), "member"),
        format_size(plan.dimensions.slab_bytes),
        format_size(usable),
        survives(options.resiliency.tolerance())
    );
    if args.dry_run {
        say!("would make pool {}: {facts}", options.name);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &mountpoint {
        fs::create_dir_all(path).map_err(ToolError::system(format!("making {}", path.display())))?;
    }
    let uuid = pool::create(&options)?;
    say!("made pool {} ({uuid}): {facts}", options.name);
    register(&options, uuid, mountpoint.clone(), &registry_path)?;
    match mountpoint {
        Some(path) => say!("`poolfs mount {}` mounts it", path.display()),
        None => say!("`poolfs mount MOUNTPOINT {}` mounts it", options.members[0].path.display()),
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &Args) -> Result<CreateOptions> {
    let mut members = Vec::new();
    for text in &args.members {
        let mut spec = MemberSpec::parse(text).map_err(ToolError::Spec)?;
        // Where members are is remembered, so it must not depend on the working directory.
        spec.path = absolute(&spec.path)?;
        members.push(spec);
    }
    Ok(CreateOptions {
        name: args.name.clone(),
        members,
        resiliency: args.layout.resiliency()?,
        slab_bytes: args.layout.slab_bytes()?,
        force: args.force,
    })
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    let absolute = absolute.map_err(ToolError::system(format!("resolving {}", path.display())))?;
    match absolute.to_str() {
        Some(_) => Ok(absolute),
        None => Err(ToolError::NotUtf8 { path: absolute }),
    }
}

/// `any 1 member can be lost`.
pub fn survives(tolerance: usize) -> String {
    match tolerance {
        0 => "losing any member loses data".to_owned(),
        n => format!("any {} can be lost", count(n, "member")),
    }
}

/// A pool of the same name that still exists would be hard to tell from the new one. One that is only remembered
/// is forgotten.
fn check_name(options: &CreateOptions, registry_path: &Path) -> Result<()> {
    let known = registry::load(registry_path)?;
    let taken = known.pools.iter().filter(|entry| entry.name == options.name).find(|entry| {
        let alive = |path: &PathBuf| {
            let reused = options.members.iter().any(|member| &member.path == path);
            !reused && open::peek(path).is_ok_and(|superblock| superblock.pool == entry.uuid)
        };
        entry.members.iter().any(alive)
    });
    match taken {
        Some(entry) => Err(ToolError::NameTaken { name: entry.name.clone(), uuid: entry.uuid }),
        None => Ok(()),
    }
}

/// The mount point is made when it is not there; otherwise it must be one that a pool can be mounted at.
fn check_mountpoint(path: &Path, options: &CreateOptions) -> Result<PathBuf> {
    let absolute = absolute(path)?;
    if absolute.exists() {
        mountpoint::check(&absolute)?;
    }
    for member in &options.members {
        mountpoint::check_beside(&absolute, &member.path)?;
    }
    Ok(absolute)
}

fn register(
    options: &CreateOptions,
    uuid: Uuid,
    mountpoint: Option<PathBuf>,
    registry_path: &Path,
) -> Result<()> {
    let entry = registry::Entry {
        name: options.name.clone(),
        uuid,
        mountpoint,
        members: options.members.iter().map(|member| member.path.clone()).collect(),
    };
    let member = options.members[0].path.display().to_string();
    registry::update(registry_path, |registry| registry.put(entry))
        .map_err(|source| ToolError::NotRegistered { source, member })
}
