//! A full disk where it hurts most: in a checkpoint, and at the start after a crash.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::audit::Audit;
use crate::harness::{Launch, eventually};
use crate::http::Request;
use crate::journal::Journal;
use crate::load::load;
use crate::random::Random;

/// A file system in memory, unmounted when dropped.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// Nothing, with a word on why, where the machine does not allow it.
    #[expect(clippy::print_stderr, reason = "a test that was skipped says so")]
    fn mount(kibibytes: usize) -> Option<Self> {
        let disk = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        if disk.set("", kibibytes) {
            return Some(disk);
        }
        eprintln!("SKIPPED: cannot mount a tmpfs here");
        None
    }

    /// Gives the disk another size.
    fn resize(&self, kibibytes: usize) {
        assert!(self.set("remount,", kibibytes));
    }

    fn set(&self, how: &str, kibibytes: usize) -> bool {
        let options = format!("{how}size={kibibytes}k");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(self.dir.path())
            .output();
        mounted.is_ok_and(|output| output.status.success())
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// How many bytes of it are in use.
    fn used(&self) -> u64 {
        fn size(path: &Path) -> u64 {
            let found = path.metadata().unwrap();
            if !found.is_dir() {
                return found.len().next_multiple_of(4_096);
            }
            let entries = std::fs::read_dir(path).unwrap();
            entries.map(|entry| size(&entry.unwrap().path())).sum()
        }
        size(self.dir.path())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that is just being killed may still have files open.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
    }
}

/// The log is a little too large for the disk to also hold the pages that a checkpoint moves.
#[test]
fn a_checkpoint_that_finds_the_disk_full_loses_nothing() {
    const LOG_KIB: usize = 1_000 * 4_120 / 1_024;
    let Some(disk) = SmallDisk::mount(LOG_KIB + 150) else {
        return;
    };
    let random = Random::of_test("full");
    let launch = Launch::new().data_dir(&disk.data());
    let journal = Journal::default();
    let server = launch.start();
    load(&server, &journal, &random, 6, || {
        server.logged("checkpoint failed");
        eventually("it is out of order", || {
            let ready = server.send_bare(&Request::get("/readyz"));
            (ready.status == 503).then_some(())
        });
    });
    let mut audit = Audit::default();
    audit.settle(&server, &journal.since(0)).unwrap();
    server.kill();

    // The start after the crash finds the disk as full as it was left.
    let server = launch.start();
    audit.settle(&server, &[]).unwrap();
    server.kill();
    disk.resize(64 << 10);
    let server = launch.start();
    let before = journal.count();
    load(&server, &journal, &random.fork(1), 6, || {
        eventually("it goes on", || {
            (journal.count() > before + 100).then_some(())
        });
    });
    audit.settle(&server, &journal.since(before)).unwrap();
    audit.check_all(&server, &journal).unwrap();
    audit.check_by_acting(&server, &journal).unwrap();
}

/// Reading the log needs a little room; without it the start is refused and nothing is touched.
#[test]
fn a_start_after_a_crash_without_any_room_is_refused_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount(16 << 10) else {
        return;
    };
    let random = Random::of_test("no room");
    let launch = Launch::new().data_dir(&disk.data());
    let journal = Journal::default();
    let server = launch.start();
    load(&server, &journal, &random, 6, || {
        eventually("enough was acknowledged", || {
            (journal.count() > 100).then_some(())
        });
        server.signal("KILL");
    });
    server.wait();
    std::fs::remove_file(disk.data().join("asyncgate.db-shm")).unwrap();
    disk.resize(disk.used() as usize >> 10);
    let ended = launch.refused();
    assert!(ended.complaint().contains("asyncgate.db"), "{ended:?}");
    disk.resize(16 << 10);
    let server = launch.start();
    Audit::default().settle(&server, &journal.since(0)).unwrap();
}
