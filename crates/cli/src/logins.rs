//! The logins of this user: `logins.json` beside the profile file, readable by its owner only.
//!
//! Invariant: a token is in this file, in memory, or on its way to the server that gave it, and nowhere else.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{DirBuilder, File},
    io::{ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use asyncgate_client::Tokens;
use serde::{Deserialize, Serialize};

use crate::{remote::config_dir, wall_clock::now_secs};

/// The seconds before its end at which a token is not used any more, so that it does not end on its way.
const MARGIN_SECS: u64 = 30;

/// A login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    client_id: String,
    access_token: String,
    refresh_token: Option<String>,
    /// The end of the access token, in seconds since 1970.
    expires_at: u64,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept")
            .field("client_id", &self.client_id)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl Kept {
    /// Makes a login of tokens that just came.
    pub fn new(client_id: &str, tokens: Tokens) -> Self {
        Self {
            client_id: client_id.to_owned(),
            access_token: tokens.access_token.0,
            refresh_token: tokens.refresh_token.map(|token| token.0),
            expires_at: now_secs().saturating_add(tokens.expires_in),
        }
    }

    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    pub fn access_token(&self) -> &str {
        &self.access_token
    }

    pub fn refresh_token(&self) -> Option<&str> {
        self.refresh_token.as_deref()
    }

    /// Returns true if the access token is still good for a call.
    pub fn is_current(&self) -> bool {
        now_secs().saturating_add(MARGIN_SECS) < self.expires_at
    }
}

type Logins = BTreeMap<String, Kept>;

/// Returns the login at a server.
pub fn find(server: &str) -> anyhow::Result<Option<Kept>> {
    let Some(path) = file() else {
        return Ok(None);
    };
    Ok(read(&path)?.remove(server))
}

/// Keeps a login at a server, in place of the one before.
pub fn keep(server: &str, login: Kept) -> anyhow::Result<()> {
    let path = file().context("there is no home directory in which to keep the login")?;
    let mut logins = read(&path)?;
    logins.insert(server.to_owned(), login);
    write(&path, &logins)
}

/// Takes the login at a server out.
pub fn take(server: &str) -> anyhow::Result<Option<Kept>> {
    let Some(path) = file() else {
        return Ok(None);
    };
    let mut logins = read(&path)?;
    let taken = logins.remove(server);
    if taken.is_some() {
        write(&path, &logins)?;
    }
    Ok(taken)
}

fn file() -> Option<PathBuf> {
    Some(config_dir()?.join("logins.json"))
}

fn read(path: &Path) -> anyhow::Result<Logins> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Logins::new()),
        Err(error) => return Err(error).context("cannot read the file of logins"),
    };
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is not well-formed; remove it", path.display()))
}

/// Replaces the file at once, so that nobody sees half of it or reads it before it is closed to others.
fn write(path: &Path, logins: &Logins) -> anyhow::Result<()> {
    let what = || format!("cannot write {}", path.display());
    let dir = path.parent().unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(what)?;
    // A temporary file is its owner's alone from the start.
    let mut file = tempfile::NamedTempFile::new_in(dir).with_context(what)?;
    let closed = std::fs::Permissions::from_mode(0o600);
    let written = file
        .write_all(&serde_json::to_vec_pretty(logins)?)
        .and_then(|()| file.as_file().set_permissions(closed))
        .and_then(|()| file.as_file().sync_all());
    written.with_context(what)?;
    let persisted: Result<File, _> = file.persist(path);
    persisted.map(drop).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(expires_at: u64) -> Kept {
        Kept {
            client_id: "c".to_owned(),
            access_token: "aaa".to_owned(),
            refresh_token: None,
            expires_at,
        }
    }

    #[test]
    fn a_login_is_kept_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("asyncgate").join("logins.json");
        assert_eq!(read(&path).unwrap(), Logins::new());
        let logins = Logins::from([("http://a".to_owned(), login(5))]);
        write(&path, &logins).unwrap();
        assert_eq!(read(&path).unwrap(), logins);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
    }

    #[test]
    fn a_token_is_not_used_up_to_its_last_second() {
        assert!(login(now_secs() + 3_600).is_current());
        assert!(!login(now_secs() + 5).is_current());
        assert!(!format!("{:?}", login(5)).contains("aaa"));
    }
}
