//! One warrant: its envelope, its payload, and the rules for it alone.

use std::{collections::BTreeMap, fmt};

use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha256};

use crate::{
    cbor::{Malformed, Reader},
    constraint::{Budget, ConstraintSet},
};

/// The most bytes of one warrant, and of a chain.
pub(crate) const WARRANT_BYTES: usize = 64 * 1024;
pub(crate) const CHAIN_BYTES: usize = 256 * 1024;
const TOOLS: usize = 256;
const TOOL_BYTES: usize = 256;
const EXTENSIONS: usize = 64;
const EXTENSION_KEY_BYTES: usize = 255;
const EXTENSION_BYTES: usize = 8 * 1024;
const APPROVERS: usize = 64;

/// The bytes with which every signed message of the protocol begins.
pub(crate) const SIGNATURE_CONTEXT: &[u8] = b"tenuo-warrant-v1";

/// The id of a warrant: a UUID, written `tnu_wrt_` and 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WarrantId(pub [u8; 16]);

impl WarrantId {
    /// Returns the digits alone, as holders sign them.
    pub(crate) fn hex(self) -> String {
        base16ct::lower::encode_string(&self.0)
    }
}

impl fmt::Display for WarrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tnu_wrt_{}", self.hex())
    }
}

impl fmt::Debug for WarrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An Ed25519 key.
pub type PublicKey = [u8; 32];

/// The right that a warrant gives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Grant {
    /// The right to call tools.
    Execution {
        tools: BTreeMap<String, ConstraintSet>,
    },
    /// The right to give others the right to call tools.
    Issuer {
        tools: Vec<String>,
        max_issue_depth: Option<u32>,
        bounds: Option<ConstraintSet>,
    },
}

/// A well-formed warrant. Its signature is not checked yet.
#[derive(Debug, Clone)]
pub(crate) struct Warrant {
    pub id: WarrantId,
    pub grant: Grant,
    pub holder: PublicKey,
    pub issuer: PublicKey,
    pub issued_at: u64,
    pub expires_at: u64,
    pub max_depth: u8,
    pub depth: u32,
    pub parent_hash: Option<[u8; 32]>,
    pub extensions: BTreeMap<String, Vec<u8>>,
    pub clearance: Option<u8>,
    /// True if others must approve a call.
    pub needs_approval: bool,
    payload: Vec<u8>,
    signature: [u8; 64],
}

impl Warrant {
    /// Reads an envelope: `[1, payload, [1, signature]]`.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let start = reader.rest().len();
        reader.tuple(3)?;
        if reader.unsigned()? != 1 {
            return Err(Malformed("the version of the envelope is not 1"));
        }
        // The payload is kept as bytes: the signature and the hash are over exactly these.
        let payload = reader.bytes()?;
        reader.tuple(2)?;
        if reader.unsigned()? != 1 {
            return Err(Malformed("the signature is not Ed25519"));
        }
        let signature = reader.fixed()?;
        if start - reader.rest().len() > WARRANT_BYTES {
            return Err(Malformed("the warrant is too large"));
        }
        Fields::read(payload)?.warrant(payload, signature)
    }

    /// Returns the hash by which a child names this warrant as its parent.
    pub fn payload_hash(&self) -> [u8; 32] {
        Sha256::digest(&self.payload).into()
    }

    /// Returns true if the issuer signed exactly these bytes of the payload.
    pub fn is_genuine(&self) -> bool {
        let message = [SIGNATURE_CONTEXT, &[1], &self.payload].concat();
        signed_by(&self.issuer, &message, &self.signature)
    }
}

/// Returns true if `key` signed `message`. Weak keys and ambiguous signatures, which could fit several
/// messages or keys, are refused.
pub(crate) fn signed_by(key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
    let signature = Signature::from_bytes(signature);
    VerifyingKey::from_bytes(key).is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
}

/// The fields of the payload, before it is known that all are there.
#[derive(Default)]
struct Fields {
    version: Option<u64>,
    id: Option<[u8; 16]>,
    kind: Option<u64>,
    tools: Option<BTreeMap<String, ConstraintSet>>,
    holder: Option<PublicKey>,
    issuer: Option<PublicKey>,
    issued_at: Option<u64>,
    expires_at: Option<u64>,
    max_depth: Option<u8>,
    parent_hash: Option<[u8; 32]>,
    extensions: BTreeMap<String, Vec<u8>>,
    issuable_tools: Option<Vec<String>>,
    max_issue_depth: Option<u32>,
    bounds: Option<ConstraintSet>,
    approvers: Vec<PublicKey>,
    min_approvals: Option<u32>,
    clearance: Option<u8>,
    depth: u32,
}

impl Fields {
    fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let (mut fields, mut budget) = (Self::default(), Budget::default());
        // One bit for each field that was read, because a field must not stand twice.
        let mut seen = 0_u32;
        for _ in 0..reader.map()? {
            let key = reader.unsigned()?;
            let bit = u32::try_from(key)
                .ok()
                .and_then(|key| 1_u32.checked_shl(key));
            let bit = bit.ok_or(Malformed("the payload has an unknown field"))?;
            if seen & bit != 0 {
                return Err(Malformed("a field stands twice in the payload"));
            }
            seen |= bit;
            fields.read_field(key, &mut reader, &mut budget)?;
        }
        reader.finish()?;
        Ok(fields)
    }

    fn read_field(
        &mut self,
        key: u64,
        reader: &mut Reader<'_>,
        budget: &mut Budget,
    ) -> Result<(), Malformed> {
        // A field that may be absent may also be present with null.
        if matches!(key, 9 | 11 | 13..=17) && reader.null()? {
            return Ok(());
        }
        match key {
            0 => self.version = Some(reader.unsigned()?),
            1 => self.id = Some(reader.fixed()?),
            2 => self.kind = Some(reader.unsigned()?),
            3 => self.tools = Some(tools(reader, budget)?),
            4 => self.holder = Some(public_key(reader)?),
            5 => self.issuer = Some(public_key(reader)?),
            6 => self.issued_at = Some(time(reader)?),
            7 => self.expires_at = Some(time(reader)?),
            8 => self.max_depth = Some(reader.small()?),
            9 => self.parent_hash = Some(parent_hash(reader)?),
            10 => self.extensions = extensions(reader)?,
            11 => self.issuable_tools = Some(names(reader)?),
            13 => self.max_issue_depth = Some(reader.small()?),
            14 => self.bounds = Some(ConstraintSet::read(reader, budget)?),
            15 => self.approvers = approvers(reader)?,
            16 => self.min_approvals = Some(reader.small()?),
            17 => self.clearance = Some(reader.small()?),
            18 => self.depth = reader.small()?,
            // An unknown field may restrict the warrant, so it cannot be ignored.
            _ => return Err(Malformed("the payload has an unknown field")),
        }
        Ok(())
    }

    fn warrant(self, payload: &[u8], signature: [u8; 64]) -> Result<Warrant, Malformed> {
        const MISSING: Malformed = Malformed("the payload lacks a field");
        if self.version.ok_or(MISSING)? != 1 {
            return Err(Malformed("the version of the payload is not 1"));
        }
        let tools = self.tools.ok_or(MISSING)?;
        let max_depth = self.max_depth.ok_or(MISSING)?;
        let too_deep = |depth| depth > u32::from(max_depth);
        let grant = match (self.kind.ok_or(MISSING)?, self.issuable_tools) {
            (0, None) if self.max_issue_depth.is_none() => Grant::Execution { tools },
            (1, Some(names)) if tools.is_empty() && !names.is_empty() => Grant::Issuer {
                tools: names,
                max_issue_depth: self.max_issue_depth,
                bounds: self.bounds,
            },
            (0 | 1, _) => return Err(Malformed("the fields are not those of its type")),
            _ => return Err(Malformed("the type is unknown")),
        };
        if self.max_issue_depth.is_some_and(too_deep) {
            return Err(Malformed("max_issue_depth is more than max_depth"));
        }
        let (issued_at, expires_at) = (
            self.issued_at.ok_or(MISSING)?,
            self.expires_at.ok_or(MISSING)?,
        );
        // A warrant without any valid moment is a mistake of its issuer.
        if expires_at <= issued_at {
            return Err(Malformed("it expires before it is issued"));
        }
        Ok(Warrant {
            id: WarrantId(self.id.ok_or(MISSING)?),
            grant,
            holder: self.holder.ok_or(MISSING)?,
            issuer: self.issuer.ok_or(MISSING)?,
            issued_at,
            expires_at,
            max_depth,
            depth: self.depth,
            parent_hash: self.parent_hash,
            needs_approval: !self.approvers.is_empty()
                || self.min_approvals.is_some_and(|least| least > 0)
                || self.extensions.contains_key("tenuo.approval_gates"),
            extensions: self.extensions,
            clearance: self.clearance,
            payload: payload.to_vec(),
            signature,
        })
    }
}

fn public_key(reader: &mut Reader<'_>) -> Result<PublicKey, Malformed> {
    reader.tuple(2)?;
    if reader.unsigned()? != 1 {
        return Err(Malformed("a key is not Ed25519"));
    }
    reader.fixed()
}

/// Reads a time that is small enough to add to without overflow.
fn time(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let time = reader.unsigned()?;
    if time > i64::MAX.unsigned_abs() {
        return Err(Malformed("a time is too late"));
    }
    Ok(time)
}

fn parent_hash(reader: &mut Reader<'_>) -> Result<[u8; 32], Malformed> {
    let hash = reader.bytes_or_numbers()?.try_into();
    hash.map_err(|_| Malformed("the parent's hash is not of 32 bytes"))
}

fn name(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let name = reader.text()?;
    if name.len() > TOOL_BYTES {
        return Err(Malformed("the name of a tool is too long"));
    }
    // Names with this prefix are the protocol's own.
    if name.starts_with("tenuo:") {
        return Err(Malformed("the name of a tool is reserved"));
    }
    Ok(name.to_owned())
}

fn tools(
    reader: &mut Reader<'_>,
    budget: &mut Budget,
) -> Result<BTreeMap<String, ConstraintSet>, Malformed> {
    let count = reader.map()?;
    if count > TOOLS {
        return Err(Malformed("there are too many tools"));
    }
    let mut tools = BTreeMap::new();
    for _ in 0..count {
        let name = name(reader)?;
        let set = ConstraintSet::read(reader, budget)?;
        if tools.insert(name, set).is_some() {
            return Err(Malformed("a tool stands twice"));
        }
    }
    Ok(tools)
}

fn names(reader: &mut Reader<'_>) -> Result<Vec<String>, Malformed> {
    let count = reader.array()?;
    if count > TOOLS {
        return Err(Malformed("there are too many tools"));
    }
    (0..count).map(|_| name(reader)).collect()
}

fn approvers(reader: &mut Reader<'_>) -> Result<Vec<PublicKey>, Malformed> {
    let count = reader.array()?;
    if count > APPROVERS {
        return Err(Malformed("there are too many approvers"));
    }
    (0..count).map(|_| public_key(reader)).collect()
}

fn extensions(reader: &mut Reader<'_>) -> Result<BTreeMap<String, Vec<u8>>, Malformed> {
    let count = reader.map()?;
    if count > EXTENSIONS {
        return Err(Malformed("there are too many extensions"));
    }
    let mut extensions = BTreeMap::new();
    for _ in 0..count {
        let key = reader.text()?;
        let value = reader.bytes_or_numbers()?;
        if key.len() > EXTENSION_KEY_BYTES || value.len() > EXTENSION_BYTES {
            return Err(Malformed("an extension is too large"));
        }
        if extensions.insert(key.to_owned(), value).is_some() {
            return Err(Malformed("an extension stands twice"));
        }
    }
    Ok(extensions)
}
