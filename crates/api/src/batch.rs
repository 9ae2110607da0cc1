//! Calls with many items, each of which is read and answered alone.

use std::{borrow::Cow, fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeOwned, SeqAccess},
    ser,
};
use serde_json::value::RawValue;

use crate::{Code, Misread, bounds::MAX_BATCH, decode};

/// The items of a call, in order and at most `MAX`. One that cannot be read does not stop the others: it stands in its
/// place with what is wrong.
#[derive(Debug, Clone)]
pub struct Batch<T, const MAX: usize = MAX_BATCH>(pub Vec<Result<T, Misread>>);

impl<T, const MAX: usize> Batch<T, MAX> {
    /// Returns the number of items, those included that cannot be read.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the items that could be read.
    pub fn readable(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|item| item.as_ref().ok())
    }
}

impl<T, const MAX: usize> Default for Batch<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> From<Vec<T>> for Batch<T, MAX> {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<T, const MAX: usize> FromIterator<T> for Batch<T, MAX> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().map(Ok).collect())
    }
}

impl<T: Serialize, const MAX: usize> Serialize for Batch<T, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let items: Result<Vec<&T>, _> = self.0.iter().map(Result::as_ref).collect();
        items
            .map_err(|misread| ser::Error::custom(&misread.message))?
            .serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned, const MAX: usize> Deserialize<'de> for Batch<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: DeserializeOwned, const MAX: usize> de::Visitor<'de> for Items<T, MAX> {
    type Value = Batch<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Box<RawValue>>()? {
            // Items that are read take far more memory than they may have in the body.
            if items.len() == MAX {
                let message = format!("there must be at most {MAX} entries");
                return Err(de::Error::custom(message));
            }
            items.push(decode(item.get().as_bytes()));
        }
        Ok(Batch(items))
    }
}

impl<T: JsonSchema, const MAX: usize> JsonSchema for Batch<T, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("BatchOf{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "minItems": 1, "maxItems": MAX })
    }
}

/// The error of one item of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// The error code.
    pub code: Code,
    /// One sentence about what to do.
    pub message: String,
    /// The field that is wrong, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The seconds after which trying this item again makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u32>,
    /// The message that already has the idem_key, if that is the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msg_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckBatchInput, AckInput, SendBatchInput};

    #[test]
    fn an_item_that_cannot_be_read_says_why_and_leaves_the_others() {
        let good = r#"{"topic": "t", "idem_key": "k", "payload_b64": "aGk="}"#;
        for (bad, field, message) in [
            ("7", None, "must be a JSON object"),
            (r#"["t", "k"]"#, None, "must be a JSON object"),
            ("null", None, "must be a JSON object"),
            (r#"{"topic": "t"}"#, None, "missing field `idem_key`"),
            (
                r#"{"topic": 7, "idem_key": "k"}"#,
                Some("topic"),
                "topic: invalid type",
            ),
            (
                r#"{"topic": "t", "color": 1}"#,
                Some("color"),
                "unknown field `color`",
            ),
            (
                r#"{"topic": "t", "idem_key": "k", "payload_b64": "@"}"#,
                Some("payload_b64"),
                "payload_b64: not base64",
            ),
        ] {
            let json = format!(r#"{{"messages": [{good}, {bad}, {good}]}}"#);
            let batch: SendBatchInput = decode(json.as_bytes()).unwrap();
            assert_eq!(
                (batch.messages.len(), batch.messages.readable().count()),
                (3, 2)
            );
            let misread = batch.messages.0[1].as_ref().unwrap_err();
            assert_eq!(misread.field.as_deref(), field, "{bad}");
            assert!(misread.message.contains(message), "{bad}: {misread}");
        }
    }

    #[test]
    fn what_is_no_list_or_too_long_is_refused_whole() {
        let many = format!(r#"{{"acks": [{}1]}}"#, "1,".repeat(MAX_BATCH));
        for json in [
            r#"{"acks": {}}"#,
            r#"{"acks": "x"}"#,
            r#"{"acks": [}"#,
            &many,
        ] {
            let misread = decode::<AckBatchInput>(json.as_bytes()).unwrap_err();
            assert!(misread.message.starts_with("acks"), "{misread}");
        }
        let most = format!(r#"{{"acks": [{}1]}}"#, "1,".repeat(MAX_BATCH - 1));
        let most: AckBatchInput = decode(most.as_bytes()).unwrap();
        assert_eq!(
            (most.acks.len(), most.acks.readable().count()),
            (MAX_BATCH, 0)
        );
    }

    #[test]
    fn a_batch_is_written_as_a_list_of_its_items() {
        let ack = AckInput {
            msg_id: "m".into(),
            lease: None,
        };
        let batch: Batch<AckInput> = Batch::from(vec![ack]);
        let json = serde_json::to_string(&batch).unwrap();
        assert_eq!(json, r#"[{"msg_id":"m","lease":null}]"#);
        let broken: Batch<AckInput> = Batch(vec![Err(Misread::new("no"))]);
        assert!(serde_json::to_string(&broken).is_err());
    }
}
