//! Rows as items of the table.
//!
//! A row's numbers are attributes of their own, and a row that was read is known again by them: if they
//! are the same, so is what the rule makes of them.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Cell, Name, Row},
    hex,
};
use asyncgate_store::Error;
use serde_json::{Map, Value, json};

use crate::refusal::corrupt;

/// What the table's key is called.
pub(crate) const PARTITION: &str = "pk";
pub(crate) const SORT: &str = "sk";
/// What every row has in the place where revocations have their subject.
const ROW: &str = "row";
const UNTIL: &str = "until";
const TTL: &str = "ttl";
/// For how long a row stays beyond its time: longer than any two clocks are apart.
const LINGER_SECS: i64 = 3_600;
/// From here on DynamoDB is not told to remove a row: it is for ever, or as good as that.
const FAR_SECS: i64 = 250_000_000_000;

/// A row, and its numbers as DynamoDB has them: a count may have grown beyond what we count to.
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

    /// Reads an item. Its sort is part of its name, so an item that has another's numbers is not ours.
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
        let own = |name: &&'static str| Some((*name, text(name)?.to_owned()));
        let numbers = numbers(&cell).iter().map(own).collect::<Option<_>>()?;
        let row = Row { cell, until };
        Some(Self { row, numbers })
    }

    /// The whole item.
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

    /// Whether the row matters at a time.
    pub(crate) fn alive(&self, now: Timestamp) -> bool {
        self.row.until > now
    }
}

/// The last time that a bucket has seen. Time does not go back behind it: the bucket would fill again and
/// again while callers take turns whose clocks are not the same.
pub(crate) const fn seen(row: &Row) -> Option<Timestamp> {
    match row.cell {
        Cell::Bucket { at, .. } => Some(Timestamp::from_millis(at)),
        Cell::Nonce { .. } | Cell::Window { .. } | Cell::Delay { .. } => None,
    }
}

/// A count that DynamoDB added up. Ours stops at the largest number.
pub(crate) fn count(text: &str) -> Option<u64> {
    let count = text.parse::<u128>().ok()?;
    Some(u64::try_from(count).unwrap_or(u64::MAX))
}

/// When DynamoDB may remove a row, in seconds since 1970.
pub(crate) fn ttl(until: Timestamp) -> Option<Value> {
    let secs = until.as_millis().div_euclid(1_000) + LINGER_SECS;
    (secs < FAR_SECS).then(|| json!({ "N": secs.to_string() }))
}

/// A condition that a row is as it was believed to be, as parameters of a request.
pub(crate) fn unchanged(believed: Option<&Stored>, now: Timestamp) -> Map<String, Value> {
    let (mut names, mut values) = (Map::new(), Map::new());
    let condition = match believed.filter(|stored| stored.alive(now)) {
        Some(stored) => {
            let mut terms = Vec::new();
            for (n, (name, number)) in stored.numbers.iter().enumerate() {
                names.insert(format!("#{n}"), json!(name));
                values.insert(format!(":{n}"), json!({ "N": number }));
                terms.push(format!("#{n} = :{n}"));
            }
            terms.join(" AND ")
        }
        // A row whose time is over is as good as none, whatever stands in it.
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
    fn counts_stop_at_the_largest_number_and_are_known_again() {
        let sum = "18446744073709551616";
        let item = json!({ "count": { "N": sum }, "until": { "N": "5" } });
        let stored = Stored::read(&item).unwrap();
        assert_eq!(stored.row.cell, Cell::Window { count: u64::MAX });
        let condition = unchanged(Some(&stored), Timestamp::from_millis(4));
        assert_eq!(condition["ExpressionAttributeValues"][":0"]["N"], sum);
    }

    #[test]
    fn rows_that_are_none_are_found_out() {
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
