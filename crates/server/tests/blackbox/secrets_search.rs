//! Looking for secrets: what they look like in whatever form they are written, and where they may stand.

use std::collections::BTreeSet;
use std::path::Path;

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD},
};

/// Shorter texts are found by chance.
const SHORTEST: usize = 12;

/// Who may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nobody: the database holds hashes at most.
    Nowhere,
    /// This file, by its path below the directory of the test.
    File(&'static str),
    /// The database: it is content, which is stored to be given back.
    Database,
}

struct Secret {
    name: String,
    forms: Vec<Vec<u8>>,
    place: Place,
}

/// The secrets of a run.
#[derive(Default)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Adds a secret.
    #[track_caller]
    pub fn add(&mut self, name: &str, secret: impl AsRef<[u8]>, place: Place) {
        let secret = secret.as_ref();
        assert!(secret.len() >= SHORTEST, "{name} would be found by chance");
        self.0.push(Secret {
            name: name.to_owned(),
            forms: forms(secret),
            place,
        });
    }

    /// The names of the secrets that stand in a text, in any form.
    fn found_in(&self, text: &[u8]) -> BTreeSet<&str> {
        // One pass for all of them: most places are ruled out by two bytes.
        let mut starts: Vec<Vec<(&str, &[u8])>> = vec![Vec::new(); 1 << 16];
        for secret in &self.0 {
            for form in &secret.forms {
                starts[usize::from(u16::from_be_bytes([form[0], form[1]]))]
                    .push((&secret.name, form));
            }
        }
        let mut found = BTreeSet::new();
        for (at, pair) in text.windows(2).enumerate() {
            for (name, form) in &starts[usize::from(u16::from_be_bytes([pair[0], pair[1]]))] {
                if text[at..].starts_with(form) {
                    found.insert(*name);
                }
            }
        }
        found
    }

    /// Fails if a secret stands in a text that nobody should find one in.
    #[track_caller]
    pub fn are_not_in(&self, place: &str, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let found = self.found_in(text);
        assert!(found.is_empty(), "{place} holds {found:?}");
    }

    /// Fails if a file below a directory holds a secret that is not meant to be there. Every file that is meant to
    /// hold one must do so, which shows that it would be found.
    #[track_caller]
    pub fn are_only_where_they_belong(&self, directory: &Path) {
        let mut held = BTreeSet::new();
        for file in files(directory) {
            let path = file.strip_prefix(directory).unwrap().to_str().unwrap();
            let found = self.found_in(&std::fs::read(&file).unwrap());
            for secret in self.0.iter().filter(|one| found.contains(&*one.name)) {
                let may = match secret.place {
                    Place::Nowhere => false,
                    Place::File(name) => path == name,
                    Place::Database => path.starts_with("data/asyncgate.db"),
                };
                assert!(may, "{path} holds {}", secret.name);
                held.insert(&*secret.name);
            }
        }
        for secret in &self.0 {
            let should = secret.place != Place::Nowhere;
            assert_eq!(held.contains(&*secret.name), should, "{}", secret.name);
        }
    }

    /// Fails if a secret would not be found wherever it stands, or if nothing is looked for.
    #[track_caller]
    pub fn would_be_found(&self, text: &[u8]) {
        assert!(!self.0.is_empty() && !text.is_empty());
        for secret in &self.0 {
            for form in &secret.forms {
                for at in [0, text.len() / 2, text.len()] {
                    let planted = [&text[..at], form, &text[at..]].concat();
                    let found = self.found_in(&planted);
                    assert!(found.contains(&*secret.name), "{}", secret.name);
                }
            }
        }
    }
}

/// The forms in which a secret may be written.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let list: Vec<String> = secret.iter().map(u8::to_string).collect();
    let mut forms = vec![
        secret.to_vec(),
        digits.to_uppercase().into(),
        digits.into(),
        // As `Debug` shows bytes.
        list.join(", ").into(),
    ];
    if let Ok(text) = std::str::from_utf8(secret) {
        let pair = serde_urlencoded::to_string([("", text)]).unwrap();
        forms.push(pair[1..].into());
        let quoted = serde_json::to_string(text).unwrap();
        forms.push(quoted[1..quoted.len() - 1].into());
    }
    // Within something longer it may begin at any of three places.
    for skipped in 0..3 {
        let whole = &secret[skipped..];
        let whole = &whole[..whole.len() / 3 * 3];
        forms.push(BASE64_STANDARD_NO_PAD.encode(whole).into());
        forms.push(BASE64_URL_SAFE_NO_PAD.encode(whole).into());
    }
    forms.sort();
    forms.dedup();
    forms
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.append(&mut files(&path)),
            false => found.push(path),
        }
    }
    found
}
