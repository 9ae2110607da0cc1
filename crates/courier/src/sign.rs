//! Signatures of what is sent, in the form in which an ingress of this server wants them.

use std::fmt;

use asyncgate_core::hex;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderName;
use sha2::Sha256;

/// The header that holds the signature: `sha256=` and the HMAC-SHA256 of the body in hexadecimal digits.
pub const SIGNATURE: HeaderName = HeaderName::from_static("x-signature-256");

/// A secret that the receiver shares. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Makes a secret of its text.
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// Returns the value of the header for a body.
    pub(crate) fn sign(&self, body: &[u8]) -> String {
        // A key of any length will do, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            return String::new();
        };
        mac.update(body);
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        format!("sha256={}", hex::encode(&digest))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second test case of RFC 4231.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let secret = Secret::new("Jefe");
        assert_eq!(
            secret.sign(b"what do ya want for nothing?"),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
