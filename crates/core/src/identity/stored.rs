//! The text in which records are kept. Names are those of the wire, times are milliseconds.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

use super::{ExceptionEffect, Quotas, Role, Scopes, TenantTier};
use crate::{PrincipalKey, RecordId, TenantId, Timestamp};

/// A value with one text, from which it is read back.
pub(super) trait Text: Sized {
    fn to_text(&self) -> String;
    fn from_text(text: &str) -> Option<Self>;
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

impl Text for TenantId {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        parsed(text)
    }
}

impl Text for RecordId {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        parsed(text)
    }
}

impl Text for PrincipalKey {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        // No kind has a slash in its name, but an id may.
        let (kind, id) = text.split_once('/')?;
        Some(Self {
            kind: parsed(kind)?,
            id: id.into(),
        })
    }
}

impl Text for Role {
    fn to_text(&self) -> String {
        self.as_str().to_owned()
    }

    fn from_text(text: &str) -> Option<Self> {
        parsed(text)
    }
}

impl Text for TenantTier {
    fn to_text(&self) -> String {
        self.as_str().to_owned()
    }

    fn from_text(text: &str) -> Option<Self> {
        parsed(text)
    }
}

impl Text for Scopes {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        text.split_ascii_whitespace().map(parsed).collect()
    }
}

impl Text for Quotas {
    fn to_text(&self) -> String {
        let quotas = self.iter();
        let written =
            quotas.map(|(name, quota)| format!("{}={}", name.as_str(), quota.as_number()));
        written.collect::<Vec<_>>().join(" ")
    }

    fn from_text(text: &str) -> Option<Self> {
        text.split_ascii_whitespace()
            .try_fold(Self::default(), |quotas, one| {
                let (name, number) = one.split_once('=')?;
                let name: super::QuotaName = parsed(name)?;
                Some(quotas.with(name, name.read(parsed(number)?).ok()?))
            })
    }
}

impl Text for ExceptionEffect {
    fn to_text(&self) -> String {
        match self {
            Self::Bypass => self.as_str().to_owned(),
            Self::Throttle(quotas) => format!("{} {}", self.as_str(), quotas.to_text()),
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            None if text == Self::Bypass.as_str() => Some(Self::Bypass),
            Some(("throttle", quotas)) => Quotas::from_text(quotas).map(Self::Throttle),
            Some(_) | None => None,
        }
    }
}

fn unread(of: impl Display) -> String {
    format!("{of} cannot be read")
}

/// For fields that are a [`Text`].
pub(super) mod text {
    use super::*;

    pub(crate) fn serialize<T: Text, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.to_text())
    }

    pub(crate) fn deserialize<'de, T: Text, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        T::from_text(&text).ok_or_else(|| D::Error::custom(unread(&text)))
    }
}

/// For fields that may be a [`Text`].
pub(super) mod some_text {
    use super::*;

    pub(crate) fn serialize<T: Text, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&value.to_text()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: Text, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else {
            return Ok(None);
        };
        let read = T::from_text(&text).ok_or_else(|| D::Error::custom(unread(&text)))?;
        Ok(Some(read))
    }
}

/// For times.
pub(super) mod time {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(time.as_millis())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp::from_millis)
    }
}

/// For times that may be absent.
pub(super) mod some_time {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.serialize_some(&time.as_millis()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<i64>::deserialize(from)?.map(Timestamp::from_millis))
    }
}
