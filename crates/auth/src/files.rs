//! The small secret files of the data directory, as far as this crate needs a disk.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Small files that outlive the process. Names are plain, without a directory.
///
/// Contract: [`replace`](Files::replace) is atomic and durable, and nobody but the owner can read the file.
pub trait Files: Send + Sync {
    /// Reads a file; nothing if there is none.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a file, or makes it.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()>;

    /// Gives a file another name. A file that has the new name already is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Returns a file's place, for messages.
    fn place(&self, name: &str) -> String;
}

/// Files that end with the process, for a store that does, too.
#[derive(Default)]
pub struct MemoryFiles(Mutex<HashMap<String, Vec<u8>>>);

impl std::fmt::Debug for MemoryFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The content is secret.
        f.write_str("MemoryFiles(..)")
    }
}

impl Files for MemoryFiles {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.all().get(name).cloned())
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.all().insert(name.to_owned(), content.to_vec());
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.all();
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn place(&self, name: &str) -> String {
        format!("{name} in memory")
    }
}

impl MemoryFiles {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
