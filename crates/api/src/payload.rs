//! Bytes that JSON carries as base64.

use std::{borrow::Cow, fmt};

use base64::{
    alphabet,
    display::Base64Display,
    engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The standard alphabet. Padding is written, but not required.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The content of a message: any bytes. In JSON it is base64; protocols that carry bytes send them
/// unencoded.
///
/// Its `Debug` shows the size only, so that no content reaches a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload(pub Bytes);

impl Payload {
    /// Returns the bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes base64, or returns what is wrong with it.
    // Inlined, because this crate is built for size and a payload can be large.
    #[inline]
    pub fn from_base64(text: &str) -> Result<Self, String> {
        match BASE64.decode(text) {
            Ok(bytes) => Ok(Self(bytes.into())),
            Err(error) => Err(format!("not base64: {error}")),
        }
    }

    /// Encodes the bytes in base64.
    #[inline]
    pub fn to_base64(&self) -> String {
        BASE64.encode(&self.0)
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Written straight into the output: a payload can be a MiB and must not be copied first.
        serializer.collect_str(&Base64Display::new(&self.0, &BASE64))
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Visitor)
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Payload, E> {
        Payload::from_base64(text).map_err(E::custom)
    }
}

impl JsonSchema for Payload {
    fn schema_name() -> Cow<'static, str> {
        "Payload".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "contentEncoding": "base64" })
    }
}

/// The content of a message that is text. It is apart from other texts so that its `Debug` shows the size
/// only, like that of [`Payload`].
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Text(pub String);

impl From<Text> for Payload {
    fn from(text: Text) -> Self {
        text.0.into_bytes().into()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_json_and_never_show_in_debug() {
        for (bytes, text) in [
            (&b""[..], "\"\""),
            (b"a", "\"YQ==\""),
            (&[0, 255, 62, 63], "\"AP8+Pw==\""),
        ] {
            let payload = Payload::from(bytes.to_vec());
            assert_eq!(serde_json::to_string(&payload).unwrap(), text);
            assert_eq!(serde_json::from_str::<Payload>(text).unwrap(), payload);
            assert_eq!(
                format!("{payload:?}"),
                format!("Payload({} bytes)", bytes.len())
            );
        }
    }

    #[test]
    fn padding_may_be_left_out_and_escapes_are_read() {
        for text in [r#""YQ""#, r#""Y\u0051==""#] {
            assert_eq!(serde_json::from_str::<Payload>(text).unwrap().0, "a");
        }
    }

    #[test]
    fn what_is_not_base64_is_named() {
        for text in [r#""@@""#, r#""Y""#, r#""YQ= ""#, r#""_-8=""#, r#""YR==""#] {
            let error = serde_json::from_str::<Payload>(text).unwrap_err();
            assert!(error.to_string().starts_with("not base64"), "{error}");
        }
        let error = serde_json::from_str::<Payload>("7").unwrap_err();
        assert!(error.to_string().contains("a text in base64"), "{error}");
    }
}
