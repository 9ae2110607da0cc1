//! Reading of inputs that come as JSON.

use serde::de::DeserializeOwned;

use crate::{Method, Operation};

const NO_OBJECT: &str = "the input must be a JSON object";

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
    decode_with(bytes, explain::<T>)
}

/// Reads the input of an operation.
///
/// # Errors
/// An input that is no JSON object, or has not the fields of the operation.
pub fn decode_for<O: Operation>(bytes: &[u8]) -> Result<O::Input, Misread> {
    decode_with(bytes, O::explain)
}

type Explain = fn(&[u8], Option<serde_json::Error>) -> Misread;

fn decode_with<T: DeserializeOwned>(bytes: &[u8], explain: Explain) -> Result<T, Misread> {
    // serde would also read a struct from an array, field by field.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(Misread::new(NO_OBJECT));
    }
    // To check all bytes at once is cheaper than string by string.
    let read = str::from_utf8(bytes).ok().map(serde_json::from_str);
    match read {
        Some(Ok(input)) => Ok(input),
        Some(Err(error)) => Err(explain(bytes, Some(error))),
        None => Err(explain(bytes, None)),
    }
}

/// Finds the field that is wrong, for an error that is known or will be found. It reads the input once more, so that good
/// input does not pay for keeping track of its fields.
#[cold]
pub(crate) fn explain<T: DeserializeOwned>(
    bytes: &[u8],
    known: Option<serde_json::Error>,
) -> Misread {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Err(found) => {
            let path = found.path().to_string();
            told(&path, &known.unwrap_or_else(|| found.into_inner()))
        }
        // Something behind the object is wrong.
        Ok(_) => match known.or_else(|| json.end().err()) {
            Some(error) => told(".", &error),
            None => Misread::new("the input is not UTF-8"),
        },
    }
}

/// Returns what reads inputs in a query string. An operation that has a body takes none there, and none is compiled for it.
pub(crate) const fn form_reader<T: DeserializeOwned>(
    method: Method,
) -> fn(&str) -> Result<T, Misread> {
    match method.has_body() {
        true => |_| Err(Misread::new(NO_OBJECT)),
        false => {
            |text| serde_urlencoded::from_str(text).map_err(|error| Misread::new(error.to_string()))
        }
    }
}

fn told(path: &str, error: &serde_json::Error) -> Misread {
    match path {
        "." => Misread::new(error.to_string()),
        field => Misread {
            message: format!("{field}: {error}"),
            field: Some(field.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wish {
        name: String,
        #[serde(default)]
        parts: Vec<Part>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        count: u32,
    }

    #[test]
    fn an_error_names_the_field_and_the_place() {
        for (bytes, field) in [
            (&br#"{"name":1}"#[..], Some("name")),
            (br#"{}"#, None),
            (
                br#"{"name":"a","parts":[{"count":1},{"count":-1}]}"#,
                Some("parts[1].count"),
            ),
            (br#"{"name":"a","parts":[{}]}"#, Some("parts[0]")),
            (br#"{"name":"a","other":1}"#, Some("other")),
            (br#"{"name":"a""#, Some("?")),
            (br#"{"name":"a"} x"#, None),
            // What is no UTF-8 is told like everything else.
            (b"{\"name\":\"\xff\"}", Some("name")),
            (b"{\"name\":1,\"other\":\"\xff\"}", Some("name")),
            (b"{\"\xff\":1}", Some("?")),
            (b"{\"name\":\"a\"} \xff", None),
        ] {
            let shown = String::from_utf8_lossy(bytes);
            let misread = decode::<Wish>(bytes).unwrap_err();
            let error = serde_json::from_slice::<Wish>(bytes).unwrap_err();
            assert_eq!(misread.field.as_deref(), field, "{shown}");
            let path = field.map(|field| format!("{field}: ")).unwrap_or_default();
            assert_eq!(misread.message, format!("{path}{error}"), "{shown}");
        }
    }
}
