//! Credentials for AWS, from the environment.

use std::fmt;

use crate::BadSetup;

/// The environment variables, as AWS names them.
const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";

/// A key, and the session token that belongs to a temporary key.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) key_id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

/// Shows none of its parts, so that it can be logged.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    pub(crate) fn from(env: &impl Fn(&str) -> Option<String>) -> Result<Self, BadSetup> {
        let get = |name: &'static str| match env(name).filter(|value| !value.is_empty()) {
            Some(value) if value.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(value)),
            // A line's end copied from a file would otherwise show up much later, as a wrong signature.
            Some(_) => Err(BadSetup::Characters(name)),
            None => Ok(None),
        };
        Ok(Self {
            key_id: get(KEY_ID)?.ok_or(BadSetup::Credentials)?,
            secret: get(SECRET)?.ok_or(BadSetup::Credentials)?,
            token: get(TOKEN)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(pairs: &[(&str, &str)]) -> Result<Credentials, BadSetup> {
        Credentials::from(&|name: &str| {
            let found = pairs.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn credentials_come_from_the_environment_and_are_not_shown() {
        let both = [(KEY_ID, "AKID"), (SECRET, "s3cret")];
        let found = credentials(&both).unwrap();
        assert_eq!((&*found.key_id, &*found.secret), ("AKID", "s3cret"));
        assert!(found.token.is_none());
        let all = [both[0], both[1], (TOKEN, "t0ken")];
        let found = credentials(&all).unwrap();
        assert_eq!(found.token.as_deref(), Some("t0ken"));
        let shown = format!("{found:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("t0ken"));
    }

    #[test]
    fn missing_and_unusable_variables_are_named() {
        for (pairs, flaw) in [
            (&[][..], BadSetup::Credentials),
            (&[(KEY_ID, "a")], BadSetup::Credentials),
            (&[(KEY_ID, ""), (SECRET, "s")], BadSetup::Credentials),
            (
                &[(KEY_ID, "a"), (SECRET, "s3cret\n")],
                BadSetup::Characters(SECRET),
            ),
        ] {
            let refused = credentials(pairs).unwrap_err();
            assert!(!refused.to_string().contains("s3cret"));
            assert_eq!(refused, flaw);
        }
    }
}
