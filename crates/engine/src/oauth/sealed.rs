//! Texts that a browser keeps for the server and cannot change: what a login is about, until it is over.
//!
//! So a request that nobody finishes leaves nothing behind, and any instance can go on with it.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

use super::Oauth;
use crate::Fault;

impl Oauth {
    /// Seals a text for a purpose. It can be read by whoever has it, but not changed.
    pub fn seal(&self, purpose: &str, text: &str) -> Result<String, Fault> {
        let mac = self.engine.keyring()?.mac(&message(purpose, text));
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        Ok(format!("{}.{}", encode(text.as_bytes()), encode(&mac)))
    }

    /// Returns the text that was sealed for a purpose; nothing if the seal is broken.
    pub fn open(&self, purpose: &str, sealed: &str) -> Result<Option<String>, Fault> {
        let keyring = self.engine.keyring()?;
        let opened = || {
            let (text, mac) = sealed.split_once('.')?;
            let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
            let text = String::from_utf8(decode(text)?).ok()?;
            let expected = keyring.mac(&message(purpose, &text));
            is_same(&expected, &decode(mac)?).then_some(text)
        };
        Ok(opened())
    }
}

fn message(purpose: &str, text: &str) -> Vec<u8> {
    // No purpose has a line feed in it, so no two messages meet.
    format!("oauth {purpose}\n{text}").into_bytes()
}

/// Compares in a time that does not tell where the two differ.
fn is_same(one: &[u8], two: &[u8]) -> bool {
    let differing = one.iter().zip(two);
    let differing = differing.fold(0, |bits, (one, two)| bits | (one ^ two));
    one.len() == two.len() && differing == 0
}
