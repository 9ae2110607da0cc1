//! Reading of inputs that come as JSON.

use serde::de::DeserializeOwned;

/// The reason why an input cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Misread {
    /// One public sentence.
    pub message: String,
    /// The field that is wrong, if it is one.
    pub field: Option<String>,
}

impl Misread {
    /// Says what is wrong with an input as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            field: None,
        }
    }
}

/// Reads an input.
///
/// # Errors
/// An input that is no JSON object, or has not the fields of `T`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Misread> {
    // serde would also read a struct from an array, field by field.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(Misread::new("the input must be a JSON object"));
    }
    // To check all bytes at once is cheaper than string by string.
    let read = match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    };
    read.map_err(|error| explain::<T>(bytes, &error))
}

/// Finds the field that is wrong. It reads the input once more, so that good input does not pay for
/// keeping track of its fields.
fn explain<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Misread {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Err(error) => error.path().to_string(),
        Ok(_) => ".".to_owned(),
    };
    match path.as_str() {
        "." => Misread::new(error.to_string()),
        field => Misread {
            message: format!("{field}: {error}"),
            field: Some(field.to_owned()),
        },
    }
}
