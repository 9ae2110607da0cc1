//! A server on a disk that remembers what was synced: `disk.c` is compiled and loaded into it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::Launch;
use crate::image::Disk;

/// How the disk behaves; `disk.c` says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Honest,
    /// No sync counts.
    Never,
    /// No sync of the write-ahead log counts.
    NoWal,
    /// No sync of a directory counts.
    NoDir,
    /// Answers come before the sync.
    Late,
    /// Answers come before the commit.
    Early,
    /// One sync of the write-ahead log fails, and the next ones do not bring back what it lost.
    Fails,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::Never => "never",
            Self::NoWal => "nowal",
            Self::NoDir => "nodir",
            Self::Late => "late",
            Self::Early => "early",
            Self::Fails => "fails",
        }
    }
}

/// The compiled library, and the place of the disks.
pub struct Recorder {
    dir: TempDir,
    library: PathBuf,
}

impl Recorder {
    /// Nothing, with a word on why, where there is no C compiler.
    #[expect(clippy::print_stderr, reason = "a test that was skipped says so")]
    pub fn build() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("disk.so");
        let compiled = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"])
            .arg("-o")
            .arg(&library)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/disk.c"))
            .args(["-ldl", "-lpthread"])
            .output();
        match compiled {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "disk.c: {said}");
                Some(Self { dir, library })
            }
            Err(error) => {
                eprintln!("SKIPPED: no C compiler `cc` here, lost writes are not tested: {error}");
                None
            }
        }
    }

    /// An empty disk of this name. The data directory is in it unless it is to be made by the server.
    pub fn disk(&self, name: &str, data_dir: DataDir) -> Mounted {
        let root = self.dir.path().join(name);
        std::fs::create_dir(&root).unwrap();
        let mounted = Mounted {
            root: root.canonicalize().unwrap(),
            log: self.dir.path().join(format!("{name}.log")),
            library: self.library.clone(),
        };
        if data_dir == DataDir::Exists {
            std::fs::create_dir(mounted.data()).unwrap();
        }
        mounted
    }
}

/// Whether a disk has a data directory before the first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDir {
    Exists,
    Missing,
}

/// A disk and the log of what happens on it.
#[derive(Debug, Clone)]
pub struct Mounted {
    root: PathBuf,
    log: PathBuf,
    library: PathBuf,
}

impl Mounted {
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// A launch that nothing is recorded of.
    pub fn launch(&self) -> Launch {
        Launch::new().data_dir(&self.data())
    }

    /// A launch whose changes below the disk are recorded.
    pub fn recorded(&self, mode: Mode) -> Launch {
        self.launch()
            .env("LD_PRELOAD", self.library.to_str().unwrap())
            .env("CRASH_ROOT", self.root.to_str().unwrap())
            .env("CRASH_LOG", self.log.to_str().unwrap())
            .env("CRASH_MODE", mode.name())
    }

    /// What is on the disk now, as if all of it were synced. To be taken before a start.
    pub fn at_rest(&self) -> Disk {
        Disk::read(&self.root)
    }

    /// Goes on from what was on the disk before a start, by what was recorded since.
    pub fn replay(&self, before: Disk) -> Disk {
        before.replay(&self.root, &self.take_log())
    }

    /// What was recorded since the last call.
    pub fn take_log(&self) -> Vec<u8> {
        let log = std::fs::read(&self.log).unwrap();
        std::fs::remove_file(&self.log).unwrap();
        log
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Makes the disk hold this and nothing else.
    pub fn write(&self, files: &crate::image::Files) {
        std::fs::remove_dir_all(&self.root).unwrap();
        std::fs::create_dir(&self.root).unwrap();
        for (path, content) in files {
            let path = self.root.join(path);
            match content {
                None => std::fs::create_dir(path).unwrap(),
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
            }
        }
    }
}
