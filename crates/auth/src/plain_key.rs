//! The form of an API key: `aga_`, a lookup id by which its record is found, and a secret.

use crate::machine::{Machine, NoRandomness};

const PREFIX: &str = "aga_";
const LOOKUP_LEN: usize = 12;
const SECRET_LEN: usize = 40;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// An API key in the clear. It exists only while it is made and shown; it is never stored.
pub struct PlainKey(String);

impl PlainKey {
    /// Makes a new key.
    pub(crate) fn generate(machine: Machine) -> Result<Self, NoRandomness> {
        let body = base62(machine, LOOKUP_LEN + SECRET_LEN)?;
        Ok(Self(format!("{PREFIX}{body}")))
    }

    /// Returns the key itself, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for PlainKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlainKey(..)")
    }
}

/// Returns true if a credential says that it is an API key.
pub(crate) fn looks_like_key(credential: &str) -> bool {
    credential.starts_with(PREFIX)
}

/// Returns the lookup id inside a credential, if the credential has the form of a key.
pub fn lookup_id(credential: &str) -> Option<&str> {
    let body = credential.strip_prefix(PREFIX)?;
    let shaped = body.len() == LOOKUP_LEN + SECRET_LEN
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if shaped { body.get(..LOOKUP_LEN) } else { None }
}

/// Draws random characters. Bytes past the last whole multiple of 62 are thrown away, so that every
/// character is equally likely.
pub(crate) fn base62(machine: Machine, len: usize) -> Result<String, NoRandomness> {
    let mut text = String::with_capacity(len);
    while text.len() < len {
        let bytes: [u8; 64] = machine.bytes()?;
        let usable = bytes
            .iter()
            .map(|byte| usize::from(*byte))
            .filter(|byte| *byte < 62 * 4);
        let characters = usable.filter_map(|byte| ALPHABET.get(byte % 62));
        text.extend(
            characters
                .take(len - text.len())
                .map(|byte| char::from(*byte)),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::machine;

    fn make() -> PlainKey {
        PlainKey::generate(machine()).unwrap()
    }

    #[test]
    fn keys_have_the_promised_shape_and_differ() {
        let (one, two) = (make(), make());
        assert_ne!(one.reveal(), two.reveal());
        for key in [&one, &two] {
            assert_eq!(key.reveal().len(), 4 + 12 + 40);
            assert_eq!(lookup_id(key.reveal()), key.reveal().get(4..16));
        }
        assert!(!format!("{one:?}").contains(one.reveal()));
    }

    #[test]
    fn what_has_another_shape_has_no_lookup_id() {
        let good = make().reveal().to_owned();
        let bad = [
            "",
            "aga_",
            &good[1..],
            &good[..55],
            &format!("{good}x"),
            &good.replace("aga_", "agb_"),
            &format!("{}é", &good[..54]),
        ];
        for credential in bad {
            assert_eq!(lookup_id(credential), None, "{credential}");
        }
    }

    #[test]
    fn a_source_that_fails_makes_no_key() {
        let broken = Machine {
            fill_random: |_| Err(NoRandomness("gone".to_owned())),
            ..machine()
        };
        assert!(PlainKey::generate(broken).is_err());
    }
}
