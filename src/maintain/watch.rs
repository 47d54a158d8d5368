//! What changed between two looks at a pool: from states to events.

use super::events::{News, What};
use crate::pool::status::{Health, MemberHealth, MemberStatus, PoolStatus};

/// Below this share of the space (one over) it is short.
const SHORT_SHARE: u64 = 20;

/// Compares each look with the one before.
#[derive(Debug, Default)]
pub struct Watch {
    last: Option<PoolStatus>,
    space_is_short: bool,
}

impl Watch {
    /// What is new. The first look tells of what is not well.
    pub fn look(&mut self, now: PoolStatus) -> Vec<News> {
        let mut news = Vec::new();
        for member in &now.members {
            let before = self.last.as_ref().and_then(|last| last.members.iter().find(|m| m.id == member.id));
            member_news(before, member, &mut news);
        }
        let before = self.last.as_ref().map_or(Health::Online, |last| last.health);
        if now.health != before {
            let text = format!("pool {} is {}, it was {}", now.name, word(now.health), word(before));
            news.push(News::new(What::Health, text).with("sets-degraded", now.sets_degraded));
        }
        let space = now.space;
        // Both limits apart, so that it does not change with every file.
        let short = space.available < space.total / SHORT_SHARE / if self.space_is_short { 1 } else { 2 };
        if short != self.space_is_short {
            let text = if short { "space is running short" } else { "there is space again" };
            let text = format!("pool {}: {text}", now.name);
            news.push(
                News::new(What::Space, text).with("available", space.available).with("total", space.total),
            );
            self.space_is_short = short;
        }
        self.last = Some(now);
        news
    }
}

fn member_news(before: Option<&MemberStatus>, now: &MemberStatus, news: &mut Vec<News>) {
    let was = before.map_or(MemberHealth::Online, |before| before.health);
    // One that was removed before the mount is no news.
    let old_story = before.is_none() && now.health == MemberHealth::Removed;
    if now.health != was && !old_story {
        let because = now.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        let text = format!("{} is {}, it was {}{because}", now.path, state(now.health), state(was));
        news.push(News::new(What::Member, text).of(now.id, &now.path));
    }
    let more = |now: u64, before: Option<u64>| now.saturating_sub(before.unwrap_or(0));
    let healed = more(now.healed, before.map(|before| before.healed));
    if healed > 0 {
        let wrong = more(now.checksum_errors, before.map(|before| before.checksum_errors));
        let text = format!("{}: {healed} sector(s) rebuilt and written back", now.path);
        news.push(
            News::new(What::Healed, text)
                .of(now.id, &now.path)
                .with("healed", healed)
                .with("checksum-errors", wrong),
        );
    }
    let reads = more(now.read_errors, before.map(|before| before.read_errors));
    let writes = more(now.write_errors, before.map(|before| before.write_errors));
    let syncs = more(now.sync_errors, before.map(|before| before.sync_errors));
    let timeouts = more(now.timeouts, before.map(|before| before.timeouts));
    let all = [(reads, "read(s) failed"), (writes, "write(s) failed"), (syncs, "sync(s) failed")];
    let told: Vec<String> = all
        .into_iter()
        .chain([(timeouts, "request(s) not answered")])
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    if !told.is_empty() {
        let news_of = News::new(What::Errors, format!("{}: {}", now.path, told.join(", ")));
        news.push(
            news_of
                .of(now.id, &now.path)
                .with("read-errors", reads)
                .with("write-errors", writes)
                .with("sync-errors", syncs)
                .with("timeouts", timeouts),
        );
    }
}

/// The word for a state of a pool.
fn word(health: Health) -> &'static str {
    match health {
        Health::Online => "online",
        Health::Degraded => "degraded",
        Health::Unavailable => "unavailable",
    }
}

/// The word for a state of a member.
fn state(health: MemberHealth) -> String {
    // The words of the protocol, whatever states there will be.
    let json = serde_json::to_value(health).unwrap_or_default();
    json.as_str().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::pool::status::Space;

    fn member(id: u16) -> MemberStatus {
        MemberStatus {
            id,
            uuid: Uuid::from_u128(id.into()),
            path: format!("/disk{id}"),
            health: MemberHealth::Online,
            slabs: 10,
            slabs_used: 1,
            read_errors: 0,
            write_errors: 0,
            sync_errors: 0,
            timeouts: 0,
            checksum_errors: 0,
            recent_errors: 0,
            hedged_reads: 0,
            healed: 0,
            traffic: Default::default(),
            note: None,
        }
    }

    fn status() -> PoolStatus {
        PoolStatus {
            name: "tank".into(),
            uuid: Uuid::nil(),
            health: Health::Online,
            read_only: false,
            resiliency: "mirror".into(),
            tolerance: 1,
            epoch: 1,
            slab_bytes: 1 << 20,
            members: vec![member(0), member(1)],
            sets: 3,
            sets_degraded: 0,
            sets_unreadable: 0,
            space: Space { total: 1000, free: 900, available: 800 },
        }
    }

    fn kinds(news: &[News]) -> Vec<What> {
        news.iter().map(|news| news.what).collect()
    }

    #[test]
    fn every_change_of_state_is_news_once() {
        let mut watch = Watch::default();
        assert!(watch.look(status()).is_empty(), "all is well");
        let mut worse = status();
        worse.health = Health::Degraded;
        worse.members[1].health = MemberHealth::Failing;
        worse.members[1].note = Some("its cable fell out".into());
        worse.members[1].write_errors = 1;
        let news = watch.look(worse.clone());
        assert_eq!(kinds(&news), [What::Member, What::Errors, What::Health]);
        assert!(news[0].text.contains("/disk1") && news[0].text.contains("cable"), "{}", news[0].text);
        assert_eq!(news[0].member, Some((1, "/disk1".into())));
        assert!(watch.look(worse).is_empty(), "told twice");
        assert_eq!(kinds(&watch.look(status())), [What::Member, What::Health], "well again");
    }

    #[test]
    fn the_first_look_tells_of_what_is_not_well() {
        let mut first = status();
        first.health = Health::Degraded;
        first.members[0].health = MemberHealth::Missing;
        assert_eq!(kinds(&Watch::default().look(first)), [What::Member, What::Health]);
    }

    #[test]
    fn healed_sectors_are_counted_from_look_to_look() {
        let mut watch = Watch::default();
        watch.look(status());
        let mut healed = status();
        healed.members[0].healed = 5;
        healed.members[0].checksum_errors = 5;
        let news = watch.look(healed.clone());
        assert_eq!((kinds(&news), news[0].numbers["healed"]), (vec![What::Healed], 5));
        healed.members[0].healed = 7;
        assert_eq!(watch.look(healed)[0].numbers["healed"], 2);
    }

    #[test]
    fn space_that_hovers_at_the_limit_is_told_once() {
        let mut watch = Watch::default();
        let with = |available| PoolStatus { space: Space { total: 1000, free: 900, available }, ..status() };
        assert!(watch.look(with(30)).is_empty());
        assert_eq!(kinds(&watch.look(with(20))), [What::Space]);
        assert!(watch.look(with(30)).is_empty());
        assert_eq!(kinds(&watch.look(with(60))), [What::Space]);
    }
}
