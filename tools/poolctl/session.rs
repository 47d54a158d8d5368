//! A pool that can be asked: by the socket of the process that has it mounted, or, when nobody has, opened by this one.
//! The answers come from the same code.

use std::path::PathBuf;
use std::time::Duration;

use poolfs::control::answers::Answers;
use poolfs::control::find::{KnownPool, find};
use poolfs::control::protocol::{Answer, Request};
use poolfs::control::{ControlError, client, registry};
use poolfs::fs::{Fs, FsError, FsOptions};
use poolfs::maintain::{MaintainOptions, Maintenance};
use poolfs::member::runtime_dir;
use poolfs::pool::{AssembleOptions, Pool};
use poolfs::sync::Arc;

use super::error::{Result, ToolError};

/// Memory for file data of a pool that this process opens: what jobs move goes past it.
const CACHE_BYTES: u64 = 64 << 20;

/// What a pool is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written.
    Read,
    /// As a mount does.
    Write,
}

/// A pool that can be asked.
pub struct Session {
    pool: KnownPool,
    own: Option<Own>,
}

/// A pool that this process has opened.
struct Own {
    maintenance: Arc<Maintenance>,
    answers: Answers,
}

impl Session {
    /// Finds a pool, and opens it unless it is mounted.
    ///
    /// # Errors
    /// Those of [`find`], and those of opening it.
    pub fn open(name: &str, access: Access) -> Result<Self> {
        Self::of(find(name)?, access)
    }

    /// [`Session::open`] for a pool that was found.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn of(pool: KnownPool, access: Access) -> Result<Self> {
        let own = match pool.mounted {
            Some(_) => None,
            None => Some(open(&pool, access)?),
        };
        Ok(Self { pool, own })
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.pool.name
    }

    /// Another process has it mounted.
    pub fn is_mounted(&self) -> bool {
        self.own.is_none()
    }

    /// Asks.
    ///
    /// # Errors
    /// When nobody answers, or what is asked for is refused.
    pub fn ask(&self, request: &Request) -> Result<Answer> {
        match &self.own {
            None => Ok(client::ask(&runtime_dir()?, self.pool.uuid, request)?),
            Some(own) => match own.answers.answer(request.clone()) {
                Answer::Error(why) => Err(ToolError::Refused { name: self.pool.name.clone(), why }),
                answer => Ok(answer),
            },
        }
    }

    /// An answer to another question.
    pub fn unexpected(&self, answer: &Answer) -> ToolError {
        let why = format!("it answered {answer:?} to the wrong question");
        ControlError::NoAnswer { pool: self.pool.uuid, why }.into()
    }

    /// Members may have come and gone: the registry says where they are at the next mount.
    pub fn note_members(&self) {
        let Ok(Answer::Status(status)) = self.ask(&Request::Status) else { return };
        let members = status.pool.present_paths();
        if let Err(error) = registry::note_members(&registry::path(), self.pool.uuid, &members) {
            eprintln!("poolctl: warning: {error}");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            own.maintenance.stop();
            if let Err(error) = own.maintenance.fs().unmount() {
                eprintln!("poolctl: {}: not all is durable: {error}", self.pool.name);
            }
        }
    }
}

fn open(known: &KnownPool, access: Access) -> Result<Own> {
    let here: Vec<PathBuf> = known.members.iter().filter(|path| path.exists()).cloned().collect();
    if here.is_empty() {
        let members: Vec<String> = known.members.iter().map(|path| path.display().to_string()).collect();
        return Err(ToolError::NoMemberHere { name: known.name.clone(), members: members.join(", ") });
    }
    let options = AssembleOptions {
        read_only: access == Access::Read,
        wait: Duration::ZERO,
        ..AssembleOptions::default()
    };
    let pool = Pool::assemble(&here, &options)?;
    let options = FsOptions { cache_bytes: CACHE_BYTES, ..FsOptions::default() };
    let fs = Fs::mount(pool, options).map_err(|source| match source {
        // There is not even a root directory, and a pool that is opened read-only gets none.
        FsError::ReadOnly => ToolError::NeverMounted { name: known.name.clone() },
        source => ToolError::Check { name: known.name.clone(), source },
    })?;
    let maintenance =
        Maintenance::start(&fs, MaintainOptions { background: true, ..MaintainOptions::default() });
    let answers = Answers::new(Arc::clone(&maintenance), String::new(), None);
    Ok(Own { maintenance, answers })
}
