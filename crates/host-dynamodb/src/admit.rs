//! Decisions: the rule decides from how the rows are believed to stand, and DynamoDB writes if they do.
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
    admission::{Asks, Cell, Name, NonceResult, Row, Together, Verdicts, decide},
};
use asyncgate_store::Error;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{
    refusal::{Part, Refusal, corrupt},
    rows::{COUNT, Stored, count, key, ttl, unchanged},
    table::Table,
    turns::{Turn, Turns},
};

/// The most rows that DynamoDB reads or writes in one step.
const MAX_ROWS: usize = 100;
/// How often a decision is made before others have been faster too often.
const ATTEMPTS: u32 = 32;
/// The longest pause before another attempt, at first and at last. How long it is, is left to chance.
const PAUSE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(128));

/// How rows are believed to stand.
type Belief = HashMap<Name, Stored>;

/// What came of writing.
enum Wrote {
    All,
    /// Nothing: this is believed now, as far as DynamoDB told.
    Nothing(Option<Belief>),
}

pub(crate) async fn admit(
    table: &Table,
    turns: &Turns,
    tenant: TenantId,
    now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
    let apart = asks.counters.is_empty() && asks.limits.is_empty();
    if apart && asks.together == Together::Each && asks.nonces.len() > MAX_ROWS {
        return admit_in_parts(table, turns, tenant, now, asks).await;
    }
    admit_in_one_step(table, turns, tenant, now, asks).await
}

async fn admit_in_one_step(
    table: &Table,
    turns: &Turns,
    tenant: TenantId,
    now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
    if let ([increment], true, false) = (
        &asks.counters[..],
        asks.limits.is_empty() && asks.nonces.is_empty(),
        asks.peek,
    ) {
        return count_up(table, tenant, now, &asks, increment.by).await;
    }
    let mut now = now;
    for _ in 0..ATTEMPTS {
        let mut names: Vec<Name> = asks.names(tenant, now).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > MAX_ROWS {
            return Err(Error::Unavailable(format!(
                "DynamoDB decides about at most {MAX_ROWS} rows in one step, not {}",
                names.len()
            )));
        }
        // Nonces are not kept at their seats, so nobody would know more for having waited; and of two who
        // use one nonce, the second need not wait to be told.
        let mut turn = match asks.counters.is_empty() && asks.limits.is_empty() {
            true => Turn::default(),
            false => turns.take(&names).await,
        };
        let question = Question {
            table,
            tenant,
            now,
            asks: &asks,
            names: &names,
        };
        match question.answer(&mut turn).await? {
            Answer::Told(verdicts) => return Ok(verdicts),
            Answer::OtherRows(later) => now = later,
        }
    }
    Err(Error::Conflict)
}

/// Nonces that do not depend on each other, a hundred rows in each step, all steps at once: one after the
/// other they would take longer than a caller has. If a step fails, the others are done all the same.
async fn admit_in_parts(
    table: &Table,
    turns: &Turns,
    tenant: TenantId,
    now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
    let mut results: Vec<(usize, NonceResult)> = Vec::with_capacity(asks.nonces.len());
    let steps = parts(tenant, now, asks).into_iter().map(|part| async {
        let told = admit_in_one_step(table, turns, tenant, now, part.asks).await;
        told.map(|verdicts| (part.places, verdicts))
    });
    // Not until the first fails: a request that is dropped halfway is one of which nobody knows.
    for told in join_all(steps).await {
        let (places, verdicts) = told?;
        results.extend(places.into_iter().zip(verdicts.nonces));
    }
    results.sort_unstable_by_key(|(place, _)| *place);
    Ok(Verdicts {
        now,
        nonces: results.into_iter().map(|(_, result)| result).collect(),
        ..Verdicts::default()
    })
}

/// Some of the nonces of a question, and where they stand in it.
#[derive(Default)]
struct NoncesOf {
    asks: Asks,
    places: Vec<usize>,
}

/// Takes nonces apart. Equal ones stay together, in order, so that it is the first of them that is used.
fn parts(tenant: TenantId, now: Timestamp, asks: Asks) -> Vec<NoncesOf> {
    let mut rows: HashMap<Name, usize> = HashMap::new();
    let mut parts: Vec<NoncesOf> = Vec::new();
    let names: Vec<Name> = asks.names(tenant, now).collect();
    for (place, (nonce, name)) in asks.nonces.into_iter().zip(names).enumerate() {
        let next = rows.len();
        let part = *rows.entry(name).or_insert(next) / MAX_ROWS;
        parts.resize_with(parts.len().max(part + 1), NoncesOf::default);
        let part = &mut parts[part];
        part.asks.nonces.push(nonce);
        part.asks.peek = asks.peek;
        part.places.push(place);
    }
    parts
}

/// A single counter, which DynamoDB itself adds to: no one has to try twice. What it came to is
/// made by the rule of what it was before.
async fn count_up(
    table: &Table,
    tenant: TenantId,
    now: Timestamp,
    asks: &Asks,
    by: u64,
) -> Result<Verdicts, Error> {
    let nothing = |_: Name| Ok::<_, Error>(None);
    let first = decide(tenant, now, asks, nothing)?;
    let [(name, Row { until, .. })] = first.rows[..] else {
        return Err(corrupt("a counter that writes no row"));
    };
    let (mut set, mut names) = (
        "SET #until = :until".to_owned(),
        json!({ "#count": COUNT, "#until": "until" }),
    );
    let mut values = json!({
        ":by": { "N": by.to_string() },
        ":until": { "N": until.as_millis().to_string() },
    });
    if let Some(ttl) = ttl(until) {
        set.push_str(", #ttl = :ttl");
        names["#ttl"] = json!("ttl");
        values[":ttl"] = ttl;
    }
    let input = json!({
        "Key": key(tenant, name),
        "UpdateExpression": format!("{set} ADD #count :by"),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ReturnValues": "ALL_NEW",
    });
    let answer = table.call("UpdateItem", input).await?;
    let sum = answer["Attributes"][COUNT]["N"].as_str();
    let sum = sum.and_then(|sum| sum.parse::<u128>().ok());
    let before = sum.and_then(|sum| sum.checked_sub(by.into()));
    let before = before.and_then(|before| count(&before.to_string()));
    let count = before.ok_or_else(|| corrupt("a count cannot be read"))?;
    let cell = Cell::Window { count };
    let load = |_: Name| Ok::<_, Error>(Some(Row { cell, until }));
    Ok(decide(tenant, now, asks, load)?.verdicts)
}

/// What came of a question.
enum Answer {
    Told(Verdicts),
    /// It is later than the caller thinks, and then the question is about other rows.
    OtherRows(Timestamp),
}

/// A question about some rows.
struct Question<'a> {
    table: &'a Table,
    tenant: TenantId,
    now: Timestamp,
    asks: &'a Asks,
    names: &'a [Name],
}

impl Question<'_> {
    async fn answer(mut self, turn: &mut Turn<'_>) -> Result<Answer, Error> {
        let recall = |name: &Name| Some((*name, turn.recall(*name)?.clone()));
        let mut belief: Belief = self.names.iter().filter_map(recall).collect();
        // Whether the belief is how the rows stood at one moment.
        let mut sure = self.names.is_empty();
        for attempt in 0..ATTEMPTS {
            // Time does not go back behind what a bucket has seen: it would fill again and again while
            // instances take turns whose clocks are not the same.
            let seen = belief.values().filter_map(Stored::seen).max();
            if let Some(later) = seen.filter(|seen| *seen > self.now) {
                self.now = later;
                let moved = |name: Name| !self.names.contains(&name);
                if self.asks.names(self.tenant, later).any(moved) {
                    return Ok(Answer::OtherRows(later));
                }
            }
            let load = |name: Name| Ok::<_, Error>(belief.get(&name).map(|stored| stored.row));
            let decision = decide(self.tenant, self.now, self.asks, load)?;
            if decision.rows.is_empty() && sure {
                return Ok(Answer::Told(decision.verdicts));
            }
            let told = match decision.rows.is_empty() {
                true => None,
                false => {
                    let rows = decision.rows.into_iter();
                    let rows = rows.map(|(name, row)| (name, Stored::new(row)));
                    let rows: Belief = rows.collect();
                    match self.write(&belief, &rows).await? {
                        Wrote::All => {
                            keep(turn, rows);
                            return Ok(Answer::Told(decision.verdicts));
                        }
                        Wrote::Nothing(told) => told,
                    }
                }
            };
            // A guess that was wrong is no reason to wait, and what others did to a row twice is.
            if attempt > 1 {
                tokio::time::sleep(pause(attempt)).await;
            }
            // Several rows that were told about are not how they stood at one moment; one alone is.
            (belief, sure) = match told {
                Some(told) => (told, self.names.len() == 1),
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

    /// Writes rows if all that were looked at are as believed.
    async fn write(&self, belief: &Belief, rows: &Belief) -> Result<Wrote, Error> {
        let part = |name: &Name| {
            let key = key(self.tenant, *name);
            let mut part = unchanged(belief.get(name), self.now);
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

#[cfg(test)]
mod tests {
    use asyncgate_store::conformance::nonce;

    use super::*;

    #[test]
    fn equal_nonces_stay_together_and_all_know_their_places() {
        // The first is told again at the end, and between are a few more than two parts take.
        let numbers = (0..=2 * MAX_ROWS).chain([0, 0]);
        let asks = Asks {
            nonces: numbers.map(|it| nonce(&it.to_string(), 60)).collect(),
            peek: true,
            ..Asks::default()
        };
        let tenant = TenantId::from_bytes([7; 16]);
        let parts = parts(tenant, Timestamp::default(), asks.clone());
        let lens: Vec<usize> = parts.iter().map(|part| part.places.len()).collect();
        assert_eq!(lens, [MAX_ROWS + 2, MAX_ROWS, 1]);
        let last = 2 * MAX_ROWS;
        assert_eq!(parts[0].places[MAX_ROWS..], [last + 1, last + 2]);
        for part in parts {
            assert!(part.asks.peek);
            let there = part.places.iter().map(|place| &asks.nonces[*place]);
            assert!(there.eq(&part.asks.nonces));
        }
    }
}
