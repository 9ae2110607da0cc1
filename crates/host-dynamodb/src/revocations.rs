//! Revocations: for each tenant the items of one partition, in the order of their subjects.

use std::collections::HashMap;

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Revocation, Subject, SubjectKind},
    hex,
};
use asyncgate_store::Error;
use serde_json::{Value, json};

use crate::{
    refusal::{Refusal, corrupt},
    rows::{PARTITION, SORT},
    table::Table,
};

/// The most items that DynamoDB looks up at once.
const MAX_ITEMS: usize = 100;
/// The number of requests for keys that DynamoDB left out for now, and for a revocation that is being removed.
const ATTEMPTS: usize = 8;

/// Returns the error when DynamoDB left keys out too often.
fn throttled() -> Error {
    Error::Unavailable("DynamoDB: the table is throttled".to_owned())
}

pub(crate) async fn look_up(
    table: &Table,
    tenant: TenantId,
    subjects: &[Subject],
) -> Result<Vec<Option<Revocation>>, Error> {
    if let [subject] = subjects {
        return Ok(vec![get(table, tenant, *subject).await?]);
    }
    let mut wanted = subjects.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    let mut found = HashMap::new();
    for part in wanted.chunks(MAX_ITEMS) {
        let keys: Vec<Value> = part.iter().map(|subject| key(tenant, *subject)).collect();
        let keys = json!({ "Keys": keys, "ConsistentRead": true });
        let mut asked = json!({ &table.name: keys });
        let mut attempts = 0..ATTEMPTS;
        while asked.as_object().is_some_and(|asked| !asked.is_empty()) {
            attempts.next().ok_or_else(throttled)?;
            let input = json!({ "RequestItems": asked });
            let mut answer = table.call_as_is("BatchGetItem", &input).await?;
            for item in items(&answer["Responses"][&table.name])? {
                let revocation = read(item)?;
                found.insert(revocation.subject, revocation);
            }
            asked = answer["UnprocessedKeys"].take();
        }
    }
    let answer = |subject: &Subject| found.get(subject).cloned();
    Ok(subjects.iter().map(answer).collect())
}

pub(crate) async fn revoke(
    table: &Table,
    tenant: TenantId,
    revocation: Revocation,
) -> Result<(Revocation, bool), Error> {
    let subject = revocation.subject;
    let mut item = key(tenant, subject);
    item["revoked_at"] = json!({ "N": revocation.revoked_at.as_millis().to_string() });
    if let Some(reason) = &revocation.reason {
        item["reason"] = json!({ "S": reason });
    }
    let input = table.with_name(json!({
        "Item": item,
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": { "#pk": PARTITION },
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }));
    for _ in 0..ATTEMPTS {
        let existing = match table.call_as_is("PutItem", &input).await {
            Ok(_) => return Ok((revocation, true)),
            Err(Refusal::ConditionFailed(Some(item))) => Some(read(&item)?),
            Err(Refusal::ConditionFailed(None)) => get(table, tenant, subject).await?,
            Err(refusal) => return Err(refusal.into()),
        };
        if let Some(existing) = existing {
            return Ok((existing, false));
        }
        // The revocation was removed between the two requests, so the write is tried again.
    }
    Err(Error::Conflict)
}

pub(crate) async fn unrevoke(
    table: &Table,
    tenant: TenantId,
    subject: Subject,
) -> Result<bool, Error> {
    let input = json!({ "Key": key(tenant, subject), "ReturnValues": "ALL_OLD" });
    let answer = table.call("DeleteItem", input).await?;
    let gone = answer.get("Attributes").and_then(Value::as_object);
    Ok(gone.is_some_and(|gone| !gone.is_empty()))
}

pub(crate) async fn list(
    table: &Table,
    tenant: TenantId,
    after: Option<Subject>,
    limit: usize,
) -> Result<Vec<Revocation>, Error> {
    let mut found: Vec<Revocation> = Vec::new();
    let mut after = after.map(sort_key);
    while found.len() < limit {
        let mut input = json!({
            "KeyConditionExpression": "#pk = :pk",
            "ExpressionAttributeNames": { "#pk": PARTITION },
            "ExpressionAttributeValues": { ":pk": { "S": partition(tenant) } },
            "ConsistentRead": true,
            "Limit": limit - found.len(),
        });
        if let Some(after) = &after {
            input["KeyConditionExpression"] = json!("#pk = :pk AND #sk > :after");
            input["ExpressionAttributeNames"]["#sk"] = json!(SORT);
            input["ExpressionAttributeValues"][":after"] = json!({ "S": after });
        }
        let answer = table.call("Query", input).await?;
        for item in items(&answer["Items"])? {
            found.push(read(item)?);
        }
        // DynamoDB may end a page before the limit.
        match answer["LastEvaluatedKey"][SORT]["S"].as_str() {
            Some(last) => after = Some(last.to_owned()),
            None => break,
        }
    }
    Ok(found)
}

async fn get(
    table: &Table,
    tenant: TenantId,
    subject: Subject,
) -> Result<Option<Revocation>, Error> {
    let input = json!({ "Key": key(tenant, subject), "ConsistentRead": true });
    let answer = table.call("GetItem", input).await?;
    answer.get("Item").map(read).transpose()
}

fn partition(tenant: TenantId) -> String {
    format!("{}#revoked", hex::encode(tenant.as_bytes()))
}

/// Returns the sort key: two digits for the kind, and the hash. Keys have the order of their subjects.
fn sort_key(subject: Subject) -> String {
    hex::encode(&[subject.kind as u8]) + &hex::encode(&subject.hash)
}

fn key(tenant: TenantId, subject: Subject) -> Value {
    json!({ PARTITION: { "S": partition(tenant) }, SORT: { "S": sort_key(subject) } })
}

fn items(list: &Value) -> Result<&Vec<Value>, Error> {
    list.as_array()
        .ok_or_else(|| corrupt("an answer has no items"))
}

fn read(item: &Value) -> Result<Revocation, Error> {
    try_read(item).ok_or_else(|| corrupt("a revocation cannot be read"))
}

fn try_read(item: &Value) -> Option<Revocation> {
    let (kind, hash) = item[SORT]["S"].as_str()?.split_at_checked(2)?;
    let [kind] = hex::decode(kind)?;
    let reason = match item.get("reason") {
        Some(reason) => Some(reason["S"].as_str()?.to_owned()),
        None => None,
    };
    let at = item["revoked_at"]["N"].as_str()?.parse().ok()?;
    Some(Revocation {
        subject: Subject {
            kind: *SubjectKind::ALL.get(usize::from(kind))?,
            hash: hex::decode(hash)?,
        },
        reason,
        revoked_at: Timestamp::from_millis(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_is_that_of_subjects() {
        let hashes = [[0; 32], [9; 32], [10; 32], [255; 32]];
        let mut subjects = Vec::new();
        for kind in SubjectKind::ALL {
            subjects.extend(hashes.map(|hash| Subject { kind, hash }));
        }
        subjects.sort_unstable();
        let keys: Vec<String> = subjects.iter().map(|subject| sort_key(*subject)).collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn items_that_are_not_revocations_are_refused() {
        let sk = json!({ "S": format!("00{}", "ab".repeat(32)) });
        let at = json!({ "N": "5" });
        assert!(read(&json!({ SORT: sk, "revoked_at": at })).is_ok());
        for item in [
            json!({ SORT: sk }),
            json!({ SORT: sk, "revoked_at": at, "reason": { "N": "1" } }),
            json!({ SORT: { "S": "row" }, "revoked_at": at }),
            json!({ SORT: { "S": format!("ff{}", "ab".repeat(32)) }, "revoked_at": at }),
        ] {
            assert!(matches!(read(&item), Err(Error::Corrupt(_))), "{item}");
        }
    }
}
