//! Addresses of receivers.

use std::{fmt, str::FromStr};

use http::Uri;

const MAX_BYTES: usize = 2_048;

/// The address of a receiver. It may hold a token, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Uri);

/// The reason why a text is no address of a receiver. It repeats nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be http://host or https://host with a path, without user, password and fragment")]
pub struct BadAddress;

impl Address {
    /// Returns the whole address.
    pub(crate) const fn uri(&self) -> &Uri {
        &self.0
    }

    /// Returns true if connections to it are encrypted.
    pub fn is_secure(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns the address without what may be secret in it: its path and query.
    pub fn shown(&self) -> String {
        let scheme = self.0.scheme_str().unwrap_or_default();
        let host = self.0.authority().map_or("", |it| it.as_str());
        format!("{scheme}://{host}/...")
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let is_fit = text.len() <= MAX_BYTES && !text.contains(['#', '@']);
        let uri: Uri = text.parse().map_err(|_| BadAddress)?;
        let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        match is_fit && has_scheme && has_host {
            true => Ok(Self(uri)),
            false => Err(BadAddress),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_whole_and_hold_no_password() {
        for good in [
            "http://127.0.0.1:80",
            "https://billing.example/hook?token=x",
            "http://[::1]:8080/a/b",
        ] {
            assert!(good.parse::<Address>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "billing.example",
            "/hook",
            "ftp://x/",
            "http://",
            "http://u:p@x/",
            "https://x/#f",
            "http://a b/",
        ] {
            assert_eq!(bad.parse::<Address>(), Err(BadAddress), "{bad}");
        }
        let long = format!("http://x/{}", "a".repeat(MAX_BYTES));
        assert!(long.parse::<Address>().is_err());
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let address: Address = "https://b.example:8443/s3cret?t=x".parse().unwrap();
        assert_eq!(format!("{address:?}"), "https://b.example:8443/...");
        assert!(address.is_secure());
    }
}
