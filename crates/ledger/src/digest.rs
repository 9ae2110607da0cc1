//! The checks on one receipt alone: its values are well formed, its hash is right, and the link it
//! must have after a given one.
//!
//! Invariant: nothing here depends on other receipts except for the link before, so that receipts can
//! be digested in parallel.

use std::{str::FromStr, sync::Arc};

use asyncgate_core::{
    Head, Json, LeaseId, Link, Principal, Receipt, ReceiptId, ReceiptType, Seq, TaskId, TenantId,
    Timestamp, hex, json,
    receipt::{MAX_BODY_BYTES, MAX_PARENTS},
};
use serde_json::value::RawValue;

use crate::{
    Break, Kind, PublicKey,
    line::{Line, LinePrincipal, Text},
    seal::SignedBody,
    time,
};

/// The deepest nesting of a body: it holds values that callers sent, one level deeper.
const MAX_BODY_DEPTH: usize = json::MAX_DEPTH + 1;

/// A receipt that is sound on its own.
#[derive(Debug)]
pub(crate) struct Digest {
    pub seq: Seq,
    pub id: ReceiptId,
    pub receipt_type: ReceiptType,
    pub created_at: Timestamp,
    pub task_id: Option<TaskId>,
    pub lease_id: Option<LeaseId>,
    pub parents: Vec<ReceiptId>,
    /// The link before it, as the caller stated it.
    pub follows: Link,
    /// The link it must have after that one.
    pub link: Link,
    /// The link it claims.
    pub claimed: Link,
    /// The key of the logical receipt, if it may stand in a ledger only once.
    pub key: Option<u128>,
    /// The signed head that it records, and the key that signed it.
    pub signed: Option<(Head, PublicKey)>,
}

/// Digests the receipts of one tenant.
#[derive(Debug)]
pub(crate) struct Digester {
    tenant: TenantId,
    tenant_text: String,
    /// The instance of the last receipt. Most receipts are from the same instance, so they share it.
    instance: Arc<str>,
}

impl Digester {
    pub(crate) fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            tenant_text: tenant.to_string(),
            instance: Arc::from(""),
        }
    }

    /// Checks a receipt that follows one with the link `follows`.
    pub(crate) fn digest(&mut self, line: &Line<'_>, follows: Link) -> Result<Digest, Break> {
        self.look(line, follows)
            .map_err(|found| found.in_receipt(line.seq))
    }

    fn look(&mut self, line: &Line<'_>, follows: Link) -> Result<Digest, Break> {
        if line.tenant_id.as_str() != self.tenant_text {
            let message = format!(
                "it belongs to tenant {:?}, but the ledger is that of {}",
                line.tenant_id.as_str(),
                self.tenant_text
            );
            return Err(Break::new(Kind::Tenant, message));
        }
        // A field outside the statement could be changed without breaking a link.
        if line.schedule_id.is_some() {
            let message = "it names a schedule, which is no part of what its links are made over";
            return Err(Break::new(Kind::Malformed, message));
        }
        let receipt = self.receipt(line)?;
        if receipt.id.seq() != line.seq {
            let message = format!(
                "its id {} carries place {}, not {}",
                receipt.id,
                receipt.id.seq(),
                line.seq
            );
            return Err(Break::new(Kind::MisplacedId, message));
        }
        let claimed = link("link", line.link.as_str())?;
        let hash = receipt.hash();
        if hash != line.hash.as_str() {
            let message = format!(
                "it says something else than what was hashed: its hash is {:?}, but it must be {hash}",
                line.hash.as_str()
            );
            return Err(Break::new(Kind::Hash, message));
        }
        Ok(Digest {
            seq: line.seq,
            id: receipt.id,
            receipt_type: receipt.receipt_type,
            created_at: receipt.created_at,
            task_id: receipt.task_id,
            lease_id: receipt.lease_id,
            follows,
            link: follows.then(self.tenant, &receipt),
            claimed,
            key: key(&receipt),
            signed: self.signed(&receipt)?,
            parents: receipt.parents,
        })
    }

    fn receipt(&mut self, line: &Line<'_>) -> Result<Receipt, Break> {
        let type_name = line.receipt_type.as_str();
        let receipt_type = ReceiptType::parse(type_name).ok_or_else(|| {
            Break::new(
                Kind::UnknownType,
                format!("nobody knows the type {type_name:?}"),
            )
        })?;
        if line.parents.len() > MAX_PARENTS {
            let message = format!(
                "it has {} parents, more than {MAX_PARENTS}",
                line.parents.len()
            );
            return Err(Break::new(Kind::TooManyParents, message));
        }
        let parents = line.parents.iter().map(|parent| id("a parent", parent));
        Ok(Receipt {
            id: id("receipt_id", &line.receipt_id)?,
            receipt_type,
            created_at: created_at(line.created_at.as_str())?,
            from: principal("from", &line.from)?,
            to: principal("to", &line.to)?,
            task_id: optional("task_id", line.task_id.as_ref())?,
            lease_id: optional("lease_id", line.lease_id.as_ref())?,
            parents: parents.collect::<Result<_, _>>()?,
            body: body(line.body)?,
            instance: self.instance(line.asyncgate_instance.as_str()),
        })
    }

    fn instance(&mut self, name: &str) -> Arc<str> {
        if *self.instance != *name {
            self.instance = Arc::from(name);
        }
        self.instance.clone()
    }

    fn signed(&self, receipt: &Receipt) -> Result<Option<(Head, PublicKey)>, Break> {
        if receipt.receipt_type != ReceiptType::LedgerSigned {
            return Ok(None);
        }
        let body: SignedBody = serde_json::from_str(receipt.body.text()).map_err(|error| {
            let reason = crate::blocks::reason(&error);
            Break::new(
                Kind::Malformed,
                format!("its body is no signed head: {reason}"),
            )
        })?;
        body.open(self.tenant).map(Some)
    }
}

/// Returns the link that a line claims, or the start of all links if it claims none: that line is
/// then reported as broken itself.
pub(crate) fn claimed_link(line: &[u8]) -> Link {
    #[derive(serde::Deserialize)]
    struct Claim<'a> {
        #[serde(borrow)]
        link: Text<'a>,
    }
    serde_json::from_slice::<Claim<'_>>(line)
        .ok()
        .and_then(|claim| link("link", claim.link.as_str()).ok())
        .unwrap_or_default()
}

/// Reads a link, in the one form in which it is written.
pub(crate) fn link(name: &str, text: &str) -> Result<Link, Break> {
    text.strip_prefix("b3:")
        .and_then(hex::decode)
        .map(Link::from_bytes)
        .ok_or_else(|| {
            let message =
                format!("{name} must be b3: and 64 lower-case hexadecimal digits, not {text:?}");
            Break::new(Kind::Malformed, message)
        })
}

/// Reads an id, in the one form in which it is written.
fn id<T: FromStr>(name: &str, text: &Text<'_>) -> Result<T, Break> {
    let text = text.as_str();
    Some(text)
        // The parser also accepts other forms of UUIDs, which must not be taken for the same text.
        .filter(|text| text.len() == 36 && is_lower_case(text))
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| {
            let message = format!("{name} must be a UUID in lower case, not {text:?}");
            Break::new(Kind::Malformed, message)
        })
}

fn optional<T: FromStr>(name: &str, text: Option<&Text<'_>>) -> Result<Option<T>, Break> {
    text.map(|text| id(name, text)).transpose()
}

fn is_lower_case(text: &str) -> bool {
    !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn created_at(text: &str) -> Result<Timestamp, Break> {
    time::parse(text).ok_or_else(|| {
        let message = format!("created_at must be like 2026-01-05T11:00:00.123Z, not {text:?}");
        Break::new(Kind::Time, message)
    })
}

fn principal(name: &str, who: &LinePrincipal<'_>) -> Result<Principal, Break> {
    let kind = who.kind.as_str().parse().map_err(|_| {
        let message = format!("{name} has the unknown kind {:?}", who.kind.as_str());
        Break::new(Kind::Malformed, message)
    })?;
    Ok(Principal {
        kind,
        id: who.id.as_str().into(),
        instance_id: who.instance_id.as_ref().map(|id| id.as_str().into()),
    })
}

fn body(raw: &RawValue) -> Result<Json, Break> {
    let text = raw.get();
    if text.len() > MAX_BODY_BYTES {
        let message = format!(
            "its body has {} bytes, more than {MAX_BODY_BYTES}",
            text.len()
        );
        return Err(Break::new(Kind::Body, message));
    }
    // Canonical bytes are made by recursion into the value, so its depth must be bounded before.
    Json::new(raw.to_owned()).or_else(|_| {
        Some(text)
            .filter(|text| depth(text) <= MAX_BODY_DEPTH)
            .and_then(|text| Json::from_text(text.to_owned()))
            .ok_or_else(|| {
                let message = format!("its body is nested more than {MAX_BODY_DEPTH} levels deep");
                Break::new(Kind::Body, message)
            })
    })
}

/// Returns the deepest nesting of arrays and objects in a well-formed text.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Returns the key of receipts that are written once, however often they are sent: acceptances, and
/// the ends that a worker reports.
fn key(receipt: &Receipt) -> Option<u128> {
    let once = matches!(
        receipt.receipt_type,
        ReceiptType::TaskAccepted | ReceiptType::TaskCompleted | ReceiptType::TaskFailed
    );
    // 128 of the 256 bits are enough to tell receipts apart, and halve the memory of a large ledger.
    let key = once.then(|| receipt.key())?;
    hex::decode(key.get(..32)?).map(u128::from_be_bytes)
}
