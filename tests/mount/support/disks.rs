//! Members of test pools: directories, or small file systems in images, which behave like disks of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::{SHORT, python, run};
use super::scratch::{Scratch, is_mounted};

/// What a member is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// A directory with a limit, such as `"2G"`.
    Directory(&'static str),
    /// An ext4 file system of this size in an image. Takes root.
    Image(&'static str),
}

impl Disk {
    /// `count` directories, each with this limit.
    pub fn directories(count: usize, limit: &'static str) -> Vec<Self> {
        vec![Self::Directory(limit); count]
    }

    /// `count` images of this size.
    pub fn images(count: usize, size: &'static str) -> Vec<Self> {
        vec![Self::Image(size); count]
    }
}

/// A member's place, and whether it is there.
#[derive(Debug)]
pub struct Slot {
    disk: Disk,
    number: usize,
    base: PathBuf,
    there: bool,
}

impl Slot {
    /// Makes an empty one.
    pub fn new(scratch: &Scratch, number: usize, disk: Disk) -> Self {
        let slot = Self { disk, number, base: scratch.path().to_owned(), there: true };
        scratch.directory(&format!("m{number}"));
        if let Disk::Image(size) = disk {
            run(Command::new("truncate").args(["-s", size]).arg(slot.image()), SHORT).ok();
            slot.format();
            slot.attach();
        }
        slot
    }

    /// Where the pool finds it.
    pub fn path(&self) -> PathBuf {
        self.base.join(format!("m{}", self.number))
    }

    /// The member as `poolctl create` takes it.
    pub fn spec(&self) -> String {
        match self.disk {
            Disk::Directory(limit) => format!("{},size={limit}", self.path().display()),
            Disk::Image(_) => self.path().display().to_string(),
        }
    }

    /// Is it there?
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// Takes it out, while no mount uses it. An empty directory is left, as an unmounted disk leaves one.
    pub fn pull(&mut self) {
        assert!(self.there, "{} is not there", self.path().display());
        match self.disk {
            Disk::Directory(_) => {
                std::fs::rename(self.path(), self.pulled()).expect("moved away");
                std::fs::create_dir(self.path()).expect("an empty directory in its place");
            }
            Disk::Image(_) => self.detach(),
        }
        self.there = false;
    }

    /// Gives it back as it was. Nothing may have been written to the empty directory in its place.
    pub fn restore(&mut self) {
        assert!(!self.there, "{} is there", self.path().display());
        self.assert_untouched();
        match self.disk {
            Disk::Directory(_) => {
                std::fs::remove_dir(self.path()).expect("the empty directory goes");
                std::fs::rename(self.pulled(), self.path()).expect("moved back");
            }
            Disk::Image(_) => self.attach(),
        }
        self.there = true;
    }

    /// While it is out: its place is as empty as it was left.
    pub fn assert_untouched(&self) {
        let found: Vec<_> = std::fs::read_dir(self.path()).expect("listed").collect();
        assert!(found.is_empty(), "written to the place of a member that is missing: {found:?}");
    }

    /// Loses what it held: an empty one takes its place.
    pub fn wipe(&mut self) {
        match self.disk {
            Disk::Directory(_) => {
                std::fs::remove_dir_all(self.path()).expect("removed");
                std::fs::create_dir(self.path()).expect("made anew");
            }
            Disk::Image(_) => {
                self.detach();
                self.format();
                self.attach();
            }
        }
    }

    /// While in use: from now on every read and write fails, as with a disk that died. Only an image can; a
    /// [`Self::revive`] mounts it again.
    pub fn die(&self) {
        assert!(matches!(self.disk, Disk::Image(_)), "a directory can't die");
        // EXT4_IOC_SHUTDOWN without flushing the log.
        let shut_down = "import fcntl,os,struct,sys\n\
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
        python(&self.base, shut_down, &[&self.path().display().to_string()], SHORT).ok();
    }

    /// After [`Self::die`], while no mount uses it: works again, with what had reached it.
    pub fn revive(&self) {
        self.detach();
        self.attach();
    }

    /// While in use: turns the file system below read-only, or back.
    pub fn set_read_only(&self, read_only: bool) {
        let how = if read_only { "remount,ro" } else { "remount,rw" };
        // Open for writing means busy to an orderly remount. A kernel that gives up on a disk does not ask.
        if read_only {
            self.abort_journal();
        } else {
            run(Command::new("mount").args(["-o", how]).arg(self.path()), SHORT).ok();
        }
    }

    /// What the kernel does after an I/O error on ext4's own structures: the file system is read-only at once.
    fn abort_journal(&self) {
        run(Command::new("mount").args(["-o", "remount,abort"]).arg(self.path()), SHORT).ok();
    }

    /// While in use: from now on every write hangs in the kernel, where no signal ends it, until what this gives is
    /// dropped. Only an image can.
    pub fn freeze(&self) -> Frozen {
        assert!(matches!(self.disk, Disk::Image(_)), "a directory can't be frozen");
        run(Command::new("fsfreeze").arg("-f").arg(self.path()), SHORT).ok();
        Frozen(self.path())
    }

    fn image(&self) -> PathBuf {
        self.base.join(format!("m{}.img", self.number))
    }

    fn pulled(&self) -> PathBuf {
        self.base.join(format!("pulled{}", self.number))
    }

    fn format(&self) {
        run(Command::new("mkfs.ext4").args(["-qF", "-m", "0"]).arg(self.image()), SHORT).ok();
    }

    fn attach(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()), SHORT).ok();
    }

    fn detach(&self) {
        if is_mounted(&self.path()) {
            run(Command::new("umount").arg(self.path()), SHORT).ok();
        }
    }
}

/// A disk that hangs.
#[derive(Debug)]
pub struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = run(Command::new("fsfreeze").arg("-u").arg(&self.0), SHORT);
    }
}

/// Copies members as they are now, as a snapshot of their disks would be.
pub fn copy_members(slots: &[Slot], to: &Path) -> Vec<PathBuf> {
    std::fs::create_dir_all(to).expect("a directory for the copies");
    let copies = slots.iter().map(|slot| to.join(format!("c{}", slot.number)));
    let copies: Vec<PathBuf> = copies.collect();
    for (slot, copy) in slots.iter().zip(&copies) {
        run(Command::new("cp").args(["-a", "--sparse=always"]).arg(slot.path()).arg(copy), SHORT).ok();
    }
    copies
}
