//! Rows as items of the table.
//!
//! A row needs no version: its numbers are its attributes, and two rows with the same numbers lead to the same
//! decision.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Cell, Name, Row},
    hex,
};
use asyncgate_store::Error;
use serde_json::{Map, Value, json};

use crate::refusal::corrupt;

/// The names of the table's key attributes.
pub(crate) const PARTITION: &str = "pk";
pub(crate) const SORT: &str = "sk";
/// The sort key of every row. Revocations have their subject there.
const ROW: &str = "row";
const UNTIL: &str = "until";
const TTL: &str = "ttl";
/// The time that a row stays after it has expired: longer than the difference of any two clocks.
const LINGER_SECS: i64 = 3_600;
/// The expiry from which on a row has no `ttl`, because it stays for ever or practically so.
const FAR_SECS: i64 = 250_000_000_000;

/// A row, and its numbers as DynamoDB has them: a count there may be larger than a `u64`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    pub(crate) row: Row,
    numbers: Vec<(&'static str, String)>,
}

pub(crate) fn key(tenant: TenantId, name: Name) -> Value {
    let partition = format!(
        "{}#{}",
        hex::encode(tenant.as_bytes()),
        hex::encode(&name.to_bytes())
    );
    json!({ PARTITION: { "S": partition }, SORT: { "S": ROW } })
}

/// The names of a row's numbers.
const fn numbers(cell: &Cell) -> &'static [&'static str] {
    match cell {
        Cell::Nonce { .. } => &["first_seen", UNTIL],
        Cell::Window { .. } => &[COUNT, UNTIL],
        Cell::Bucket { .. } => &["level", "unit", "at", UNTIL],
        Cell::Delay { .. } => &["counter", "timer", UNTIL],
    }
}

pub(crate) const COUNT: &str = "count";

impl Stored {
    pub(crate) fn new(row: Row) -> Self {
        let values = match row.cell {
            Cell::Nonce { first_seen } => vec![first_seen.to_string()],
            Cell::Window { count } => vec![count.to_string()],
            Cell::Bucket { level, unit, at } => {
                vec![level.to_string(), unit.to_string(), at.to_string()]
            }
            Cell::Delay { counter, timer } => vec![counter.to_string(), timer.to_string()],
        };
        let values = values
            .into_iter()
            .chain([row.until.as_millis().to_string()]);
        let numbers = numbers(&row.cell).iter().copied().zip(values).collect();
        Self { row, numbers }
    }

    /// Reads an item. Its attributes tell its kind: the kind is part of a row's name, so one name never has two.
    pub(crate) fn read(item: &Value) -> Result<Self, Error> {
        Self::try_read(item).ok_or_else(|| corrupt("a row cannot be read"))
    }

    fn try_read(item: &Value) -> Option<Self> {
        let text = |name: &str| item[name]["N"].as_str();
        let integer = |name: &str| text(name)?.parse::<i64>().ok();
        let natural = |name: &str| text(name)?.parse::<u64>().ok();
        let cell = if item.get("first_seen").is_some() {
            Cell::Nonce {
                first_seen: integer("first_seen")?,
            }
        } else if item.get(COUNT).is_some() {
            Cell::Window {
                count: count(text(COUNT)?)?,
            }
        } else if item.get("level").is_some() {
            Cell::Bucket {
                level: integer("level")?,
                unit: natural("unit")?,
                at: integer("at")?,
            }
        } else {
            Cell::Delay {
                counter: natural("counter")?,
                timer: integer("timer")?,
            }
        };
        let until = Timestamp::from_millis(integer(UNTIL)?);
        let number = |name: &&'static str| Some((*name, text(name)?.to_owned()));
        let numbers = numbers(&cell).iter().map(number).collect::<Option<_>>()?;
        let row = Row { cell, until };
        Some(Self { row, numbers })
    }

    /// Returns the whole item.
    pub(crate) fn item(&self, key: &Value) -> Value {
        let mut item = key.as_object().cloned().unwrap_or_default();
        for (name, number) in &self.numbers {
            item.insert((*name).to_owned(), json!({ "N": number }));
        }
        if let Some(ttl) = ttl(self.row.until) {
            item.insert(TTL.to_owned(), ttl);
        }
        Value::Object(item)
    }

    /// Returns true if the row still matters at this time.
    pub(crate) fn is_alive(&self, now: Timestamp) -> bool {
        self.row.until > now
    }
}

/// Returns the last time that a bucket was asked. Its decisions never use an earlier time: otherwise the bucket
/// would refill again and again while callers with different clocks alternate.
pub(crate) const fn last_seen(row: &Row) -> Option<Timestamp> {
    match row.cell {
        Cell::Bucket { at, .. } => Some(Timestamp::from_millis(at)),
        Cell::Nonce { .. } | Cell::Window { .. } | Cell::Delay { .. } => None,
    }
}

/// Reads a count that DynamoDB added up. Beyond the largest `u64` it stays there, as the rule has it.
pub(crate) fn count(text: &str) -> Option<u64> {
    let count = text.parse::<u128>().ok()?;
    Some(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Returns the time from which on DynamoDB may remove a row, in seconds since 1970.
pub(crate) fn ttl(until: Timestamp) -> Option<Value> {
    let secs = until.as_millis().div_euclid(1_000) + LINGER_SECS;
    (secs < FAR_SECS).then(|| json!({ "N": secs.to_string() }))
}

/// Returns the parameters of a request that make it depend on a row being as assumed.
pub(crate) fn unchanged(assumed: Option<&Stored>, now: Timestamp) -> Map<String, Value> {
    let (mut names, mut values) = (Map::new(), Map::new());
    let condition = match assumed.filter(|stored| stored.is_alive(now)) {
        Some(stored) => {
            let mut terms = Vec::new();
            for (n, (name, number)) in stored.numbers.iter().enumerate() {
                names.insert(format!("#{n}"), json!(name));
                values.insert(format!(":{n}"), json!({ "N": number }));
                terms.push(format!("#{n} = :{n}"));
            }
            terms.join(" AND ")
        }
        // An expired row counts as none, whatever its numbers are.
        None => {
            names.insert("#pk".to_owned(), json!(PARTITION));
            names.insert("#until".to_owned(), json!(UNTIL));
            let now = now.as_millis().to_string();
            values.insert(":now".to_owned(), json!({ "N": now }));
            "attribute_not_exists(#pk) OR #until <= :now".to_owned()
        }
    };
    let mut parameters = Map::new();
    parameters.insert("ConditionExpression".to_owned(), json!(condition));
    parameters.insert("ExpressionAttributeNames".to_owned(), names.into());
    parameters.insert("ExpressionAttributeValues".to_owned(), values.into());
    parameters.insert(
        "ReturnValuesOnConditionCheckFailure".to_owned(),
        json!("ALL_OLD"),
    );
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let key = key(TenantId::from_bytes([1; 16]), Name::from_bytes([2; 16]));
        let cells = [
            Cell::Nonce { first_seen: -1 },
            Cell::Window { count: u64::MAX },
            Cell::Bucket {
                level: i64::MIN,
                unit: u64::MAX,
                at: 3,
            },
            Cell::Delay {
                counter: 1,
                timer: i64::MAX,
            },
        ];
        for cell in cells {
            let until = Timestamp::from_millis(1_731_690_000_001);
            let stored = Stored::new(Row { cell, until });
            let item = stored.item(&key);
            assert_eq!(Stored::read(&item), Ok(stored));
            assert_eq!(item[TTL]["N"], "1731693600", "an hour later");
        }
        let for_ever = Row {
            cell: cells[3],
            until: Timestamp::from_millis(i64::MAX),
        };
        assert!(Stored::new(for_ever).item(&key).get(TTL).is_none());
    }

    #[test]
    fn counts_stop_at_the_largest_number_but_the_condition_has_the_exact_one() {
        let sum = "18446744073709551616";
        let item = json!({ "count": { "N": sum }, "until": { "N": "5" } });
        let stored = Stored::read(&item).unwrap();
        assert_eq!(stored.row.cell, Cell::Window { count: u64::MAX });
        let condition = unchanged(Some(&stored), Timestamp::from_millis(4));
        assert_eq!(condition["ExpressionAttributeValues"][":0"]["N"], sum);
    }

    #[test]
    fn items_that_are_not_rows_are_refused() {
        for item in [
            json!({}),
            json!({ "until": { "N": "5" } }),
            json!({ "first_seen": { "N": "1" } }),
            json!({ "first_seen": { "S": "1" }, "until": { "N": "5" } }),
            json!({ "first_seen": { "N": "1.5" }, "until": { "N": "5" } }),
            json!({ "count": { "N": "-1" }, "until": { "N": "5" } }),
            json!({ "level": { "N": "1" }, "unit": { "N": "1" }, "until": { "N": "5" } }),
        ] {
            let read = Stored::read(&item);
            assert!(matches!(read, Err(Error::Corrupt(_))), "{item}");
        }
    }
}
