//! What stands behind `-o`, checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use poolfs::fs::WriteCache;
use poolfs::fuse::KernelFlag;
use poolfs::limits::{CACHE_DEFAULT_MAX_BYTES, CACHE_MIN_BYTES, META_CACHE_DEFAULT_BYTES};
use poolfs::pool::Degraded;
use poolfs::units::{BadSize, format_size, parse_size};

/// Longest that `wait=` and `commit=` may ask for.
const SECONDS_MAX: u64 = 24 * 60 * 60;

/// Options of a mount.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Those of the kernel, [`KernelFlag::ReadOnly`] among them.
    pub flags: Vec<KernelFlag>,
    /// Let other users in.
    pub allow_other: bool,
    /// Bytes of memory for file data.
    pub cache_bytes: u64,
    /// Bytes of memory for nodes of the metadata's trees.
    pub meta_cache_bytes: u64,
    /// When writes reach the members.
    pub write_cache: WriteCache,
    /// How long written data may stay in memory.
    pub commit: Duration,
    /// How long to wait for late members.
    pub wait: Duration,
    /// What to do when members are missing.
    pub degraded: Degraded,
    /// Override of the pool's own setting.
    pub refuse_short_writes: Option<bool>,
    /// Go on although something is lost.
    pub force: bool,
    /// Mount a diverged member by itself.
    pub diverged: bool,
    /// A program that is told of every event.
    pub event_hook: Option<PathBuf>,
}

/// Why an option makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOption {
    /// No such option.
    #[error("unknown option {name:?}: `poolfs mount --help` lists those that there are")]
    Unknown {
        /// The option.
        name: String,
    },
    /// An option that needs a value.
    #[error("option {name} needs a value: {name}={example}")]
    NoValue {
        /// The option.
        name: String,
        /// What the value looks like.
        example: &'static str,
    },
    /// An option that takes none.
    #[error("option {name} takes no value, {value:?} was given")]
    Value {
        /// The option.
        name: String,
        /// Its value.
        value: String,
    },
    /// A value that the option can't have.
    #[error("{name}={value} is not possible: {why}")]
    BadValue {
        /// The option.
        name: String,
        /// Its value.
        value: String,
        /// What is possible.
        why: String,
    },
    /// A size that is none.
    #[error("{name}: {source}")]
    Size {
        /// The option.
        name: String,
        /// What is wrong.
        source: BadSize,
    },
    /// `diverged` without `ro`.
    #[error("diverged needs ro: a member with a history of its own is only ever read")]
    DivergedWrites,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flags: Vec::new(),
            allow_other: false,
            cache_bytes: default_cache_bytes(),
            meta_cache_bytes: META_CACHE_DEFAULT_BYTES,
            write_cache: WriteCache::Writeback,
            commit: Duration::from_secs(5),
            wait: Duration::from_secs(30),
            degraded: Degraded::Auto,
            refuse_short_writes: None,
            force: false,
            diverged: false,
            event_hook: None,
        }
    }
}

/// A tenth of the memory, within limits.
fn default_cache_bytes() -> u64 {
    (memory_bytes() / 10).clamp(CACHE_MIN_BYTES, CACHE_DEFAULT_MAX_BYTES)
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

impl Options {
    /// Reads the arguments of all `-o`, each of which may hold several options.
    ///
    /// # Errors
    /// [`BadOption`] for the first that makes no sense.
    pub fn parse(arguments: &[String]) -> Result<Self, BadOption> {
        let mut options = Self::default();
        let all = arguments.iter().flat_map(|argument| argument.split(','));
        for option in all.map(str::trim).filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((name, value)) => options.set(name, value)?,
                None => options.switch(option)?,
            }
        }
        if options.degraded == Degraded::Partial {
            options.flag(KernelFlag::ReadOnly);
        }
        if options.diverged && !options.read_only() {
            return Err(BadOption::DivergedWrites);
        }
        Ok(options)
    }

    /// Whether nothing may be written.
    pub fn read_only(&self) -> bool {
        self.has(KernelFlag::ReadOnly)
    }

    /// Whether an option of the kernel is set.
    pub fn has(&self, flag: KernelFlag) -> bool {
        self.flags.contains(&flag)
    }

    fn flag(&mut self, flag: KernelFlag) {
        if !self.has(flag) {
            self.flags.push(flag);
        }
    }

    fn unflag(&mut self, flag: KernelFlag) {
        self.flags.retain(|&set| set != flag);
    }

    fn switch(&mut self, name: &str) -> Result<(), BadOption> {
        match name {
            "ro" => self.flag(KernelFlag::ReadOnly),
            "rw" => self.unflag(KernelFlag::ReadOnly),
            "nosuid" => self.flag(KernelFlag::NoSuid),
            "suid" => self.unflag(KernelFlag::NoSuid),
            "nodev" => self.flag(KernelFlag::NoDev),
            "dev" => self.unflag(KernelFlag::NoDev),
            "noexec" => self.flag(KernelFlag::NoExec),
            "exec" => self.unflag(KernelFlag::NoExec),
            "noatime" => self.flag(KernelFlag::NoAtime),
            "atime" | "relatime" => self.unflag(KernelFlag::NoAtime),
            "sync" => self.flag(KernelFlag::Sync),
            "async" => self.unflag(KernelFlag::Sync),
            "dirsync" => self.flag(KernelFlag::DirSync),
            "allow_other" => self.allow_other = true,
            "force" => self.force = true,
            "diverged" => self.diverged = true,
            // For mount(8) and systemd, or true of every mount of ours.
            "defaults"
            | "auto"
            | "noauto"
            | "nofail"
            | "_netdev"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "default_permissions"
            | "strictatime"
            | "nostrictatime"
            | "norelatime"
            | "lazytime"
            | "nolazytime"
            | "diratime"
            | "nodiratime"
            | "iversion"
            | "noiversion"
            | "mand"
            | "nomand"
            | "silent"
            | "loud"
            | "nosymfollow" => {}
            _ if is_for_others(name) => {}
            _ => return Err(without_value(name)),
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), BadOption> {
        match name {
            "cache" => self.cache_bytes = cache_size(name, value)?,
            // The trees are held in memory whole so far: there is nothing to bound.
            "meta-cache" => self.meta_cache_bytes = cache_size(name, value)?,
            "write-cache" => {
                self.write_cache = choice(
                    name,
                    value,
                    &[
                        ("writeback", WriteCache::Writeback),
                        ("writethrough", WriteCache::Writethrough),
                        ("off", WriteCache::Off),
                    ],
                )?;
            }
            "commit" => self.commit = seconds(name, value, 1)?,
            "wait" => self.wait = seconds(name, value, 0)?,
            "degraded" => {
                self.degraded = choice(
                    name,
                    value,
                    &[
                        ("auto", Degraded::Auto),
                        ("yes", Degraded::Yes),
                        ("no", Degraded::No),
                        ("partial", Degraded::Partial),
                    ],
                )?;
            }
            "event-hook" => {
                if !Path::new(value).is_absolute() {
                    return Err(bad(name, value, "take the absolute path of a program".to_owned()));
                }
                self.event_hook = Some(value.into());
            }
            "short-writes" => {
                self.refuse_short_writes = Some(choice(name, value, &[("allow", false), ("refuse", true)])?);
            }
            _ if is_for_others(name) => {}
            _ if without_value(name) == (BadOption::Unknown { name: name.to_owned() })
                && Self::default().switch(name).is_err() =>
            {
                return Err(BadOption::Unknown { name: name.to_owned() });
            }
            _ => return Err(BadOption::Value { name: name.to_owned(), value: value.to_owned() }),
        }
        Ok(())
    }
}

/// Options that /etc/fstab holds for other programs.
fn is_for_others(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || matches!(name, "comment" | "subtype" | "fsname")
}

/// An option that is not known, at least not without a value.
fn without_value(name: &str) -> BadOption {
    let example = match name {
        "cache" | "meta-cache" => "SIZE, such as 512M",
        "write-cache" => "writeback, writethrough or off",
        "commit" | "wait" => "SECONDS",
        "degraded" => "auto, yes, no or partial",
        "short-writes" => "allow or refuse",
        "event-hook" => "PROGRAM, with its absolute path",
        _ => return BadOption::Unknown { name: name.to_owned() },
    };
    BadOption::NoValue { name: name.to_owned(), example }
}

fn choice<T: Copy>(name: &str, value: &str, choices: &[(&str, T)]) -> Result<T, BadOption> {
    choices.iter().find(|(word, _)| *word == value).map(|&(_, meaning)| meaning).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        bad(name, value, format!("take one of {}", words.join(", ")))
    })
}

fn seconds(name: &str, value: &str, least: u64) -> Result<Duration, BadOption> {
    match value.parse() {
        Ok(seconds) if (least..=SECONDS_MAX).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(bad(name, value, format!("take whole seconds from {least} to {SECONDS_MAX}"))),
    }
}

fn cache_size(name: &str, value: &str) -> Result<u64, BadOption> {
    let bytes = parse_size(value).map_err(|source| BadOption::Size { name: name.to_owned(), source })?;
    let memory = memory_bytes();
    if bytes < CACHE_MIN_BYTES {
        return Err(bad(name, value, format!("take at least {}", format_size(CACHE_MIN_BYTES))));
    }
    if bytes > memory {
        return Err(bad(name, value, format!("this machine has {} of memory", format_size(memory))));
    }
    Ok(bytes)
}

fn bad(name: &str, value: &str, why: String) -> BadOption {
    BadOption::BadValue { name: name.to_owned(), value: value.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, BadOption> {
        Options::parse(&[text.to_owned()])
    }

    #[test]
    fn known_options_are_taken() {
        let options =
            parse("rw,cache=64M,meta-cache=32M,write-cache=off,commit=9,wait=0,degraded=yes,short-writes=refuse,nosuid")
                .expect("options");
        assert_eq!(options.cache_bytes, 64 << 20);
        assert_eq!(options.meta_cache_bytes, 32 << 20);
        assert_eq!(options.write_cache, WriteCache::Off);
        assert_eq!(options.commit, Duration::from_secs(9));
        assert_eq!(options.wait, Duration::ZERO);
        assert_eq!(options.degraded, Degraded::Yes);
        assert_eq!(options.refuse_short_writes, Some(true));
        assert_eq!(options.flags, vec![KernelFlag::NoSuid]);
        assert!(parse("defaults,nofail,x-systemd.requires=/a,user,_netdev").is_ok());
        assert!(parse("degraded=partial").expect("options").read_only());
        assert_eq!(parse("").expect("none"), Options::default());
    }

    #[test]
    fn the_last_of_two_opposites_counts() {
        assert!(!parse("ro,rw").expect("options").read_only());
        assert!(parse("rw,ro").expect("options").read_only());
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let unknown = |text: &str| BadOption::Unknown { name: text.into() };
        assert_eq!(parse("ro,chache=64M"), Err(unknown("chache")));
        assert_eq!(parse("frobnicate"), Err(unknown("frobnicate")));
        assert!(matches!(parse("cache"), Err(BadOption::NoValue { .. })));
        assert!(matches!(parse("ro=1"), Err(BadOption::Value { .. })));
        assert!(matches!(parse("cache=1"), Err(BadOption::BadValue { .. })));
        assert!(matches!(parse("cache=9999T"), Err(BadOption::BadValue { .. })));
        assert!(matches!(parse("cache=much"), Err(BadOption::Size { .. })));
        assert!(matches!(parse("commit=0"), Err(BadOption::BadValue { .. })));
        assert!(matches!(parse("wait=-1"), Err(BadOption::BadValue { .. })));
        assert!(matches!(parse("degraded=maybe"), Err(BadOption::BadValue { .. })));
        assert_eq!(parse("diverged"), Err(BadOption::DivergedWrites));
        assert!(parse("diverged,ro").is_ok());
    }
}
