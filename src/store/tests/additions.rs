//! Adding real directories and images, bringing members back by path, and what is refused before anything is written.

use std::path::Path;
use std::time::Duration;

use super::super::{Store, StoreError, StoreOptions};
use super::{block, put_extent};
use crate::layout::Resiliency;
use crate::member::MemberError;
use crate::member::open::{Bounds, MemberSpec};
use crate::member::superblock::MemberId;
use crate::pool::status::MemberHealth;
use crate::pool::{AssembleOptions, CreateOptions, Degraded, Pool, PoolError, create};
use crate::units::MIB;

/// A place with directories in it.
struct Place(tempfile::TempDir);

impl Place {
    fn directory(&self, name: &str) -> MemberSpec {
        let path = self.0.path().join(name);
        std::fs::create_dir(&path).expect("makes a directory");
        MemberSpec { path, bounds: Bounds { limit_bytes: 40 * MIB, reserve_bytes: 0 } }
    }

    fn pool(&self, name: &str, members: &[&str]) -> Store {
        let options = CreateOptions {
            name: name.to_owned(),
            members: members.iter().map(|name| self.directory(name)).collect(),
            resiliency: Resiliency::parse("mirror").expect("known"),
            slab_bytes: Some(MIB),
            force: false,
        };
        create(&options).expect("creates");
        open(&options.members[0].path)
    }
}

fn open(member: &Path) -> Store {
    let options = AssembleOptions { degraded: Degraded::Yes, wait: Duration::ZERO, ..Default::default() };
    let pool = Pool::assemble(&[member.to_owned()], &options).expect("assembles");
    let (store, _) = Store::recover(pool, StoreOptions::default()).expect("recovers");
    store.start().expect("starts");
    store
}

fn refused<T: std::fmt::Debug>(outcome: super::super::Result<T>) -> PoolError {
    match outcome.expect_err("refused") {
        StoreError::Pool(error) => error,
        error => panic!("{error}"),
    }
}

fn health(store: &Store, member: MemberId) -> MemberHealth {
    store.pool().status().members[usize::from(member)].health
}

#[test]
fn what_can_be_no_member_is_refused_before_it_is_touched() {
    let place = Place(tempfile::tempdir().expect("a place"));
    let store = place.pool("first", &["a", "b"]);
    let other = place.pool("second", &["c", "d"]);
    let spec = |name: &str| MemberSpec::new(place.0.path().join(name));
    assert!(matches!(refused(store.add_member(&spec("a"), true)), PoolError::SameMember { .. }));
    std::fs::create_dir(place.0.path().join("a/inside")).expect("makes a directory");
    assert!(matches!(refused(store.add_member(&spec("a/inside"), true)), PoolError::Nested { .. }));
    // One of another pool: in use while that is mounted, and then only by force.
    let in_use = refused(store.add_member(&spec("c"), true));
    assert!(matches!(in_use, PoolError::Member(MemberError::InUse { .. })), "{in_use}");
    other.close().expect("closes");
    drop(other);
    let used = refused(store.add_member(&spec("c"), false));
    assert!(matches!(used, PoolError::Member(MemberError::Used { .. })), "{used}");
    let nowhere = refused(store.add_member(&spec("nowhere"), true));
    assert!(matches!(nowhere, PoolError::Member(MemberError::Access { .. })), "{nowhere}");
    let mut small = place.directory("small");
    small.bounds.limit_bytes = 9 * MIB;
    let small = refused(store.add_member(&small, false));
    assert!(matches!(small, PoolError::Member(MemberError::TooSmall { .. })), "{small}");
    assert_eq!(store.pool().members().len(), 2, "nothing was changed");
    let plan = store.pool().plan_addition(&spec("c"), true).expect("can be added");
    assert_eq!(plan.shares_device_with, [0, 1], "all are on one file system");
    assert_eq!(store.add_member(&spec("c"), true).expect("is added"), 2);
    put_extent(&store, 1, 100).expect("writes");
    store.close().expect("closes");
    drop(store);
    let store = open(&place.0.path().join("b"));
    assert_eq!(health(&store, 2), MemberHealth::Online);
}

#[test]
fn a_directory_that_was_away_comes_back_by_itself() {
    let place = Place(tempfile::tempdir().expect("a place"));
    let store = place.pool("pool", &["a", "b", "c"]);
    put_extent(&store, 1, 100).expect("writes");
    store.close().expect("closes");
    drop(store);
    let (there, away) = (place.0.path().join("b"), place.0.path().join("away"));
    std::fs::rename(&there, &away).expect("moves");
    let store = open(&place.0.path().join("a"));
    assert_eq!(health(&store, 1), MemberHealth::Missing);
    put_extent(&store, 2, 100).expect("writes");
    store.sync(store.last_seq()).expect("syncs");
    assert!(store.bring_back_missing().is_empty(), "it is not there yet");
    std::fs::rename(&away, &there).expect("moves back");
    assert_eq!(store.bring_back_missing(), [1]);
    assert_eq!(health(&store, 1), MemberHealth::Online);
    put_extent(&store, 3, 100).expect("writes");
    // By hand, from elsewhere.
    store.take_offline(1, false).expect("goes");
    assert!(store.bring_back_missing().is_empty(), "it waits for a command");
    std::fs::rename(&there, &away).expect("moves");
    assert_eq!(store.bring_path_online(&away).expect("comes back"), 1);
    assert_eq!(store.pool().status().members[1].path, away.display().to_string());
    store.close().expect("closes");
    drop(store);
    let store = open(&place.0.path().join("c"));
    assert_eq!(health(&store, 1), MemberHealth::Online, "it is known where it is now");
    for (id, value) in store.scan(super::Table::Extents, &[], &[0xff; 9], 100).expect("scans") {
        let extent: super::Extent = crate::member::wire::unpack(&value).expect("decodes");
        let mut buf = vec![0; extent.len as usize];
        store.pool().read(extent.set, extent.address, &extent.sums, &mut buf).expect("reads");
        let id = super::single(&id).expect("a number");
        if id.is_multiple_of(100) {
            assert!(buf == block(id / 100, 100)[..buf.len()]);
        }
    }
}
