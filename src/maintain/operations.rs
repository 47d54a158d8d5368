//! What people ask of a mounted pool, one function for each verb. Everything that can be refused is refused before
//! anything changes, and a dry run stops there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Maintenance;
use super::evacuate::Evacuate;
use super::events::{News, What};
use super::job::{JobError, JobKind};
use super::plan::Plan;
use super::rebalance::Rebalance;
use super::repair::Repair;
use super::scheduler::{JobStatus, ScheduleError, Steer, Which};
use crate::fs::Fs;
use crate::member::MemberError;
use crate::member::open::{self, MemberSpec};
use crate::pool::{Member, PoolError};
use crate::store::StoreError;
use crate::sync::Arc;
use crate::units::format_size;

/// So often, and at such distances, a repair that runs is asked to make place for one that does more.
const NARROW_TRIES: u32 = 100;
/// See [`NARROW_TRIES`].
const NARROW_REST: Duration = Duration::from_millis(50);

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Operation {
    /// Read and compare everything.
    Scrub,
    /// Take new members in.
    Add {
        /// Each as it is typed: `PATH[,size=SIZE][,reserve=SIZE]`, the path absolute.
        members: Vec<String>,
        /// Take over what holds something else.
        force: bool,
        /// Even out afterwards.
        rebalance: bool,
    },
    /// Empty a member and take it out.
    Remove {
        /// Its path, UUID or number.
        member: String,
        /// It is gone for good: rebuild what it held.
        lost: bool,
        /// Although something can't be read then.
        force: bool,
    },
    /// Put a new member in the place of another.
    Replace {
        /// The old one's path, UUID or number.
        old: String,
        /// The new one, as in [`Operation::Add`].
        new: String,
        /// Take over what holds something else.
        force: bool,
    },
    /// Do without a member until it is brought back.
    Offline {
        /// Its path, UUID or number.
        member: String,
        /// Although something can't be read then.
        force: bool,
    },
    /// Take a member back.
    Online {
        /// Its path, UUID or number.
        member: String,
    },
    /// Rebuild what lost redundancy.
    Repair {
        /// Write sets anew, narrower, for whose lost slots there is no member.
        narrow: bool,
    },
    /// Even out the use of the members.
    Rebalance,
}

/// What came of it, or would.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was done, or would be, in words.
    pub text: Vec<String>,
    /// What people should know of before.
    pub warnings: Vec<String>,
    /// The work in numbers.
    pub plan: Option<Plan>,
    /// The job that was started.
    pub job: Option<JobStatus>,
}

/// Why it is not done.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// No member is called so.
    #[error(
        "{text:?} is no member of the pool. Its members are {members}; they can be given by path, UUID or number"
    )]
    NoSuchMember {
        /// What was typed.
        text: String,
        /// All members.
        members: String,
    },
    /// Several are.
    #[error("{text:?} could be any of {members}: give the UUID")]
    Ambiguous {
        /// What was typed.
        text: String,
        /// Those that match.
        members: String,
    },
    /// A member itself.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The tables.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The scheduler.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// Result of an operation.
pub type Result<T> = std::result::Result<T, OperationError>;

impl Maintenance {
    /// Does what is asked for, or with `dry_run` only says what it would come to.
    ///
    /// # Errors
    /// [`OperationError`]; nothing is changed then, except that of several members some may have been added.
    pub fn perform(&self, operation: &Operation, dry_run: bool) -> Result<Outcome> {
        if self.fs().pool().read_only() && !dry_run {
            return Err(ScheduleError::ReadOnly.into());
        }
        let closed = self.closed.lock();
        if *closed {
            return Err(JobError::from(crate::fs::FsError::Unmounted).into());
        }
        match operation {
            Operation::Scrub => self.scrub(dry_run),
            Operation::Add { members, force, rebalance } => self.add(members, *force, *rebalance, dry_run),
            Operation::Remove { member, lost: false, .. } => self.remove(member, dry_run),
            Operation::Remove { member, lost: true, force } => self.give_up(member, *force, dry_run),
            Operation::Replace { old, new, force } => self.replace(old, new, *force, dry_run),
            Operation::Offline { member, force } => self.offline(member, *force, dry_run),
            Operation::Online { member } => self.online(member, dry_run),
            Operation::Repair { narrow } => self.repair(*narrow, dry_run),
            Operation::Rebalance => {
                let plan = Rebalance::plan(self.fs());
                self.job(JobKind::Rebalance, plan, dry_run)
            }
        }
    }

    /// Refuses a job while one of its kind runs, says what it comes to, and starts it.
    fn job(&self, kind: JobKind, plan: Plan, dry_run: bool) -> Result<Outcome> {
        self.scheduler().refuse_twice(&kind)?;
        let mut outcome = Outcome { plan: Some(plan), ..Outcome::default() };
        if !dry_run {
            outcome.job = Some(self.scheduler().start_kind(&kind)?);
        }
        Ok(outcome)
    }

    fn scrub(&self, dry_run: bool) -> Result<Outcome> {
        self.scheduler().refuse_twice(&JobKind::Scrub)?;
        let sets = self.fs().pool().data_sets();
        let bytes: u64 = sets.iter().map(|set| set.live.max(0) as u64).sum();
        let text =
            format!("{} of data in {} sets, and all metadata, to read", format_size(bytes), sets.len());
        let mut outcome = Outcome { text: vec![text], ..Outcome::default() };
        if !dry_run {
            outcome.job = Some(self.scheduler().start_kind(&JobKind::Scrub)?);
        }
        Ok(outcome)
    }

    fn add(&self, members: &[String], force: bool, rebalance: bool, dry_run: bool) -> Result<Outcome> {
        let pool = self.fs().pool();
        let specs: Vec<MemberSpec> =
            members.iter().map(|text| MemberSpec::parse(text)).collect::<std::result::Result<_, _>>()?;
        let mut outcome = Outcome::default();
        for (index, spec) in specs.iter().enumerate() {
            refuse_twice_given(&specs[..index], spec)?;
            let addition = pool.plan_addition(spec, force)?;
            let size = format_size(addition.slabs * pool.dimensions().slab_bytes);
            outcome.text.push(format!("{}: {} slabs, {size}", spec.path.display(), addition.slabs));
            for other in addition.shares_device_with {
                let other = pool.members()[usize::from(other)].place();
                let path = spec.path.display();
                outcome
                    .warnings
                    .push(format!("{path} and {other} are on the same device: they fail together"));
            }
        }
        if rebalance {
            self.scheduler().refuse_twice(&JobKind::Rebalance)?;
        }
        if dry_run {
            return Ok(outcome);
        }
        for spec in &specs {
            let id = self.fs().store().add_member(spec, force)?;
            let path = spec.path.display().to_string();
            self.events().note(News::new(What::Member, format!("{path} was added")).of(id, &path));
        }
        if rebalance {
            outcome.plan = Some(Rebalance::plan(self.fs()));
            outcome.job = Some(self.scheduler().start_kind(&JobKind::Rebalance)?);
        }
        Ok(outcome)
    }

    fn remove(&self, member: &str, dry_run: bool) -> Result<Outcome> {
        let member = member_named(self.fs(), member)?.id;
        let plan = Evacuate::plan(self.fs(), member)?;
        self.job(JobKind::Evacuate { member }, plan, dry_run)
    }

    fn give_up(&self, member: &str, force: bool, dry_run: bool) -> Result<Outcome> {
        let member = member_named(self.fs(), member)?;
        let (id, path) = (member.id, member.place());
        self.fs().pool().plan_giving_up(id, force)?;
        let text = format!(
            "{path} is given up; what it held is rebuilt, and should it return it is known as removed"
        );
        let mut outcome = Outcome { text: vec![text], ..Outcome::default() };
        if !dry_run {
            self.fs().store().give_up_lost(id, force)?;
            self.events().note(News::new(What::Member, format!("{path} was given up")).of(id, &path));
            // It does not come back, so nothing is won by waiting for another member.
            outcome.job = Some(self.start_narrow_repair()?);
        }
        outcome.plan = Some(Repair::plan(self.fs()));
        Ok(outcome)
    }

    /// Starts a repair that also writes sets anew with fewer members, in the place of one that does not.
    fn start_narrow_repair(&self) -> Result<JobStatus> {
        for _ in 0..NARROW_TRIES {
            match self.scheduler().start(Box::new(Repair::new(self.fs(), true))) {
                Err(ScheduleError::Running { .. }) => {}
                outcome => return Ok(outcome?),
            }
            // A step of it that is under way ends first.
            match self.scheduler().steer(&Which::Kind(JobKind::Repair), Steer::Cancel) {
                Ok(_) | Err(ScheduleError::NoSuchJob { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            std::thread::sleep(NARROW_REST);
        }
        Ok(self.scheduler().start(Box::new(Repair::new(self.fs(), true)))?)
    }

    fn replace(&self, old: &str, new: &str, force: bool, dry_run: bool) -> Result<Outcome> {
        let pool = self.fs().pool();
        let old = member_named(self.fs(), old)?;
        let spec = MemberSpec::parse(new)?;
        let addition = pool.plan_addition(&spec, force)?;
        let (_, used) = old.slab_counts();
        if addition.slabs < used {
            let too_small = super::plan::Refusal::ReplacementTooSmall { offered: addition.slabs, used };
            return Err(JobError::from(too_small).into());
        }
        let text =
            format!("{}: {} slabs, for {used} of {}", spec.path.display(), addition.slabs, old.place());
        let mut outcome = Outcome { text: vec![text], ..Outcome::default() };
        if dry_run {
            return Ok(outcome);
        }
        let new = self.fs().store().add_member(&spec, force)?;
        let path = spec.path.display().to_string();
        self.events().note(News::new(What::Member, format!("{path} was added")).of(new, &path));
        outcome.plan = Some(Evacuate::plan_replacement(self.fs(), old.id, new)?);
        outcome.job = Some(self.scheduler().start_kind(&JobKind::Replace { old: old.id, new })?);
        Ok(outcome)
    }

    fn offline(&self, member: &str, force: bool, dry_run: bool) -> Result<Outcome> {
        let member = member_named(self.fs(), member)?;
        let (id, path) = (member.id, member.place());
        self.fs().pool().plan_departure(id, force)?;
        if !dry_run {
            self.fs().store().take_offline(id, force)?;
            self.events().note(News::new(What::Member, format!("{path} was taken offline")).of(id, &path));
        }
        Ok(Outcome {
            text: vec![format!("{path} is offline until it is brought back")],
            ..Outcome::default()
        })
    }

    fn online(&self, text: &str, dry_run: bool) -> Result<Outcome> {
        // It may be somewhere else now than where it was.
        let path = match member_named(self.fs(), text) {
            Ok(member) => PathBuf::from(member.place()),
            Err(_) if Path::new(text).exists() => PathBuf::from(text),
            Err(error) => return Err(error),
        };
        let shown = path.display().to_string();
        let outcome = Outcome { text: vec![format!("{shown} is online")], ..Outcome::default() };
        let (own, pool) = (open::peek(&path)?, self.fs().pool().uuid());
        if own.pool != pool {
            return Err(PoolError::OtherPool { path: shown, other: own.pool, pool }.into());
        }
        let known = self.fs().pool().members().get(usize::from(own.member));
        if known.is_some_and(|member| member.is_writable()) {
            return Err(PoolError::AlreadyHere { path: shown, member: own.member }.into());
        }
        if !dry_run {
            let id = self.fs().store().bring_path_online(&path)?;
            self.events().note(News::new(What::Member, format!("{shown} was brought online")).of(id, &shown));
        }
        Ok(outcome)
    }

    fn repair(&self, narrow: bool, dry_run: bool) -> Result<Outcome> {
        let plan = Repair::plan(self.fs());
        let mut outcome = Outcome { plan: Some(plan), ..Outcome::default() };
        if !narrow {
            self.scheduler().refuse_twice(&JobKind::Repair)?;
        }
        if !dry_run {
            outcome.job = Some(match narrow {
                true => self.start_narrow_repair()?,
                false => self.scheduler().start_kind(&JobKind::Repair)?,
            });
        }
        Ok(outcome)
    }
}

/// The member that `text` names: its number, its UUID, or the path where it is or was last seen.
///
/// # Errors
/// [`OperationError::NoSuchMember`], [`OperationError::Ambiguous`].
pub fn member_named(fs: &Fs, text: &str) -> Result<Arc<Member>> {
    let active: Vec<&Arc<Member>> = fs.pool().members().iter().filter(|member| member.is_active()).collect();
    let list = |members: &[&Arc<Member>]| {
        let shown: Vec<String> =
            members.iter().map(|m| format!("{} ({}, {})", m.place(), m.id, m.uuid)).collect();
        shown.join(", ")
    };
    let path = Path::new(text).canonicalize().ok();
    let is = |member: &&&Arc<Member>| {
        let place = member.place();
        member.id.to_string() == text
            || member.uuid.to_string() == text.to_lowercase()
            || place == text
            || path.as_deref().is_some_and(|path| path == Path::new(&place))
    };
    let found: Vec<&Arc<Member>> = active.iter().filter(is).copied().collect();
    match found[..] {
        [one] => Ok(Arc::clone(one)),
        [] => Err(OperationError::NoSuchMember { text: text.to_owned(), members: list(&active) }),
        _ => Err(OperationError::Ambiguous { text: text.to_owned(), members: list(&found) }),
    }
}

fn refuse_twice_given(before: &[MemberSpec], spec: &MemberSpec) -> Result<()> {
    let own = open::identity(&spec.path)?;
    for other in before {
        if own.clash(&open::identity(&other.path)?).is_some() {
            let (first, second) = (other.path.display().to_string(), spec.path.display().to_string());
            return Err(PoolError::SameMember { first, second }.into());
        }
    }
    Ok(())
}
