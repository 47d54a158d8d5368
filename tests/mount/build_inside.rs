//! A build of this project inside its own mount.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::disks::Disk;
use crate::support::pool::TestPool;
use crate::support::run::{LONG, SHORT, run};

const BUILD_LIMIT: Duration = Duration::from_secs(900);

#[test]
fn the_project_builds_inside_its_own_mount() {
    let pool = TestPool::mounted("parity", &Disk::directories(3, "4G"));
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = pool.path().join("project");
    std::fs::create_dir(&copy).expect("a directory");
    for part in ["Cargo.toml", "Cargo.lock", "src", "tools"] {
        run(Command::new("cp").arg("-a").arg(project.join(part)).arg(&copy), LONG).ok();
    }
    let target = copy.join("target");
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--offline", "--bins"])
        .current_dir(&copy)
        .env("CARGO_TARGET_DIR", &target)
        // Fast to build rather than to run; it is the file system that is tried.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("RUSTFLAGS");
    // The compiler beside this Cargo, not what a toolchain manager would choose for each crate's directory.
    let compiler = Path::new(env!("CARGO")).with_file_name("rustc");
    if compiler.is_file() {
        build.env("RUSTC", compiler);
    }
    run(&mut build, BUILD_LIMIT).ok();
    let built = target.join("debug/poolfs");
    let says = run(Command::new(&built).arg("--version"), SHORT).ok();
    assert!(says.out.starts_with("poolfs "), "{says}");
    // From the members this time, not from memory.
    pool.remount();
    run(Command::new(&built).arg("--version"), SHORT).ok();
    // Cargo looks at times and lengths: nothing is built again.
    let again = run(&mut build, BUILD_LIMIT).ok();
    assert!(!again.err.contains("Compiling"), "built again although nothing changed: {again}");
}
