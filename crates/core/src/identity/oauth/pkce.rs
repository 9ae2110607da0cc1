//! Proof Key for Code Exchange (RFC 7636): the client that uses a code is the one that asked for it.
//!
//! The client sends a challenge with its request and shows the verifier with the code. The challenge is the SHA-256
//! of the verifier in base64url, which the shell computes.

/// Returns true if a text has the form of a challenge: 32 bytes in base64url.
pub fn is_challenge(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.len() == 43 && text.bytes().all(is_digit)
}

/// Returns true if a text has the form of a verifier: 43 to 128 characters that no encoding touches.
pub fn is_verifier(text: &str) -> bool {
    let is_unreserved =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    (43..=128).contains(&text.len()) && text.bytes().all(is_unreserved)
}
