//! Real data on every layout: copied in, compared by checksum, mounted again, with members gone, written to while
//! they are, and with others gone after that.

mod content;

use std::fs;
use std::path::Path;

use self::content::{Amount, Content};
use crate::support::disks::Disk;
use crate::support::heavy;
use crate::support::pool::TestPool;

/// One run: a pool, what goes in, and which members go.
struct Plan {
    resiliency: &'static str,
    disks: Vec<Disk>,
    amount: Amount,
    /// Sets of members that are gone, one set after the other.
    losses: Vec<Vec<usize>>,
    /// Gone while more is written.
    written_without: Vec<usize>,
    /// Gone afterwards, when the others are back.
    then_lost: Vec<usize>,
    /// More arguments of `poolctl create`.
    create: &'static [&'static str],
}

impl Plan {
    /// Without losses.
    fn new(resiliency: &'static str, disks: Vec<Disk>, amount: Amount) -> Self {
        let none = Vec::new;
        Self {
            resiliency,
            disks,
            amount,
            losses: none(),
            written_without: Vec::new(),
            then_lost: Vec::new(),
            create: &[],
        }
    }

    /// These sets of members are lost, each for itself.
    fn losing<const N: usize>(mut self, losses: [&[usize]; N]) -> Self {
        self.losses = losses.iter().map(|set| set.to_vec()).collect();
        self
    }

    /// More is written without these members; they come back, and the others go.
    fn writing_without(mut self, members: &[usize], then_lost: &[usize]) -> Self {
        self.written_without = members.to_vec();
        self.then_lost = then_lost.to_vec();
        self
    }

    fn run(self) {
        eprintln!("{} on {:?}: {:?}", self.resiliency, self.disks, self.amount);
        let mut pool = TestPool::create_with(self.resiliency, &self.disks, self.create);
        pool.mount();
        let mut content = Content::put(&pool, self.amount);
        content.check(&pool, "just written");
        pool.remount();
        content.check(&pool, "mounted again");
        pool.unmount();
        for lost in &self.losses {
            without(&mut pool, lost, &mut content, |pool, content| {
                content.check(pool, &format!("without members {lost:?}"));
            });
        }
        if !self.written_without.is_empty() {
            self.write_degraded(&mut pool, &mut content);
        }
        pool.mount();
        content.check(&pool, "in the end");
        pool.unmount();
    }

    fn write_degraded(&self, pool: &mut TestPool, content: &mut Content) {
        let lost = &self.written_without;
        without(pool, lost, content, |pool, content| {
            content.change(pool);
            content.check(pool, &format!("written without members {lost:?}"));
            pool.remount_degraded();
            content.check(pool, &format!("written without members {lost:?}, mounted again"));
        });
        if !self.then_lost.is_empty() {
            let then = &self.then_lost;
            without(pool, then, content, |pool, content| {
                content
                    .check(pool, &format!("written without members {lost:?}, which are back; {then:?} lost"));
            });
        }
    }
}

/// Does something with members gone, on a pool that is not mounted before and after.
fn without(
    pool: &mut TestPool,
    lost: &[usize],
    content: &mut Content,
    work: impl FnOnce(&TestPool, &mut Content),
) {
    pool.pull(lost);
    pool.mount_with(&["degraded=yes"]);
    work(pool, content);
    pool.unmount();
    pool.restore(lost);
}

impl TestPool {
    fn remount_degraded(&self) {
        self.unmount();
        self.mount_with(&["degraded=yes"]);
    }
}

#[test]
fn mirror_with_real_trees_and_2_gib() {
    let _alone = heavy();
    Plan::new("mirror", Disk::directories(3, "5G"), Amount::REAL)
        .losing([&[0], &[1], &[2]])
        .writing_without(&[0], &[2])
        .run();
}

#[test]
fn parity_2_1_with_real_trees_and_2_gib() {
    let _alone = heavy();
    Plan::new("parity", Disk::directories(3, "5G"), Amount::REAL)
        .losing([&[0], &[1], &[2]])
        .writing_without(&[1], &[0])
        .run();
}

#[test]
fn parity_3_2_with_real_trees_and_2_gib() {
    let _alone = heavy();
    Plan::new("parity:2", Disk::directories(5, "3G"), Amount::REAL)
        .losing([&[0, 1], &[2, 4], &[3]])
        .writing_without(&[1], &[0, 3])
        .run();
}

#[test]
fn simple() {
    Plan::new("simple", Disk::directories(2, "1G"), Amount::SMALL).run();
}

#[test]
fn mirror_of_two_stays_writable_with_one() {
    Plan::new("mirror", Disk::directories(2, "1G"), Amount::SMALL)
        .losing([&[0], &[1]])
        .writing_without(&[1], &[])
        .run();
}

#[test]
fn mirror_of_three_copies() {
    Plan::new("mirror:3", Disk::directories(4, "1G"), Amount::SMALL)
        .losing([&[0, 1], &[1, 3], &[0, 2]])
        .writing_without(&[3], &[0, 1])
        .run();
}

#[test]
fn striped_mirror() {
    Plan::new("striped-mirror", Disk::directories(4, "1G"), Amount::SMALL)
        .losing([&[0], &[1], &[2], &[3]])
        .writing_without(&[2], &[0])
        .run();
}

#[test]
fn parity_with_three_parity_columns() {
    Plan::new("parity:3", Disk::directories(6, "1G"), Amount::SMALL)
        .losing([&[0, 1, 2], &[1, 3, 5], &[0, 4, 5]])
        .writing_without(&[5, 2], &[0, 1, 3])
        .run();
}

#[test]
fn parity_over_members_of_different_sizes() {
    let disks = ["300M", "500M", "900M", "1500M"].map(Disk::Directory);
    Plan::new("parity", disks.to_vec(), Amount::SMALL)
        .losing([&[0], &[1], &[2], &[3]])
        .writing_without(&[3], &[0])
        .run();
}

/// Every layout, with equal and with mixed members, few and many.
#[cfg(feature = "soak")]
mod full_matrix {
    use super::{Amount, Disk, Plan, heavy};

    const SIZES: [&str; 8] = ["1500M", "4G", "2G", "3G", "2500M", "6G", "3500M", "1800M"];

    fn run(resiliency: &'static str, fewest: usize, tolerance: usize) {
        let _alone = heavy();
        for members in [fewest, fewest + 1, fewest + 2] {
            for mixed in [false, true] {
                let size = |n: usize| if mixed { SIZES[n % SIZES.len()] } else { "4G" };
                let disks = (0..members).map(|n| Disk::Directory(size(n))).collect();
                let mut plan = Plan::new(resiliency, disks, Amount::MIDDLE);
                if tolerance > 0 {
                    let losses = (0..members).map(|n| (0..tolerance).map(|i| (n + i) % members).collect());
                    plan.losses = losses.collect();
                    plan.written_without = vec![members - 1];
                    // With none to spare, what is written without a member is on one copy only.
                    plan.then_lost = if members > fewest { (0..tolerance).collect() } else { Vec::new() };
                }
                plan.run();
            }
        }
    }

    #[test]
    fn simple() {
        run("simple", 1, 0);
    }

    #[test]
    fn mirror() {
        run("mirror", 2, 1);
    }

    #[test]
    fn mirror_of_three_copies() {
        run("mirror:3", 3, 2);
    }

    #[test]
    fn striped_mirror() {
        run("striped-mirror", 4, 1);
    }

    #[test]
    fn striped_mirror_of_three_copies() {
        run("striped-mirror:3", 6, 2);
    }

    #[test]
    fn parity() {
        run("parity", 3, 1);
    }

    #[test]
    fn double_parity() {
        run("parity:2", 4, 2);
    }

    #[test]
    fn triple_parity() {
        run("parity:3", 5, 3);
    }
}

/// As it stands in the documentation: a pool over an interleave and columns that were chosen.
#[test]
fn storage_spaces_parity_and_two_way_striped_mirror() {
    for (resiliency, columns, disks) in [("parity", "2", 4), ("striped-mirror", "2", 4)] {
        let mut plan = Plan::new(resiliency, Disk::directories(disks, "1G"), Amount::SMALL).losing([&[1]]);
        plan.create = if columns == "2" { &["--columns", "2", "--interleave", "256K"] } else { &[] };
        plan.run();
    }
}

/// What a directory below holds must not be seen through the mount, and the other way round.
#[test]
fn nothing_but_the_mount_is_at_the_mount_point() {
    let pool = TestPool::create("mirror", &Disk::directories(2, "300M"));
    assert!(is_empty(pool.path()));
    pool.mount();
    fs::write(pool.path().join("file"), "content").expect("written");
    pool.unmount();
    assert!(is_empty(pool.path()), "written beside the pool");
    pool.mount();
    assert_eq!(fs::read_to_string(pool.path().join("file")).expect("read"), "content");
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("listed").next().is_none()
}
