//! What a state means, and what to do: where there is one, a command that mends it when it is typed.

use poolfs::maintain::job::JobKind;
use poolfs::pool::status::{Health, MemberHealth, MemberStatus};

use super::Report;
use crate::output::count;

/// What the state means.
pub(super) fn meaning(report: &Report) -> String {
    let away = away(report);
    let mut text = match (report.health, report.mounted) {
        (Health::Online, true) => "all members are there, with full redundancy".to_owned(),
        (Health::Online, false) => "all members are there; the pool is not mounted".to_owned(),
        (Health::Degraded, true) => format!(
            "{away}: everything can be read, and {}",
            if report.read_only {
                "nothing is written"
            } else {
                "new data is written to the members that are left"
            }
        ),
        (Health::Degraded, false) => {
            format!("{away}: everything can still be read when the pool is mounted")
        }
        (Health::Unavailable, true) => format!("{away}: some data can't be read"),
        (Health::Unavailable, false) => {
            format!("{away}, more than {} survives: some data may be out of reach", report.resiliency)
        }
    };
    let damaged = report.damage.files.len();
    if damaged > 0 {
        text += &format!("; parts of {} are lost", count(damaged, "file"));
    }
    text
}

/// Which members are not as they should be, in words.
fn away(report: &Report) -> String {
    let number = |health| report.members.iter().filter(|member| member.health == health).count();
    let away: Vec<String> = [
        (MemberHealth::Missing, "missing"),
        (MemberHealth::Failing, "failing"),
        (MemberHealth::Diverged, "diverged"),
        (MemberHealth::Offline, "offline"),
    ]
    .into_iter()
    .map(|(health, word)| (number(health), word))
    .filter(|(number, _)| *number > 0)
    .map(|(number, word)| format!("{} {word}", count(number, "member")))
    .collect();
    if away.is_empty() { "redundancy is missing".to_owned() } else { away.join(", ") }
}

/// What to do; nothing when all is well.
pub(super) fn next_step(report: &Report) -> Option<String> {
    let name = &report.name;
    let place = report.mountpoint.as_deref().unwrap_or("MOUNTPOINT");
    let mends = |job: &&poolfs::maintain::scheduler::JobStatus| {
        !job.state.has_ended()
            && matches!(job.kind, JobKind::Repair | JobKind::Replace { .. } | JobKind::Evacuate { .. })
    };
    let first = |health| report.members.iter().find(|member| member.health == health);
    if report.mounted
        && let Some(job) = report.jobs.iter().find(mends)
    {
        return Some(format!("none, {} mends it: `poolctl wait {name} {}` waits for that", job.text, job.id));
    }
    if report.health == Health::Online && !report.damage.files.is_empty() {
        return Some(format!(
            "restore the files below from a backup, or delete them; `poolctl scrub {name}` then looks again"
        ));
    }
    match report.health {
        Health::Online if report.mounted => None,
        Health::Online => Some(format!("`poolfs mount {place}` mounts it")),
        _ if !report.mounted => Some(unmounted(report, place)),
        _ => {
            let step = |member: &MemberStatus, what: &str| format!("{what} {name} {}", member.path);
            if let Some(member) = first(MemberHealth::Offline) {
                Some(format!("`{}` takes it back", step(member, "poolctl online")))
            } else if let Some(member) = first(MemberHealth::Failing) {
                Some(format!(
                    "`poolctl repair {name}` rebuilds on the other members what it held; `{} NEW` puts a new disk in its place; `{}` takes it back when it is well",
                    step(member, "poolctl replace"),
                    step(member, "poolctl online")
                ))
            } else if let Some(member) = first(MemberHealth::Missing) {
                Some(format!(
                    "attach it, and `{}` takes it back; or, if it is gone for good, `{} --lost` rebuilds what it held",
                    step(member, "poolctl online"),
                    step(member, "poolctl remove")
                ))
            } else if first(MemberHealth::Diverged).is_some() {
                Some(diverged())
            } else {
                Some(format!("`poolctl repair {name}` rebuilds what lacks redundancy"))
            }
        }
    }
}

fn unmounted(report: &Report, place: &str) -> String {
    let is = |health| report.members.iter().any(|member| member.health == health);
    if is(MemberHealth::Missing) {
        format!("attach the missing members where they were, then `poolfs mount {place}`")
    } else if is(MemberHealth::Diverged) {
        diverged()
    } else {
        format!("`poolfs mount {place}` mounts it")
    }
}

fn diverged() -> String {
    "look at the diverged member with `poolctl examine`; `poolfs mount -o ro,diverged` reads it by itself"
        .to_owned()
}
