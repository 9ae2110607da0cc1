//! Receipt bodies: small JSON objects. Content that does not fit is left out, in the order in which it was
//! added, and the body says where to find it. What proves a result is never left out.

use serde::Serialize;

use super::MAX_BODY_BYTES;
use crate::Json;

/// A receipt body under construction.
#[derive(Debug, Default)]
pub struct Body {
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    json: String,
    may_be_left_out: bool,
}

impl Body {
    /// Creates an empty body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field that is always kept.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Serialize) -> Self {
        if let Ok(json) = serde_json::to_string(&value) {
            self.push(name, json, false);
        }
        self
    }

    /// Adds a field if there is a value. [`finish`](Self::finish) may leave it out to save space.
    #[must_use]
    pub fn with_some(mut self, name: &'static str, value: Option<impl Serialize>) -> Self {
        if let Some(json) = value.and_then(|value| serde_json::to_string(&value).ok()) {
            self.push(name, json, true);
        }
        self
    }

    /// Adds content that a caller sent, byte for byte, if there is any. [`finish`](Self::finish) may
    /// leave it out to save space.
    #[must_use]
    pub fn with_content(mut self, name: &'static str, value: Option<&Json>) -> Self {
        if let Some(value) = value {
            // The sender's own text: a new encoding could change numbers and the order of keys.
            self.push(name, value.text().to_owned(), true);
        }
        self
    }

    /// Adds proof that a caller sent, byte for byte, if there is any. It is always kept: the receipt would
    /// prove nothing without it. Its size is bounded where it comes in.
    #[must_use]
    pub fn with_proof(mut self, name: &'static str, value: Option<&Json>) -> Self {
        if let Some(value) = value {
            self.push(name, value.text().to_owned(), false);
        }
        self
    }

    fn push(&mut self, name: &'static str, json: String, may_be_left_out: bool) {
        self.fields.push(Field {
            name,
            json,
            may_be_left_out,
        });
    }

    /// Returns the body. While it is larger than [`MAX_BODY_BYTES`], the content that was added first is left
    /// out, and the field `how_to_retrieve` tells where to find it.
    pub fn finish(mut self, how_to_retrieve: impl FnOnce() -> String) -> Json {
        if self.len() > MAX_BODY_BYTES {
            // The hint is added first, so that its own size counts when content is left out.
            self = self.with("how_to_retrieve", how_to_retrieve());
            // It ends even if required fields alone are too large; their sizes are bounded elsewhere.
            while self.len() > MAX_BODY_BYTES && self.leave_out_first() {}
        }
        Json::from_text(self.text()).unwrap_or_else(Json::null)
    }

    fn leave_out_first(&mut self) -> bool {
        let first = self.fields.iter().position(|field| field.may_be_left_out);
        if let Some(n) = first {
            self.fields.remove(n);
        }
        first.is_some()
    }

    /// Returns the number of bytes that `text` will write, without writing them.
    fn len(&self) -> usize {
        let fields: usize = self
            .fields
            .iter()
            // Two quotes, a colon, and a comma or the closing brace; the 1 below is the opening brace.
            .map(|f| f.name.len() + f.json.len() + 4)
            .sum();
        fields + 1
    }

    fn text(&self) -> String {
        let mut text = String::with_capacity(self.len() + 1);
        text.push('{');
        for (n, field) in self.fields.iter().enumerate() {
            if n > 0 {
                text.push(',');
            }
            text.push('"');
            text.push_str(field.name);
            text.push_str("\":");
            text.push_str(&field.json);
        }
        text.push('}');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(size: usize) -> Json {
        Json::from_text(format!("\"{}\"", "x".repeat(size - 2))).unwrap()
    }

    #[test]
    fn content_that_fits_is_kept_as_it_was_sent() {
        let content = Json::from_text("{\"b\": 1.0, \"a\":2}".to_owned()).unwrap();
        let body = Body::new()
            .with("status", "succeeded")
            .with_content("result_payload", Some(&content))
            .finish(String::new);
        assert_eq!(
            body.text(),
            "{\"status\":\"succeeded\",\"result_payload\":{\"b\": 1.0, \"a\":2}}"
        );
    }

    #[test]
    fn a_body_is_exactly_at_most_64_kib() {
        let overhead = "{\"c\":}".len();
        for (size, kept) in [
            (MAX_BODY_BYTES - overhead, true),
            (MAX_BODY_BYTES - overhead + 1, false),
        ] {
            let body = Body::new()
                .with_content("c", Some(&text_of(size)))
                .finish(|| "GET /v1/tasks/1".to_owned());
            assert!(body.len() <= MAX_BODY_BYTES);
            assert_eq!(body.text().contains("xxxx"), kept, "{size}");
            assert_eq!(body.text().contains("how_to_retrieve"), !kept);
        }
    }

    #[test]
    fn content_leaves_in_the_order_in_which_it_was_added_and_proof_never() {
        let body = Body::new()
            .with_content("first", Some(&text_of(100)))
            .with_content("second", Some(&text_of(MAX_BODY_BYTES)))
            .with_content("third", Some(&text_of(100)))
            .with_proof("proof", Some(&text_of(1_000)))
            .finish(|| "there".to_owned());
        let has = |name: &str| body.text().contains(name);
        assert!(!has("first") && !has("second") && has("third") && has("proof"));
        let body = Body::new()
            .with_content("content", Some(&text_of(100)))
            .with_proof("proof", Some(&text_of(MAX_BODY_BYTES)))
            .finish(|| "there".to_owned());
        assert!(body.text().contains("proof") && !body.text().contains("content"));
    }
}
