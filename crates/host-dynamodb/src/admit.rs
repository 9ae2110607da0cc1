//! Chooses how a question is decided: one limit in a batch with other callers, one counter by DynamoDB itself,
//! many nonces in several transactions, and everything else in one transaction.

use std::{collections::HashMap, sync::Arc};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Cell, Name, NonceResult, Row, Together, Verdicts, decide},
};
use asyncgate_store::Error;
use futures_util::future::join_all;
use serde_json::json;

use crate::{
    Shared, batch,
    refusal::corrupt,
    row_locks::RowGuard,
    rows::{COUNT, Stored, count, key, last_seen, ttl},
    table::Table,
    transaction::{ATTEMPTS, Proposal, Transaction},
};

/// The most rows that DynamoDB reads or writes in one transaction.
const MAX_ROWS: usize = 100;

pub(crate) async fn admit(
    shared: &Arc<Shared>,
    tenant: TenantId,
    now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
    match (&asks.counters[..], &asks.limits[..], &asks.nonces[..]) {
        ([], [_], []) => batch::admit(shared, tenant, now, asks).await,
        ([increment], [], []) if !asks.peek => {
            increment_counter(&shared.table, tenant, now, &asks, increment.by).await
        }
        ([], [], nonces) if asks.together == Together::Each && nonces.len() > MAX_ROWS => {
            admit_in_parts(shared, tenant, now, asks).await
        }
        _ => admit_in_one_transaction(shared, tenant, now, asks).await,
    }
}

async fn admit_in_one_transaction(
    shared: &Shared,
    tenant: TenantId,
    mut now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
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
        // Locks do not remember nonces, so a caller would learn nothing from waiting. The condition of the
        // write keeps two callers with the same nonce apart.
        let mut guard = match asks.counters.is_empty() && asks.limits.is_empty() {
            true => RowGuard::default(),
            false => shared.row_locks.lock(&names).await,
        };
        let transaction = Transaction {
            table: &shared.table,
            tenant,
            names: &names,
        };
        let answer = transaction.run(&mut guard, |assumed| {
            let times = assumed.values().filter_map(|stored| last_seen(&stored.row));
            if let Some(later) = times.max().filter(|seen| *seen > now) {
                now = later;
                // At a later time the question may be about other windows, and so about other rows.
                if asks.names(tenant, now).any(|name| !names.contains(&name)) {
                    return Ok(Proposal::Final(None));
                }
            }
            let load = |name: Name| Ok::<_, Error>(assumed.get(&name).map(|stored| stored.row));
            let decision = decide(tenant, now, &asks, load)?;
            let rows = decision.rows.into_iter();
            Ok(Proposal::Write {
                now,
                rows: rows.map(|(name, row)| (name, Stored::new(row))).collect(),
                answer: Some(decision.verdicts),
            })
        });
        if let Some(verdicts) = answer.await? {
            return Ok(verdicts);
        }
    }
    Err(Error::Conflict)
}

/// Decides nonces that do not depend on each other, a hundred rows in each transaction, all transactions at
/// once: one after the other they would take longer than a caller's deadline. If one fails, the others are done
/// all the same.
async fn admit_in_parts(
    shared: &Shared,
    tenant: TenantId,
    now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
    let mut results: Vec<(usize, NonceResult)> = Vec::with_capacity(asks.nonces.len());
    let transactions = parts(tenant, now, asks).into_iter().map(|part| async {
        let answer = admit_in_one_transaction(shared, tenant, now, part.asks).await;
        answer.map(|verdicts| (part.places, verdicts))
    });
    // All are awaited even if one fails: of a request that is dropped halfway nobody knows whether it was done.
    for answer in join_all(transactions).await {
        let (places, verdicts) = answer?;
        results.extend(places.into_iter().zip(verdicts.nonces));
    }
    results.sort_unstable_by_key(|(place, _)| *place);
    Ok(Verdicts {
        now,
        nonces: results.into_iter().map(|(_, result)| result).collect(),
        ..Verdicts::default()
    })
}

/// Some of the nonces of a question, and their places in it.
#[derive(Default)]
struct Part {
    asks: Asks,
    places: Vec<usize>,
}

/// Splits nonces into parts. Equal nonces stay in one part and in order, so that the first of them is used.
fn parts(tenant: TenantId, now: Timestamp, asks: Asks) -> Vec<Part> {
    let mut rows: HashMap<Name, usize> = HashMap::new();
    let mut parts: Vec<Part> = Vec::new();
    let names: Vec<Name> = asks.names(tenant, now).collect();
    for (place, (nonce, name)) in asks.nonces.into_iter().zip(names).enumerate() {
        let next = rows.len();
        let part = *rows.entry(name).or_insert(next) / MAX_ROWS;
        parts.resize_with(parts.len().max(part + 1), Part::default);
        let part = &mut parts[part];
        part.asks.nonces.push(nonce);
        part.asks.peek = asks.peek;
        part.places.push(place);
    }
    parts
}

/// Lets DynamoDB add to a single counter, so that nobody has to try twice. The rule makes the verdict from the
/// count before the addition.
async fn increment_counter(
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

#[cfg(test)]
mod tests {
    use asyncgate_store::conformance::nonce;

    use super::*;

    #[test]
    fn equal_nonces_stay_together_and_every_nonce_keeps_its_place() {
        // The first is asked again at the end, and between are a few more than two parts take.
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
