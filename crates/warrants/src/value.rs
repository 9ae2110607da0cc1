//! Values: the arguments of tools, and the values that constraints compare them with.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::cbor::{Head, Malformed, Reader, Writer};

/// The deepest allowed nesting of values.
const DEPTH: usize = 32;
/// The longest text in a constraint.
pub(crate) const TEXT: usize = 4 * 1024;

/// A value. A whole number and a fraction are never equal, as in Tenuo.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

impl Value {
    pub fn as_text(&self) -> Option<&str> {
        let Self::Text(text) = self else {
            return None;
        };
        Some(text)
    }

    pub fn as_list(&self) -> Option<&[Self]> {
        let Self::List(list) = self else {
            return None;
        };
        Some(list)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "ranges are of floating point numbers by definition"
    )]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// Converts JSON. Its parser has already bounded the nesting.
    pub fn from_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                // NaN equals nothing and is in no range, so such a number is never allowed by accident.
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(text.clone()),
            Json::Array(list) => Self::List(list.iter().map(Self::from_json).collect()),
            Json::Object(object) => {
                let pairs = object.iter();
                Self::Object(
                    pairs
                        .map(|(key, value)| (key.clone(), Self::from_json(value)))
                        .collect(),
                )
            }
        }
    }

    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::read_at(reader, 0)
    }

    fn read_at(reader: &mut Reader<'_>, depth: usize) -> Result<Self, Malformed> {
        if depth > DEPTH {
            return Err(Malformed("a value nests too deep"));
        }
        let out_of_range = Malformed("an integer does not fit 64 bits");
        Ok(match reader.head()? {
            Head::Null => Self::Null,
            Head::Bool(flag) => Self::Bool(flag),
            Head::Unsigned(number) => {
                Self::Integer(i64::try_from(number).map_err(|_| out_of_range)?)
            }
            Head::Negative(number) => {
                // CBOR stores a negative number n as -1 - n, which is the complement of n.
                Self::Integer(!i64::try_from(number).map_err(|_| out_of_range)?)
            }
            Head::Float(number) if number.is_finite() => Self::Float(number),
            Head::Float(_) => return Err(Malformed("a number is not finite")),
            Head::Text(length) if length > TEXT => return Err(Malformed("a text is too long")),
            Head::Text(length) => Self::Text(reader.text_of(length)?.to_owned()),
            Head::Bytes(_) => return Err(Malformed("bytes are no value of an argument")),
            Head::Array(length) => {
                let items = (0..length).map(|_| Self::read_at(reader, depth + 1));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Head::Map(pairs) => {
                let mut object = BTreeMap::new();
                for _ in 0..pairs {
                    let key = reader.text()?.to_owned();
                    let value = Self::read_at(reader, depth + 1)?;
                    // Readers differ in which of two equal keys counts.
                    if object.insert(key, value).is_some() {
                        return Err(Malformed("a key stands twice in a map"));
                    }
                }
                Self::Object(object)
            }
        })
    }

    pub fn write(&self, writer: &mut Writer) {
        match self {
            Self::Null => writer.null(),
            Self::Bool(flag) => writer.bool(*flag),
            Self::Integer(number) => writer.integer(*number),
            Self::Float(number) => writer.float(*number),
            Self::Text(text) => writer.text(text),
            Self::List(list) => {
                writer.array(list.len());
                list.iter().for_each(|item| item.write(writer));
            }
            Self::Object(object) => {
                writer.map(object.len());
                for (key, value) in object {
                    writer.text(key);
                    value.write(writer);
                }
            }
        }
    }
}
