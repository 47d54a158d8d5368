//! What can be typed, as dumb values.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Joins disks into one self-healing pool and mounts it.
#[derive(Debug, Parser)]
#[command(name = "poolfs", version, arg_required_else_help = true, after_help = SOURCE_FORM)]
pub struct Cli {
    /// This is the process in the background.
    #[arg(long, hide = true)]
    pub daemonised_child: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const SOURCE_FORM: &str = "\
mount(8) and /etc/fstab use `poolfs SOURCE MOUNTPOINT -o OPTIONS`, where SOURCE is a pool's name or UUID, or
MEMBER[:MEMBER...]. Pools are made and looked after with `poolctl`.";

const OPTIONS: &str = "\
Options behind -o, separated by commas:
  ro                    write nothing
  cache=SIZE            memory for file data (default: a tenth of the memory, at most 1G)
  meta-cache=SIZE       memory for metadata (default: 64M)
  write-cache=writeback|writethrough|off
                        when writes reach the members (default: writeback)
  commit=SECONDS        how long written data may stay in memory only (default: 5)
  wait=SECONDS          how long to wait for members that are not there yet (default: 30)
  degraded=auto|yes|no|partial
                        what to do when members are missing: mount if everything can be read, read-only where
                        newer data may be on the missing ones (auto); mount if everything can be read (yes); only
                        with every member (no); read-only, what can be read (partial)
  short-writes=allow|refuse
  event-hook=PROGRAM
                        whether to write with less redundancy when too few members are left
  allow_other           let other users in (root always does)
  force                 go on although acknowledged records or newer members are lost
  diverged              with ro: a member that has a history of its own
  noatime nosuid nodev noexec sync dirsync and what else mount(8) passes";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a pool; returns once the mount answers.
    #[command(after_help = OPTIONS)]
    Mount {
        /// An empty directory.
        mountpoint: PathBuf,
        /// Members, when no pool is registered for the mount point; one is enough when the others are where the
        /// pool last saw them.
        members: Vec<PathBuf>,
        /// Stay in the foreground.
        #[arg(short, long)]
        foreground: bool,
        /// Write the number of the process that serves the mount to this file.
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
        /// Options, separated by commas.
        #[arg(short, value_name = "OPT[,OPT...]")]
        options: Vec<String>,
    },
    /// Unmount a pool; returns when everything is durable.
    Umount {
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// Take it out of sight although programs use it; it ends when they are done.
        #[arg(short, long)]
        lazy: bool,
    },
    /// Make a parity pool over four directories and mount it, to try things out; Ctrl-C ends it.
    Demo {
        /// Where to make the directories (default: a new one for temporary files).
        directory: Option<PathBuf>,
    },
    /// The form that mount(8) uses.
    #[command(name = SOURCE_COMMAND, hide = true, override_usage = "poolfs SOURCE MOUNTPOINT [-o OPT[,OPT...]]")]
    MountSource {
        /// A pool's name or UUID, or MEMBER[:MEMBER...].
        source: String,
        /// An empty directory.
        mountpoint: PathBuf,
        /// Options, separated by commas.
        #[arg(short, value_name = "OPT[,OPT...]")]
        options: Vec<String>,
        /// Stay in the foreground.
        #[arg(short, long)]
        foreground: bool,
        /// mount(8) passes these to its helpers; they change nothing here.
        #[arg(short, hide = true)]
        no_mtab: bool,
        /// See above.
        #[arg(short, hide = true)]
        sloppy: bool,
        /// See above.
        #[arg(short, hide = true)]
        verbose: bool,
        /// See above.
        #[arg(short = 't', hide = true)]
        fs_type: Option<String>,
    },
}

const SOURCE_COMMAND: &str = "mount-source";

/// Makes the form that mount(8) uses a command like the others.
pub fn normalised(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let helper = args
        .first()
        .and_then(|program| std::path::Path::new(program).file_name())
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."));
    let at = if args.get(1).is_some_and(|arg| arg == "--daemonised-child") { 2 } else { 1 };
    let named = |arg: &OsString| {
        const COMMANDS: [&str; 5] = ["mount", "umount", "demo", "help", SOURCE_COMMAND];
        COMMANDS.iter().any(|command| arg == command) || arg.as_encoded_bytes().starts_with(b"-")
    };
    match args.get(at) {
        Some(first) if helper || !named(first) => args.insert(at, SOURCE_COMMAND.into()),
        _ => {}
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Command {
        let args = normalised(line.split_whitespace().map(OsString::from));
        Cli::try_parse_from(args).expect(line).command
    }

    #[test]
    fn all_forms_are_understood() {
        assert!(matches!(parsed("poolfs mount /mnt /a /b -f -o ro,cache=64M"),
            Command::Mount { members, foreground: true, .. } if members.len() == 2));
        assert!(
            matches!(parsed("poolfs tank /mnt -o rw"), Command::MountSource { source, .. } if source == "tank")
        );
        assert!(matches!(parsed("poolfs /a:/b /mnt"), Command::MountSource { .. }));
        assert!(matches!(parsed("poolfs --daemonised-child tank /mnt"), Command::MountSource { .. }));
        assert!(matches!(parsed("mount.fuse.poolfs mount /mnt -n -o rw"),
            Command::MountSource { source, .. } if source == "mount"));
        assert!(matches!(parsed("poolfs umount /mnt"), Command::Umount { lazy: false, .. }));
        assert!(matches!(parsed("poolfs demo"), Command::Demo { directory: None }));
    }
}
