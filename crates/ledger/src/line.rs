//! A receipt on a line of an export, borrowed from the line.
//!
//! Invariant: a line has the fields of version 1 and no others, the header and the head included. So nothing can be
//! smuggled in beside the statement that the links and the signature cover.

use std::{borrow::Cow, fmt};

use asyncgate_api::{LedgerHead, Principal, PrincipalKind, ReceiptRecord};
use asyncgate_core as core;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use crate::{Break, Kind, blocks::reason};

/// A receipt whose values are not checked yet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line<'a> {
    #[serde(borrow)]
    pub receipt_id: Text<'a>,
    #[serde(borrow)]
    pub receipt_type: Text<'a>,
    #[serde(borrow)]
    pub created_at: Text<'a>,
    #[serde(borrow)]
    pub from: LinePrincipal<'a>,
    #[serde(borrow)]
    pub to: LinePrincipal<'a>,
    #[serde(borrow)]
    pub task_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub lease_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub schedule_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub parents: Vec<Text<'a>>,
    #[serde(borrow)]
    pub body: &'a RawValue,
    #[serde(borrow)]
    pub hash: Text<'a>,
    pub seq: u64,
    #[serde(borrow)]
    pub link: Text<'a>,
    #[serde(borrow)]
    pub asyncgate_instance: Text<'a>,
    #[serde(borrow)]
    pub tenant_id: Text<'a>,
}

/// The head on the last line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadLine {
    tenant_id: String,
    seq: u64,
    link: String,
    open_obligations: u64,
    signed_at: String,
    signed_at_millis: i64,
    // Of a server without a key these are null, but not missing.
    #[serde(deserialize_with = "Option::deserialize")]
    public_key: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    signature: Option<String>,
}

impl From<HeadLine> for LedgerHead {
    fn from(line: HeadLine) -> Self {
        Self {
            tenant_id: line.tenant_id,
            seq: line.seq,
            link: line.link,
            open_obligations: line.open_obligations,
            signed_at: line.signed_at,
            signed_at_millis: line.signed_at_millis,
            public_key: line.public_key,
            signature: line.signature,
        }
    }
}

/// A line after the header.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once and is nearly always the large one"
)]
pub(crate) enum Parsed<'a> {
    Receipt(Line<'a>),
    Head(LedgerHead),
}

impl<'a> Parsed<'a> {
    /// Reads a line, with its line end if it has one: only a file that was cut off has a line without.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, Break> {
        // Nearly all lines are receipts, so that is tried first; its error is kept for the message.
        let error = match std::str::from_utf8(line).map(serde_json::from_str) {
            Ok(Ok(receipt)) => return Ok(Self::Receipt(receipt)),
            Ok(Err(error)) => reason(&error),
            Err(error) => error.to_string(),
        };
        // A head has other required fields than a receipt, so a line cannot be both.
        if let Ok(head) = serde_json::from_slice::<HeadLine>(line) {
            return Ok(Self::Head(head.into()));
        }
        Err(if line.ends_with(b"\n") {
            Break::new(
                Kind::Garbled,
                format!("this is no receipt of version 1: {error}"),
            )
        } else {
            Break::new(
                Kind::Truncated,
                format!("the file was cut off in this line: {error}"),
            )
        })
    }
}

/// A principal on a line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinePrincipal<'a> {
    #[serde(borrow)]
    pub kind: Text<'a>,
    #[serde(borrow)]
    pub id: Text<'a>,
    #[serde(borrow, default)]
    pub instance_id: Option<Text<'a>>,
}

/// A text that is borrowed unless it has escapes.
#[derive(Debug)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Text<'a> {
    fn from(text: &'a String) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

impl<'a> From<&'a ReceiptRecord> for Line<'a> {
    fn from(record: &'a ReceiptRecord) -> Self {
        Self {
            receipt_id: (&record.receipt_id).into(),
            receipt_type: (&record.receipt_type).into(),
            created_at: (&record.created_at).into(),
            from: (&record.from).into(),
            to: (&record.to).into(),
            task_id: record.task_id.as_ref().map(Into::into),
            lease_id: record.lease_id.as_ref().map(Into::into),
            schedule_id: record.schedule_id.as_ref().map(Into::into),
            parents: record.parents.iter().map(Into::into).collect(),
            body: &record.body,
            hash: (&record.hash).into(),
            seq: record.seq,
            link: (&record.link).into(),
            asyncgate_instance: (&record.asyncgate_instance).into(),
            tenant_id: (&record.tenant_id).into(),
        }
    }
}

impl<'a> From<&'a Principal> for LinePrincipal<'a> {
    fn from(principal: &'a Principal) -> Self {
        Self {
            kind: name_of(principal.kind).into(),
            id: (&principal.id).into(),
            instance_id: principal.instance_id.as_ref().map(Into::into),
        }
    }
}

/// Returns the wire name of a kind of principal.
pub(crate) const fn name_of(kind: PrincipalKind) -> &'static str {
    match kind {
        PrincipalKind::Agent => core::PrincipalKind::Agent.as_str(),
        PrincipalKind::Worker => core::PrincipalKind::Worker.as_str(),
        PrincipalKind::Service => core::PrincipalKind::Service.as_str(),
        PrincipalKind::Human => core::PrincipalKind::Human.as_str(),
        PrincipalKind::System => core::PrincipalKind::System.as_str(),
    }
}

impl Line<'_> {
    /// Returns the wire form of the receipt.
    pub(crate) fn to_record(&self) -> Result<ReceiptRecord, Break> {
        let text = |text: &Text<'_>| text.as_str().to_owned();
        Ok(ReceiptRecord {
            receipt_id: text(&self.receipt_id),
            receipt_type: text(&self.receipt_type),
            created_at: text(&self.created_at),
            from: self.from.to_principal()?,
            to: self.to.to_principal()?,
            task_id: self.task_id.as_ref().map(text),
            lease_id: self.lease_id.as_ref().map(text),
            schedule_id: self.schedule_id.as_ref().map(text),
            parents: self.parents.iter().map(text).collect(),
            body: self.body.to_owned(),
            hash: text(&self.hash),
            seq: self.seq,
            link: text(&self.link),
            asyncgate_instance: text(&self.asyncgate_instance),
            tenant_id: text(&self.tenant_id),
            delivered_at: None,
        })
    }
}

impl LinePrincipal<'_> {
    fn to_principal(&self) -> Result<Principal, Break> {
        let kind = self.kind.as_str();
        let kind = serde_json::from_value(kind.into()).map_err(|_| {
            Break::new(
                Kind::Malformed,
                format!("a principal has the unknown kind {kind:?}"),
            )
        })?;
        Ok(Principal {
            kind,
            id: self.id.as_str().to_owned(),
            instance_id: self.instance_id.as_ref().map(|id| id.as_str().to_owned()),
        })
    }
}
