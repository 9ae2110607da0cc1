//! Makes warrants: values that are written as CBOR, and payloads that are signed.

use asyncgate_warrants::WarrantId;
use ed25519_dalek::{Signer, SigningKey};
use sha2::{Digest, Sha256};

use crate::{key, public};

/// A CBOR item.
#[derive(Debug, Clone)]
pub enum Item {
    Int(i64),
    Float(f64),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Bool(bool),
    Null,
}

pub fn text(text: &str) -> Item {
    Item::Text(text.to_owned())
}

pub fn texts(list: &[&str]) -> Item {
    Item::List(list.iter().map(|item| text(item)).collect())
}

pub fn map(pairs: &[(&str, Item)]) -> Item {
    let pairs = pairs.iter();
    Item::Map(
        pairs
            .map(|(key, value)| (text(key), value.clone()))
            .collect(),
    )
}

pub fn numbered(pairs: Vec<(i64, Item)>) -> Item {
    let pairs = pairs.into_iter();
    Item::Map(pairs.map(|(key, value)| (Item::Int(key), value)).collect())
}

impl Item {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Int(number) if *number >= 0 => head(out, 0, number.unsigned_abs()),
            Self::Int(number) => head(out, 1, number.unsigned_abs() - 1),
            Self::Float(number) => {
                out.push(0xfb);
                out.extend(number.to_be_bytes());
            }
            Self::Bytes(bytes) => {
                head(out, 2, bytes.len() as u64);
                out.extend(bytes);
            }
            Self::Text(text) => {
                head(out, 3, text.len() as u64);
                out.extend(text.as_bytes());
            }
            Self::List(items) => {
                head(out, 4, items.len() as u64);
                items.iter().for_each(|item| item.write(out));
            }
            Self::Map(pairs) => {
                head(out, 5, pairs.len() as u64);
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
            Self::Bool(flag) => out.push(if *flag { 0xf5 } else { 0xf4 }),
            Self::Null => out.push(0xf6),
        }
    }
}

fn head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let wide = argument.to_be_bytes();
    let (minor, skip) = match argument {
        0..=23 => return out.push(major << 5 | wide[7]),
        24..=0xff => (24, 7),
        0x100..=0xffff => (25, 6),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 0),
    };
    out.push(major << 5 | minor);
    out.extend(&wide[skip..]);
}

/// A constraint: its type and its value.
pub fn constraint(kind: i64, value: Item) -> Item {
    Item::List(vec![Item::Int(kind), value])
}

pub fn wildcard() -> Item {
    constraint(16, Item::Null)
}

pub fn pattern(pattern: &str) -> Item {
    constraint(2, map(&[("pattern", text(pattern))]))
}

pub fn exact(value: Item) -> Item {
    constraint(1, map(&[("value", value)]))
}

/// The constraints of a tool.
pub fn set(constraints: &[(&str, Item)]) -> Item {
    map(&[("constraints", map(constraints))])
}

/// A warrant to be made. Fields are those of the payload, by their numbers.
#[derive(Debug, Clone)]
pub struct Draft {
    pub fields: Vec<(i64, Item)>,
    signer: SigningKey,
}

fn public_key(seed: u8) -> Item {
    Item::List(vec![Item::Int(1), Item::Bytes(public(seed).to_vec())])
}

impl Draft {
    /// Builds a root, from the trusted key to key 2, that allows to read any file.
    pub fn root() -> Self {
        let fields = vec![
            (0, Item::Int(1)),
            (1, Item::Bytes(vec![0; 16])),
            (2, Item::Int(0)),
            (3, map(&[("read_file", set(&[("path", wildcard())]))])),
            (4, public_key(2)),
            (5, public_key(1)),
            (6, Item::Int(1_704_067_200)),
            (7, Item::Int(1_704_070_800)),
            (8, Item::Int(3)),
            (18, Item::Int(0)),
        ];
        Self {
            fields,
            signer: key(1),
        }
    }

    /// Builds a child of `parent`, which is held by key `from`, for key `from + 1`.
    pub fn child(parent: &[u8], from: u8) -> Self {
        let mut child = Self::root().issuer(from).holder(from + 1);
        child.set(1, Item::Bytes(vec![from; 16]));
        child.set(9, parent_hash(parent));
        child.set(18, Item::Int(i64::from(from) - 1));
        child
    }

    pub fn set(&mut self, key: i64, value: Item) -> &mut Self {
        self.fields.retain(|(known, _)| *known != key);
        self.fields.push((key, value));
        self.fields.sort_by_key(|(key, _)| *key);
        self
    }

    pub fn with(mut self, key: i64, value: Item) -> Self {
        self.set(key, value);
        self
    }

    pub fn without(mut self, key: i64) -> Self {
        self.fields.retain(|(known, _)| *known != key);
        self
    }

    pub fn holder(self, seed: u8) -> Self {
        self.with(4, public_key(seed))
    }

    pub fn issuer(mut self, seed: u8) -> Self {
        self.signer = key(seed);
        self.with(5, public_key(seed))
    }

    /// Allows to read files, with a constraint on the path.
    pub fn path(self, constraint: Item) -> Self {
        self.tools(&[("read_file", set(&[("path", constraint)]))])
    }

    pub fn tools(self, tools: &[(&str, Item)]) -> Self {
        self.with(3, map(tools))
    }

    pub fn extension(self, name: &str, value: Vec<u8>) -> Self {
        self.with(10, map(&[(name, Item::Bytes(value))]))
    }

    pub fn payload(&self) -> Vec<u8> {
        numbered(self.fields.clone()).encode()
    }

    /// Returns the signed warrant.
    pub fn sign(&self) -> Vec<u8> {
        envelope(&self.payload(), &self.signer)
    }
}

pub fn parent_hash(parent: &[u8]) -> Item {
    Item::Bytes(Sha256::digest(payload_of(parent)).to_vec())
}

/// Returns the payload within an envelope.
pub fn payload_of(warrant: &[u8]) -> &[u8] {
    let start = match warrant[2] {
        0x58 => 4,
        0x59 => 5,
        other => panic!("no payload is that long: {other:x}"),
    };
    &warrant[start..warrant.len() - 68]
}

pub fn envelope(payload: &[u8], signer: &SigningKey) -> Vec<u8> {
    let message = [b"tenuo-warrant-v1\x01", payload].concat();
    let signature = signer.sign(&message).to_bytes().to_vec();
    let signature = Item::List(vec![Item::Int(1), Item::Bytes(signature)]);
    Item::List(vec![Item::Int(1), Item::Bytes(payload.to_vec()), signature]).encode()
}

/// Returns the id of drafts with this seed.
pub fn id(seed: u8) -> WarrantId {
    WarrantId([seed; 16])
}
