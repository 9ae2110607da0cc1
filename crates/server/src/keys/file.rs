//! The key file: `keys.json` in the data directory, readable by its owner only.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;
use super::record::Record;
use crate::data_dir;

const NAME: &str = "keys.json";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    keys: Vec<Record>,
}

/// The key file.
#[derive(Debug, Clone)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// Returns the key file of a data directory.
    pub fn in_dir(dir: &Path) -> Self {
        Self {
            path: dir.join(NAME),
        }
    }

    /// Returns its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the records; nothing if there is no file.
    pub fn load(&self) -> Result<Option<Vec<Record>>, Error> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed("read", &e)),
        };
        let content: Content =
            serde_json::from_slice(&text).map_err(|e| self.failed("read", &io::Error::other(e)))?;
        if content.version != VERSION {
            let version = io::Error::other(format!("version {} is not {VERSION}", content.version));
            return Err(self.failed("read", &version));
        }
        Ok(Some(content.keys))
    }

    /// Replaces the records. When this returns, they are on the disk.
    pub fn save(&self, keys: Vec<Record>) -> Result<(), Error> {
        self.replace(&Content {
            version: VERSION,
            keys,
        })
        .map_err(|e| self.failed("write", &e))
    }

    fn replace(&self, content: &Content) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(content)?;
        text.push(b'\n');
        data_dir::replace(&self.path, &text)
    }

    /// Returns true if others than the owner may read the file.
    pub fn is_exposed(&self) -> bool {
        std::fs::metadata(&self.path)
            .is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
    }

    fn failed(&self, what: &'static str, error: &io::Error) -> Error {
        Error::File {
            what,
            path: self.path.clone(),
            reason: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_not_an_error_and_a_broken_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = KeyFile::in_dir(dir.path());
        assert!(file.load().unwrap().is_none());
        for broken in [
            "",
            "{}",
            "{\"version\":2,\"keys\":[]}",
            "{\"version\":1,\"keys\":[{}]}",
            "{\"version\":1,\"keys\":[],\"x\":1}",
        ] {
            std::fs::write(file.path(), broken).unwrap();
            let message = file.load().unwrap_err().to_string();
            assert!(
                message.contains("keys.json") && !message.contains('\n'),
                "{message}"
            );
        }
    }

    #[test]
    fn saving_replaces_the_file_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = KeyFile::in_dir(dir.path());
        std::fs::write(dir.path().join("keys.json.new"), "left behind by a crash").unwrap();
        std::fs::write(file.path(), "old").unwrap();
        assert!(file.is_exposed());
        file.save(Vec::new()).unwrap();
        assert_eq!(file.load().unwrap(), Some(Vec::new()));
        assert!(!file.is_exposed());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
