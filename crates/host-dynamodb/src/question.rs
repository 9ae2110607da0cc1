//! Questions to DynamoDB: a decision is made from how the rows are believed to stand, and DynamoDB writes
//! if they do.
//!
//! The belief is at first what this process left behind, or that there is no row. When DynamoDB says
//! that a row stands otherwise, the rule decides again. Rows that were only looked at are part of the
//! condition as well, so that a decision is about one moment; and one that writes nothing is made
//! only from rows that were read at one moment.

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
    rows::{Stored, key, unchanged},
    table::Table,
    turns::Turn,
};

/// How often a decision is made before others have been faster too often.
pub(crate) const ATTEMPTS: u32 = 32;
/// The longest pause before another attempt, at first and at last. How long it is, is left to chance.
const PAUSE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(128));

/// How rows are believed to stand.
pub(crate) type Belief = HashMap<Name, Stored>;

/// What was decided from a belief.
pub(crate) enum Step<T> {
    /// To be told once the rows are written; if there are none, once it is sure that the belief is right.
    Decided {
        /// The time of the decision; of several, the earliest.
        now: Timestamp,
        rows: Belief,
        told: T,
    },
    /// To be told however the rows stand.
    Over(T),
}

/// What came of writing.
enum Wrote {
    All,
    /// Nothing: this is believed now, as far as DynamoDB told.
    Nothing(Option<Belief>),
}

/// A question about some rows.
pub(crate) struct Question<'a> {
    pub(crate) table: &'a Table,
    pub(crate) tenant: TenantId,
    pub(crate) names: &'a [Name],
}

impl Question<'_> {
    /// Decides until a decision stands.
    pub(crate) async fn answer<T>(
        &self,
        turn: &mut Turn<'_>,
        mut decide: impl FnMut(&Belief) -> Result<Step<T>, Error>,
    ) -> Result<T, Error> {
        let recall = |name: &Name| Some((*name, turn.recall(*name)?.clone()));
        let mut belief: Belief = self.names.iter().filter_map(recall).collect();
        // Whether the belief is how the rows stood at one moment.
        let mut sure = self.names.is_empty();
        for attempt in 0..ATTEMPTS {
            let (now, rows, told) = match decide(&belief)? {
                Step::Decided { now, rows, told } => (now, rows, told),
                Step::Over(told) => return Ok(told),
            };
            let stands = match rows.is_empty() {
                true if sure => return Ok(told),
                true => None,
                false => match self.write(now, &belief, &rows).await? {
                    Wrote::All => {
                        keep(turn, rows);
                        return Ok(told);
                    }
                    Wrote::Nothing(stands) => stands,
                },
            };
            // A guess that was wrong is no reason to wait, and what others did to a row twice is.
            if attempt > 1 {
                tokio::time::sleep(pause(attempt)).await;
            }
            // Several rows that were told about are not how they stood at one moment; one alone is.
            (belief, sure) = match stands {
                Some(stands) => (stands, self.names.len() == 1),
                None => match self.read().await? {
                    Some(read) => (read, true),
                    None => (belief, false),
                },
            };
        }
        Err(Error::Conflict)
    }

    /// Reads all rows at one moment, unless somebody writes them just then.
    async fn read(&self) -> Result<Option<Belief>, Error> {
        let key = |name: &Name| key(self.tenant, *name);
        let answers = if let [name] = self.names {
            let input = json!({ "Key": key(name), "ConsistentRead": true });
            vec![self.table.call("GetItem", input).await?]
        } else {
            let get = |name| json!({ "Get": self.table.named(json!({ "Key": key(name) })) });
            let items: Vec<Value> = self.names.iter().map(get).collect();
            let input = json!({ "TransactItems": items });
            match self.table.call_unnamed("TransactGetItems", &input).await {
                Ok(answer) => {
                    let answers = answer["Responses"].as_array().cloned();
                    let whole = answers.filter(|all| all.len() == self.names.len());
                    whole.ok_or_else(|| corrupt("rows are missing in an answer"))?
                }
                Err(Refusal::Cancelled(_) | Refusal::Taken) => return Ok(None),
                Err(refusal) => return Err(refusal.into()),
            }
        };
        let mut belief = Belief::new();
        for (name, answer) in self.names.iter().zip(answers) {
            if let Some(item) = answer.get("Item").filter(|item| item.is_object()) {
                belief.insert(*name, Stored::read(item)?);
            }
        }
        Ok(Some(belief))
    }

    /// Writes rows if all that were looked at are as believed, by the time of the decision.
    async fn write(&self, now: Timestamp, belief: &Belief, rows: &Belief) -> Result<Wrote, Error> {
        let part = |name: &Name| {
            let key = key(self.tenant, *name);
            let mut part = unchanged(belief.get(name), now);
            match rows.get(name) {
                Some(stored) => {
                    part.insert("Item".to_owned(), stored.item(&key));
                    ("Put", self.table.named(part.into()))
                }
                None => {
                    part.insert("Key".to_owned(), key);
                    ("ConditionCheck", self.table.named(part.into()))
                }
            }
        };
        let wrote = if let [name] = self.names {
            let (_, input) = part(name);
            self.table.call_unnamed("PutItem", &input).await
        } else {
            let parts = self.names.iter().map(|name| {
                let (verb, part) = part(name);
                json!({ verb: part })
            });
            let input = json!({ "TransactItems": parts.collect::<Vec<_>>() });
            self.table.call_unnamed("TransactWriteItems", &input).await
        };
        let told = match wrote {
            Ok(_) => return Ok(Wrote::All),
            Err(Refusal::Unmet(item)) => self.told(belief, vec![Part::Unmet(item)])?,
            Err(Refusal::Cancelled(parts)) => self.told(belief, parts)?,
            Err(Refusal::Taken) => None,
            Err(Refusal::Failed(error)) => return Err(error),
        };
        Ok(Wrote::Nothing(told))
    }

    /// What is to be believed after a refusal. None if DynamoDB did not tell all that there is to know.
    fn told(&self, belief: &Belief, parts: Vec<Part>) -> Result<Option<Belief>, Error> {
        if parts.len() != self.names.len() {
            return Ok(None);
        }
        let mut told = belief.clone();
        for (name, part) in self.names.iter().zip(parts) {
            match part {
                Part::Fine => {}
                Part::Unmet(Some(item)) => drop(told.insert(*name, Stored::read(&item)?)),
                // There is no row, or there is one and the server does not say.
                Part::Unmet(None) | Part::Taken => return Ok(None),
            }
        }
        Ok(Some(told))
    }
}

/// Keeps what may be written again soon. A nonce is not.
fn keep(turn: &mut Turn<'_>, rows: Belief) {
    for (name, stored) in rows {
        if !matches!(stored.row.cell, Cell::Nonce { .. }) {
            turn.keep(name, stored);
        }
    }
}

fn pause(attempt: u32) -> Duration {
    let longest = PAUSE.0.saturating_mul(1 << attempt.min(16)).min(PAUSE.1);
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(RandomState::new().hash_one(attempt) % micros.max(1))
}
