//! The subjects of revocations, on the wire.

use asyncgate_api as api;
use asyncgate_core::{
    admission::{Subject, SubjectKind},
    hex,
};
use uuid::Uuid;

use super::hex64;
use crate::Fault;

const WARRANT_PREFIX: &str = "tnu_wrt_";

/// Finds the kind with a name.
pub(super) fn kind(text: &str) -> Result<SubjectKind, Fault> {
    text.parse()
        .map_err(|error| Fault::bad_request(format!("{error}")).with("field", "kind"))
}

/// Reads a subject, which is named by its hash or by the value that is hashed.
pub(super) fn read(given: &api::SubjectInput) -> Result<Subject, Fault> {
    let kind = kind(&given.kind)?;
    match (&given.hash, &given.id, &given.key) {
        (Some(hash), None, None) => Ok(Subject {
            kind,
            hash: hex64("hash", hash)?,
        }),
        (None, Some(id), None) if !kind.is_key() => Ok(Subject::warrant(&warrant_id(id)?)),
        (None, None, Some(key)) if kind.is_key() => Ok(Subject::key(kind, &hex64("key", key)?)),
        _ => Err(Fault::bad_request(
            "a subject has a hash, or a warrant_id its id, or a key its key, and nothing else",
        )
        .with("field", "subject")),
    }
}

fn warrant_id(text: &str) -> Result<[u8; 16], Fault> {
    let bare = text.strip_prefix(WARRANT_PREFIX);
    let id = match bare {
        Some(digits) => hex::decode(digits),
        None if text.len() == 32 => hex::decode(text),
        None if text.len() == 36 => Uuid::try_parse(text).ok().map(Uuid::into_bytes),
        None => None,
    };
    id.ok_or_else(|| {
        let message = "id must be a UUID, 32 lower-case hexadecimal digits, or tnu_wrt_ and those";
        Fault::bad_request(message).with("field", "id")
    })
}

/// Writes a subject for the wire.
pub(super) fn show(subject: Subject) -> api::Subject {
    api::Subject {
        kind: subject.kind.as_str().to_owned(),
        hash: hex::encode(&subject.hash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_can_be_named_in_four_ways() {
        let id = "0190a0b0c0d0e0f00102030405060708";
        let uuid = "0190a0b0-c0d0-e0f0-0102-030405060708";
        let given = |kind: &str, field: &str, value: &str| api::SubjectInput {
            kind: kind.to_owned(),
            hash: (field == "hash").then(|| value.to_owned()),
            id: (field == "id").then(|| value.to_owned()),
            key: (field == "key").then(|| value.to_owned()),
        };
        let by_id = read(&given("warrant_id", "id", id)).unwrap();
        for (field, value) in [
            ("id", uuid.to_owned()),
            ("id", format!("tnu_wrt_{id}")),
            ("hash", show(by_id).hash),
        ] {
            assert_eq!(read(&given("warrant_id", field, &value)).unwrap(), by_id);
        }
        let key = "ab".repeat(32);
        assert!(read(&given("issuer_key", "key", &key)).is_ok());
        for (kind, field, value) in [
            ("issuer_key", "id", id),
            ("warrant_id", "key", key.as_str()),
            ("warrant_id", "id", "tnu_wrt_0190"),
            ("warrant_id", "id", "0190A0B0C0D0E0F00102030405060708"),
            ("holder_key", "key", "ab"),
            ("warrant_id", "none", ""),
            ("key", "hash", key.as_str()),
        ] {
            assert!(read(&given(kind, field, value)).is_err(), "{kind} {field}");
        }
        let both = api::SubjectInput {
            id: Some(id.to_owned()),
            ..given("warrant_id", "hash", &key)
        };
        assert!(read(&both).is_err());
    }
}
