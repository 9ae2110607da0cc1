//! The content of messages: from an argument, and onto a terminal.

use std::io::Read as _;

use anyhow::Context as _;
use asyncgate_client::api::Payload;

use crate::exit::Exit;

/// Returns the content: the argument itself, stdin (`-`) or a file (`@FILE`).
pub fn given(text: &str, base64: bool) -> anyhow::Result<Payload> {
    let bytes = match text.strip_prefix('@') {
        Some(path) => std::fs::read(path).with_context(|| format!("cannot read {path}"))?,
        None if text == "-" => {
            let mut read = Vec::new();
            std::io::stdin()
                .read_to_end(&mut read)
                .context("cannot read stdin")?;
            read
        }
        None => text.as_bytes().to_vec(),
    };
    decoded(bytes, base64)
}

/// Returns the bytes, decoded if they are base64.
pub fn decoded(bytes: Vec<u8>, base64: bool) -> anyhow::Result<Payload> {
    if !base64 {
        return Ok(bytes.into());
    }
    let text = String::from_utf8_lossy(&bytes);
    // Tools like `base64` break long lines and end the last one.
    let text: String = text.split_ascii_whitespace().collect();
    Payload::from_base64(&text).map_err(|why| Exit::usage(format!("the content is {why}")).into())
}

/// Formats the content: as text if it is UTF-8, else as base64.
pub fn shown(payload: &Payload, base64: bool) -> String {
    if base64 {
        return payload.to_base64();
    }
    match std::str::from_utf8(&payload.0) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("base64:{}", payload.to_base64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_is_and_bytes_as_base64() {
        let shown = |bytes: &[u8], base64| shown(&Payload::from(bytes.to_vec()), base64);
        assert_eq!(shown("Grüße".as_bytes(), false), "Grüße");
        assert_eq!(shown(&[0xff, 0xfe], false), "base64://4=");
        assert_eq!(shown(b"a", true), "YQ==");
    }

    #[test]
    fn base64_may_be_wrapped() {
        assert_eq!(given("Y\nQ==\n", true).unwrap().0, "a");
        assert!(given("@@", true).is_err());
        assert_eq!(given("YQ==", false).unwrap().0, "YQ==");
    }
}
