//! Optimistic transactions: a decision is made from assumed rows, and DynamoDB writes it if the rows are so.
//!
//! At first a row is assumed to be as this process left it, or not to exist. When DynamoDB says that a row is
//! different, the rule decides again. Rows that were only read are part of the condition as well, so that a
//! decision is about one moment. A decision that writes nothing is made only from rows that were read at one
//! moment.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Cell, Name},
};
use asyncgate_store::Error;
use serde_json::{Value, json};

use crate::{
    refusal::{Part, Refusal, corrupt},
    row_locks::RowGuard,
    rows::{Stored, key, unchanged},
    table::Table,
};

/// The number of attempts before a transaction gives up because others were faster.
pub(crate) const ATTEMPTS: u32 = 32;
/// The longest pause before another attempt, at first and at last. Its length is random.
const PAUSE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(128));

/// Rows by name. A row that is missing does not exist.
pub(crate) type RowSet = HashMap<Name, Stored>;

/// A decision from assumed rows.
pub(crate) enum Proposal<T> {
    /// Holds once the rows are written; if there are none, once the assumption is confirmed.
    Write {
        /// The time of the decision; of several, the earliest.
        now: Timestamp,
        rows: RowSet,
        answer: T,
    },
    /// Holds whatever the rows are.
    Final(T),
}

/// The outcome of a write.
enum Written {
    All,
    /// Nothing was written. Holds the rows to assume from now on, if DynamoDB told all of them.
    Nothing(Option<RowSet>),
}

/// A transaction on some rows.
pub(crate) struct Transaction<'a> {
    pub(crate) table: &'a Table,
    pub(crate) tenant: TenantId,
    pub(crate) names: &'a [Name],
}

impl Transaction<'_> {
    /// Decides until a decision holds.
    pub(crate) async fn run<T>(
        &self,
        guard: &mut RowGuard<'_>,
        mut decide: impl FnMut(&RowSet) -> Result<Proposal<T>, Error>,
    ) -> Result<T, Error> {
        let last_written = |name: &Name| Some((*name, guard.last_written(*name)?.clone()));
        let mut assumed: RowSet = self.names.iter().filter_map(last_written).collect();
        // True if the rows were so at one moment.
        let mut confirmed = self.names.is_empty();
        for attempt in 0..ATTEMPTS {
            let (now, rows, answer) = match decide(&assumed)? {
                Proposal::Write { now, rows, answer } => (now, rows, answer),
                Proposal::Final(answer) => return Ok(answer),
            };
            let told = match rows.is_empty() {
                true if confirmed => return Ok(answer),
                true => None,
                false => match self.write(now, &assumed, &rows).await? {
                    Written::All => {
                        remember(guard, rows);
                        return Ok(answer);
                    }
                    Written::Nothing(told) => told,
                },
            };
            // One wrong assumption is no reason to wait. A second one means that others write these rows now.
            if attempt > 1 {
                tokio::time::sleep(pause(attempt)).await;
            }
            // A refusal tells several rows each at a moment of its own, but one row alone at one moment.
            (assumed, confirmed) = match told {
                Some(told) => (told, self.names.len() == 1),
                None => match self.read().await? {
                    Some(read) => (read, true),
                    None => (assumed, false),
                },
            };
        }
        Err(Error::Conflict)
    }

    /// Reads all rows at one moment. Returns none if somebody writes them just then.
    async fn read(&self) -> Result<Option<RowSet>, Error> {
        let key = |name: &Name| key(self.tenant, *name);
        let answers = if let [name] = self.names {
            let input = json!({ "Key": key(name), "ConsistentRead": true });
            vec![self.table.call("GetItem", input).await?]
        } else {
            let get = |name| json!({ "Get": self.table.with_name(json!({ "Key": key(name) })) });
            let items: Vec<Value> = self.names.iter().map(get).collect();
            let input = json!({ "TransactItems": items });
            match self.table.call_as_is("TransactGetItems", &input).await {
                Ok(answer) => {
                    let answers = answer["Responses"].as_array().cloned();
                    let whole = answers.filter(|all| all.len() == self.names.len());
                    whole.ok_or_else(|| corrupt("rows are missing in an answer"))?
                }
                Err(Refusal::Cancelled(_) | Refusal::Conflict) => return Ok(None),
                Err(refusal) => return Err(refusal.into()),
            }
        };
        let mut rows = RowSet::new();
        for (name, answer) in self.names.iter().zip(answers) {
            if let Some(item) = answer.get("Item").filter(|item| item.is_object()) {
                rows.insert(*name, Stored::read(item)?);
            }
        }
        Ok(Some(rows))
    }

    /// Writes rows, on the condition that all rows of the transaction are as assumed at the time of the decision.
    async fn write(
        &self,
        now: Timestamp,
        assumed: &RowSet,
        rows: &RowSet,
    ) -> Result<Written, Error> {
        let part = |name: &Name| {
            let key = key(self.tenant, *name);
            let mut part = unchanged(assumed.get(name), now);
            match rows.get(name) {
                Some(stored) => {
                    part.insert("Item".to_owned(), stored.item(&key));
                    ("Put", self.table.with_name(part.into()))
                }
                None => {
                    part.insert("Key".to_owned(), key);
                    ("ConditionCheck", self.table.with_name(part.into()))
                }
            }
        };
        let written = if let [name] = self.names {
            let (_, input) = part(name);
            self.table.call_as_is("PutItem", &input).await
        } else {
            let parts = self.names.iter().map(|name| {
                let (verb, part) = part(name);
                json!({ verb: part })
            });
            let input = json!({ "TransactItems": parts.collect::<Vec<_>>() });
            self.table.call_as_is("TransactWriteItems", &input).await
        };
        let told = match written {
            Ok(_) => return Ok(Written::All),
            Err(Refusal::ConditionFailed(item)) => {
                self.told(assumed, vec![Part::ConditionFailed(item)])?
            }
            Err(Refusal::Cancelled(parts)) => self.told(assumed, parts)?,
            Err(Refusal::Conflict) => None,
            Err(Refusal::Failed(error)) => return Err(error),
        };
        Ok(Written::Nothing(told))
    }

    /// Returns the rows to assume after a refusal. None if DynamoDB did not tell all of them.
    fn told(&self, assumed: &RowSet, parts: Vec<Part>) -> Result<Option<RowSet>, Error> {
        if parts.len() != self.names.len() {
            return Ok(None);
        }
        let mut told = assumed.clone();
        for (name, part) in self.names.iter().zip(parts) {
            match part {
                Part::Accepted => {}
                Part::ConditionFailed(Some(item)) => {
                    told.insert(*name, Stored::read(&item)?);
                }
                // Without the item nobody knows: there may be no row, or the server does not tell it.
                Part::ConditionFailed(None) | Part::Conflict => return Ok(None),
            }
        }
        Ok(Some(told))
    }
}

/// Remembers the rows that may be written again soon, which nonces are not.
fn remember(guard: &mut RowGuard<'_>, rows: RowSet) {
    for (name, stored) in rows {
        if !matches!(stored.row.cell, Cell::Nonce { .. }) {
            guard.remember(name, stored);
        }
    }
}

fn pause(attempt: u32) -> Duration {
    let longest = PAUSE.0.saturating_mul(1 << attempt.min(16)).min(PAUSE.1);
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    // A hasher has random keys, so this needs no random source of its own.
    Duration::from_micros(RandomState::new().hash_one(attempt) % micros.max(1))
}
