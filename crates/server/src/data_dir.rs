//! The data directory: made at the first start, and used by one process at a time.
//!
//! Two processes on one directory would each have a clock, waiting calls and a queue of their own. A
//! commit of one would not wake the calls that wait in the other. So a process locks the directory itself,
//! which nobody can remove from under it, and a file in it, for file systems that do not lock directories
//! and for older versions.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The reason why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {} for data: {reason}", path.display())]
    Unusable { path: PathBuf, reason: io::Error },
    #[error("the data directory {} is in use by another asyncgate process", path.display())]
    InUse { path: PathBuf },
}

/// A directory that belongs to this process until the value is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _locks: [File; 2],
}

impl DataDir {
    /// Makes the directory if it is missing, for its owner only, and locks it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unusable = |reason| Error::Unusable {
            path: path.to_owned(),
            reason,
        };
        let in_use = || Error::InUse {
            path: path.to_owned(),
        };
        make(path).map_err(unusable)?;
        let dir = File::open(path).map_err(unusable)?;
        match dir.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use()),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "the data directory cannot be locked; do not remove the file asyncgate.lock in it");
            }
        }
        warn_of_writers(path, &dir).map_err(unusable)?;
        let file = private_file(&path.join("asyncgate.lock")).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _locks: [dir, file],
            }),
            Err(TryLockError::WouldBlock) => Err(in_use()),
            Err(TryLockError::Error(reason)) => Err(unusable(reason)),
        }
    }

    /// Returns the path of a file in the directory. A missing file is made, for its owner only.
    pub fn file(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        match private_file(&path) {
            Ok(_) => Ok(path),
            Err(reason) => Err(Error::Unusable { path, reason }),
        }
    }
}

/// Warns if everybody may put files into the directory: they could put others in the place of the database
/// and the keys. Directories that worked before still do, so this does not stop the start.
fn warn_of_writers(path: &Path, dir: &File) -> io::Result<()> {
    let mode = dir.metadata()?.permissions().mode();
    if mode & 0o002 != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{:o}", mode & 0o7777),
            "everybody on this machine may write into the data directory and so become an admin; set its mode to 700"
        );
    }
    Ok(())
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Makes a directory and the missing ones above it, and syncs each parent. A directory whose name is
/// lost in a power cut would take its files with it.
pub fn make(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = parent {
        make(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Replaces a small file, readable by its owner only. The new content is written and synced beside it,
/// then renamed over it, then the directory is synced: a crash leaves the old file or the new one.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    // A crash may have left such a file behind, with any permissions and content.
    match std::fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_and_belongs_to_one() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = DataDir::open(&path).unwrap();
        assert!(matches!(DataDir::open(&path), Err(Error::InUse { .. })));
        std::fs::remove_file(path.join("asyncgate.lock")).unwrap();
        let without_its_lock_file = DataDir::open(&path);
        assert!(matches!(without_its_lock_file, Err(Error::InUse { .. })));
        drop(first);
        assert!(DataDir::open(&path).is_ok());
    }

    #[test]
    fn files_in_it_are_for_their_owner() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(parent.path()).unwrap();
        let path = dir.file("x.db").unwrap();
        std::fs::write(&path, "kept").unwrap();
        assert_eq!(dir.file("x.db").unwrap(), path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_in_the_way_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let message = DataDir::open(file.path()).unwrap_err().to_string();
        assert!(
            message.contains(&file.path().display().to_string()),
            "{message}"
        );
    }
}
