//! The encoding of values in columns.
//!
//! Reading fails with an error, never a panic: a file may have been damaged.

use asyncgate_core::{
    InstanceSight, Json, LeaseId, Principal, PrincipalKey, PrincipalKind, ReceiptId, Seq, TaskId,
    Timestamp,
};
use rusqlite::{
    Result, Row,
    types::{FromSqlError, Type},
};

use crate::rows::checksum::{Checksum, Stored};

/// A row's integer key: the tenant's number above, a place in its ledger below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub i64);

/// The bits of a key that hold the place.
pub(crate) const SEQ_BITS: u32 = 44;

impl Key {
    pub(crate) const fn new(tenant: i64, seq: Seq) -> Self {
        Self((tenant << SEQ_BITS) | (seq & ((1 << SEQ_BITS) - 1)) as i64)
    }

    /// Returns the place in the tenant's ledger.
    pub(crate) const fn seq(self) -> Seq {
        (self.0 & ((1 << SEQ_BITS) - 1)) as Seq
    }

    /// Returns the bound behind this key.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the bound behind every key of the tenant.
    pub(crate) const fn end(tenant: i64) -> Self {
        Self((tenant + 1) << SEQ_BITS)
    }
}

/// Encodes a principal without its instance: a letter for the kind, then the id. The server itself,
/// the addressee of every other receipt, is the empty text.
pub(crate) fn principal_key(principal: &PrincipalKey) -> String {
    if principal.kind == PrincipalKind::System && &*principal.id == "asyncgate" {
        return String::new();
    }
    let mut text = String::with_capacity(principal.id.len() + 1);
    text.push(kind_letter(principal.kind));
    text.push_str(&principal.id);
    text
}

/// Encodes a principal with its instance, if it has one, behind a NUL, which no id contains.
pub(crate) fn principal(principal: &Principal) -> String {
    let mut text = principal_key(&principal.key());
    if let Some(instance) = &principal.instance_id {
        text.push('\0');
        text.push_str(instance);
    }
    text
}

pub(crate) fn read_principal(text: &str) -> Option<Principal> {
    let (key, instance_id) = match text.split_once('\0') {
        Some((key, instance)) => (key, Some(instance.into())),
        None => (text, None),
    };
    let mut chars = key.chars();
    let principal = match chars.next() {
        None => Principal::system(),
        Some(letter) => Principal::new(read_kind(letter)?, chars.as_str()),
    };
    Some(Principal {
        instance_id,
        ..principal
    })
}

pub(crate) const fn kind_letter(kind: PrincipalKind) -> char {
    match kind {
        PrincipalKind::Agent => 'a',
        PrincipalKind::Worker => 'w',
        PrincipalKind::Service => 's',
        PrincipalKind::Human => 'h',
        PrincipalKind::System => 'y',
    }
}

pub(crate) fn read_kind(letter: char) -> Option<PrincipalKind> {
    PrincipalKind::ALL
        .into_iter()
        .find(|kind| kind_letter(*kind) == letter)
}

/// Encodes the instances of a principal as JSON: the name and the time of the last sight of each.
pub(crate) fn instances(instances: &[InstanceSight]) -> Option<String> {
    let pairs: Vec<(Option<&str>, i64)> = instances
        .iter()
        .map(|seen| (seen.id.as_deref(), seen.last_seen_at.as_millis()))
        .collect();
    serde_json::to_string(&pairs).ok()
}

/// Encodes ids one after the other; absent when there are none.
pub(crate) fn receipt_ids(ids: &[ReceiptId]) -> Option<Vec<u8>> {
    (!ids.is_empty()).then(|| ids.iter().flat_map(|id| *id.as_bytes()).collect())
}

/// Reads columns of one row in the order they were selected, and covers them by a checksum if there is
/// one.
pub(crate) struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
    sum: Option<Checksum>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(row: &'a Row<'a>) -> Self {
        Self {
            row,
            next: 0,
            sum: None,
        }
    }

    pub(crate) fn get<T: rusqlite::types::FromSql>(&mut self) -> Result<T> {
        let column = self.next;
        self.next += 1;
        let value = self.row.get_ref(column)?;
        if let Some(sum) = &mut self.sum {
            sum.add(value);
        }
        T::column_result(value).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), error.into())
        })
    }

    /// Reads a text that the checksum covers where it is there.
    pub(crate) fn covered_some(&mut self) -> Result<Option<String>> {
        let sum = self.sum.take();
        let text: Option<String> = self.get()?;
        self.sum = sum;
        if let (Some(sum), Some(text)) = (&mut self.sum, &text) {
            sum.add_text(text);
        }
        Ok(text)
    }

    /// Covers the columns from here on.
    pub(crate) fn begin_checksum(&mut self, sum: Checksum) {
        self.sum = Some(sum);
    }

    /// Returns the checksum of the columns up to here, and the one that is stored in this column.
    pub(crate) fn end_checksum(&mut self) -> Result<(Checksum, Stored)> {
        let sum = self.sum.take();
        let stored = self.get()?;
        Ok((self.must(sum)?, stored))
    }

    fn damaged(&self, kind: Type) -> rusqlite::Error {
        let cause = Box::new(FromSqlError::InvalidType);
        rusqlite::Error::FromSqlConversionFailure(self.next - 1, kind, cause)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        self.get().map(Timestamp::from_millis)
    }

    pub(crate) fn some_time(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>()?.map(Timestamp::from_millis))
    }

    pub(crate) fn task_id(&mut self) -> Result<TaskId> {
        self.get().map(TaskId::from_bytes)
    }

    pub(crate) fn receipt_id(&mut self) -> Result<ReceiptId> {
        self.get().map(ReceiptId::from_bytes)
    }

    pub(crate) fn lease_id(&mut self) -> Result<Option<LeaseId>> {
        Ok(self.get::<Option<[u8; 16]>>()?.map(LeaseId::from_bytes))
    }

    pub(crate) fn receipt_ids(&mut self) -> Result<Vec<ReceiptId>> {
        let bytes: Option<Vec<u8>> = self.get()?;
        let (ids, rest) = bytes.as_deref().unwrap_or_default().as_chunks::<16>();
        if !rest.is_empty() {
            return Err(self.damaged(Type::Blob));
        }
        Ok(ids.iter().map(|id| ReceiptId::from_bytes(*id)).collect())
    }

    pub(crate) fn json(&mut self) -> Result<Option<Json>> {
        let Some(text) = self.get::<Option<String>>()? else {
            return Ok(None);
        };
        let json = Json::from_text(text).ok_or_else(|| self.damaged(Type::Text))?;
        Ok(Some(json))
    }

    pub(crate) fn instances(&mut self) -> Result<Option<Vec<InstanceSight>>> {
        let Some(text) = self.get::<Option<String>>()? else {
            return Ok(None);
        };
        let pairs: Vec<(Option<String>, i64)> =
            serde_json::from_str(&text).map_err(|_| self.damaged(Type::Text))?;
        let sight = |(id, millis): (Option<String>, i64)| InstanceSight {
            id: id.map(Into::into),
            last_seen_at: Timestamp::from_millis(millis),
        };
        Ok(Some(pairs.into_iter().map(sight).collect()))
    }

    pub(crate) fn principal(&mut self) -> Result<Principal> {
        let text: String = self.get()?;
        read_principal(&text).ok_or_else(|| self.damaged(Type::Text))
    }

    pub(crate) fn some_principal(&mut self) -> Result<Option<Principal>> {
        let Some(text) = self.get::<Option<String>>()? else {
            return Ok(None);
        };
        let principal = read_principal(&text).ok_or_else(|| self.damaged(Type::Text))?;
        Ok(Some(principal))
    }

    /// Returns the value, or an error if it is missing where there must be one.
    pub(crate) fn must<T>(&self, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.damaged(Type::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_are_read_back_as_they_were() {
        let mut all = vec![Principal::system()];
        for kind in PrincipalKind::ALL {
            all.push(Principal::new(kind, "x"));
            all.push(Principal::new(kind, "asyncgate"));
            all.push(Principal {
                instance_id: Some("laptop".into()),
                ..Principal::new(kind, "ünï/x")
            });
        }
        for expected in all {
            assert_eq!(read_principal(&principal(&expected)), Some(expected));
        }
    }

    #[test]
    fn keys_order_by_tenant_then_place() {
        let keys = [Key::new(1, 0), Key::new(1, 9), Key::end(1), Key::new(2, 1)];
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
