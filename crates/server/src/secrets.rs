//! What credentials are checked with: the settings of `asyncgate-auth`, its files, and the sources that only the
//! server may read.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use asyncgate_auth::{Files, HashCost, Machine, MemoryFiles, NoRandomness};
use asyncgate_credentials::jwt::SigningKey;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use crate::clock::fill_random;
use crate::config::{Settings, StoreKind};
use crate::data_dir;

/// The length below which a shared key can be guessed.
const SHORT_KEY: usize = 16;

/// Returns the machine's sources.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where the server makes the key of tokens"
)]
pub fn machine() -> Machine {
    Machine {
        fill_random: |bytes| fill_random(bytes).map_err(|error| NoRandomness(error.to_string())),
        make_signing_key: SigningKey::generate,
    }
}

/// Returns the settings of credentials. Reads the files that they name.
pub fn for_auth(settings: &Settings) -> anyhow::Result<asyncgate_auth::Settings> {
    let signing_key = settings.jwt_key_path.as_deref().map(private_key);
    let macaroon_secret = settings.macaroon_path.as_deref().map(secret);
    let shared_key = settings.api_key.as_ref();
    Ok(asyncgate_auth::Settings {
        shared_key: shared_key.map(|key| key.reveal().to_owned()),
        insecure_dev: settings.allow_insecure_dev,
        proof_ttl: settings.proof_ttl,
        hash_cost: HashCost {
            time: settings.hash_time_cost,
            memory_kib: settings.hash_memory_cost,
            parallelism: settings.hash_parallelism,
        },
        issuer: settings.jwt_issuer.clone(),
        audience: settings.jwt_audience.clone(),
        signing_key: signing_key
            .transpose()
            .context("security.jwt.private_key_path")?,
        macaroon_secret: macaroon_secret.transpose().context("auth.macaroon_path")?,
    })
}

/// Warns of settings by which strangers could get in.
pub fn warn_of_open_doors(settings: &Settings) {
    if settings.allow_insecure_dev {
        tracing::warn!(
            "ALLOW_INSECURE_DEV: every caller is the admin, no credential is asked for; never do this in production"
        );
    }
    let key = settings.api_key.as_ref();
    if key.is_some_and(|key| key.reveal().len() < SHORT_KEY) {
        tracing::warn!("api_key is shorter than 16 characters and can be guessed");
    }
}

/// Returns the files of secrets: those of the data directory, or none that last.
pub fn files(settings: &Settings) -> Arc<dyn Files> {
    match settings.store {
        StoreKind::Memory => Arc::new(MemoryFiles::default()),
        StoreKind::Sqlite => Arc::new(InDataDir(settings.data_dir.clone())),
    }
}

/// Reads a private key in PEM or DER.
fn private_key(path: &Path) -> anyhow::Result<Vec<u8>> {
    let content = secret(path)?;
    match PrivateKeyDer::from_pem_slice(&content) {
        Ok(key) => Ok(key.secret_der().to_vec()),
        // Anything else is held to be DER, and told to be no key if it is not.
        Err(_) => Ok(content),
    }
}

/// Reads a file that nobody else may read.
fn secret(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = || path.display().to_string();
    let metadata = std::fs::metadata(path).with_context(shown)?;
    // Distributions and Kubernetes give keys of root to a group that the server belongs to.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    let mode = metadata.permissions().mode() & 0o777;
    anyhow::ensure!(
        mode & forbidden == 0,
        "{}: others than its owner may read it (its mode is {mode:o}); set it to 600",
        path.display()
    );
    std::fs::read(path).with_context(shown)
}

/// The files of the data directory.
#[derive(Debug)]
struct InDataDir(PathBuf);

impl Files for InDataDir {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.0.join(name);
        let content = match std::fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mode = std::fs::metadata(&path)?.permissions().mode();
        if mode & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "others than its owner may read this file of secrets");
        }
        Ok(Some(content))
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        data_dir::replace(&self.0.join(name), content)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))?;
        std::fs::File::open(&self.0)?.sync_all()
    }

    fn place(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::settings;

    #[test]
    fn files_are_for_their_owner_and_a_missing_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().to_str().unwrap();
        let files = files(&settings(&[("data_dir", data_dir)]));
        assert!(files.read("a").unwrap().is_none());
        files.replace("a", b"secret").unwrap();
        files.rename("a", "b").unwrap();
        assert_eq!(files.read("b").unwrap().unwrap(), b"secret");
        assert!(files.read("a").unwrap().is_none());
        assert!(files.rename("a", "b").is_err());
        let mode = std::fs::metadata(dir.path().join("b")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        assert!(files.place("b").ends_with("/b"));
    }

    #[test]
    fn keys_are_read_in_both_forms_if_nobody_else_can_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jwt");
        let der = asyncgate_auth::fakes::SIGNING_KEYS[0];
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der)
        );
        let named = settings(&[("security.jwt.private_key_path", path.to_str().unwrap())]);
        assert!(for_auth(&named).is_err(), "it is missing");
        for content in [der, pem.as_bytes()] {
            data_dir::replace(&path, content).unwrap();
            let read = for_auth(&named).unwrap().signing_key.unwrap();
            assert_eq!(read, der);
        }
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&path, open).unwrap();
        let told = format!("{:#}", for_auth(&named).unwrap_err());
        assert!(told.contains("security.jwt.private_key_path"), "{told}");
    }

    #[test]
    fn the_defaults_are_those_of_the_crate() {
        let (ours, theirs) = (
            for_auth(&settings(&[])).unwrap(),
            asyncgate_auth::Settings::default(),
        );
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }
}
