//! What only the server may read or make: random bytes, and keys that a library draws from its own source.

use std::fmt;

use asyncgate_credentials::jwt::NoKey;

/// The machine's random source could not be read, so nothing secret can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the machine's random source: {0}")]
pub struct NoRandomness(pub String);

/// The sources that the server hands over. Everywhere else they are forbidden.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Fills a buffer with bytes that nobody can predict.
    pub fill_random: fn(&mut [u8]) -> Result<(), NoRandomness>,
    /// Makes an RSA key in PKCS #8. It takes about a second.
    pub make_signing_key: fn() -> Result<Vec<u8>, NoKey>,
}

impl Machine {
    /// Draws so many random bytes.
    pub(crate) fn bytes<const N: usize>(&self) -> Result<[u8; N], NoRandomness> {
        let mut bytes = [0; N];
        (self.fill_random)(&mut bytes)?;
        Ok(bytes)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}
