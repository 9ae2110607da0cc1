//! Encodes questions as the arguments of the scripts, and decodes their answers.

use std::collections::HashMap;

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Cell, LimitCheck, Name, NonceCheck, Row, Rule, Together, Verdicts, decide},
};
use asyncgate_store::Error;

use crate::{
    keys::Keys,
    resp::{Args, Value},
};

/// The most seconds that a script can multiply by a thousand and still hold exactly. A longer window would not end
/// either.
const LONGEST_SECS: u64 = 1 << 40;

/// The kind of a row, which has its own text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    /// `w start count until`. The length of the window in seconds is part of the row's name.
    Window { secs: u64 },
    /// `level unit at until`
    Bucket,
    /// `counter timer`
    Delay,
    /// `first_seen until`
    Nonce,
}

/// Returns the arguments of `admit.lua` and of `nonces.lua`.
pub(crate) fn args(keys: &Keys, tenant: TenantId, now: Option<Timestamp>, asks: &Asks) -> Args {
    let mut args = Args::default();
    let count = asks.counters.len() + asks.limits.len() + asks.nonces.len();
    args.put_number(count);
    put_keys(&mut args, keys, tenant, asks);
    put_time(&mut args, now);
    let each =
        asks.together == Together::Each && asks.counters.is_empty() && asks.limits.is_empty();
    args.put_number(u8::from(asks.peek));
    args.put_number(u8::from(each));
    args.put_number(asks.counters.len());
    args.put_number(asks.limits.len());
    for increment in &asks.counters {
        args.put_number(increment.window_secs.clamp(1, LONGEST_SECS));
        args.put_number(increment.limit);
        args.put_number(increment.by);
    }
    for check in &asks.limits {
        put_limit(&mut args, check);
    }
    for nonce in &asks.nonces {
        put_nonce(&mut args, nonce);
    }
    args
}

/// Adds the keys of all rows of a question.
pub(crate) fn put_keys(args: &mut Args, keys: &Keys, tenant: TenantId, asks: &Asks) {
    // All windows of a counter share one key, and the row says which window it counts: so the keys are known
    // before the script reads the time. The key has the name of the window at time zero.
    for (name, kind) in asks
        .names(tenant, Timestamp::default())
        .zip(row_kinds(asks))
    {
        let word = match kind {
            RowKind::Nonce => "nonce",
            RowKind::Window { .. } | RowKind::Bucket | RowKind::Delay => "rl",
        };
        args.put(keys.row(tenant, word, name));
    }
}

/// Adds the time to use. None stands for the server's clock.
pub(crate) fn put_time(args: &mut Args, now: Option<Timestamp>) {
    match now {
        Some(now) => args.put_number(now.as_millis()),
        None => args.put(""),
    }
}

pub(crate) fn put_nonce(args: &mut Args, nonce: &NonceCheck) {
    args.put_number(nonce.ttl_secs.min(LONGEST_SECS) * 1_000);
}

pub(crate) fn put_limit(args: &mut Args, check: &LimitCheck) {
    let mut head = |kind: &str, cost: i64| {
        args.put(kind);
        args.put_number(u8::from(check.shadow));
        args.put_number(cost);
    };
    match &check.rule {
        Rule::Bucket(bucket) => {
            // A cost above the capacity is refused whatever it is, and giving back more than can be owed and held
            // fills the bucket whatever it is, so both are clamped. What is given back is sent in two parts, so
            // that each is a number that the script holds exactly.
            let capacity = i64::try_from(bucket.capacity()).unwrap_or(i64::MAX - 1);
            let cost = check.cost.clamp(-capacity, capacity + 1);
            let more = check.cost.saturating_sub(cost).clamp(-capacity, 0);
            head("b", cost);
            args.put_number(bucket.capacity());
            args.put_number(bucket.unit());
            args.put_number(bucket.refill());
            args.put_number(u8::from(bucket.overdraw()));
            args.put_number(more);
        }
        Rule::Window(window) => {
            head("w", check.cost);
            args.put_number(window.window_secs.clamp(1, LONGEST_SECS));
            args.put_number(window.limit);
        }
        Rule::Delay(delay) => {
            head("d", check.cost);
            args.put_number(delay.stages().len());
            for stage in delay.stages() {
                args.put_number(stage.delay);
                args.put_number(u8::from(stage.reset_timer));
                args.put_number(stage.batch_size);
                args.put_number(stage.repetitions);
            }
        }
    }
}

/// Returns the kind of the row that each part of a question asks about.
fn row_kinds(asks: &Asks) -> impl Iterator<Item = RowKind> {
    let counters = asks.counters.iter().map(|increment| RowKind::Window {
        secs: increment.window_secs,
    });
    let limits = asks.limits.iter().map(|check| match &check.rule {
        Rule::Bucket(_) => RowKind::Bucket,
        Rule::Window(window) => RowKind::Window {
            secs: window.window_secs,
        },
        Rule::Delay(_) => RowKind::Delay,
    });
    let nonces = asks.nonces.iter().map(|_| RowKind::Nonce);
    counters.chain(limits).chain(nonces)
}

/// Makes the verdicts by the rule of `core`, from the time and the rows that the script used. So a script that
/// decides differently from the rule is noticed at once.
pub(crate) fn verdicts(tenant: TenantId, asks: &Asks, answer: &Value) -> Result<Verdicts, Error> {
    let corrupt = |flaw: &str| Error::Corrupt(format!("Redis: {flaw}"));
    let short = || corrupt("the script's answer is not as long as the question");
    let [now, passed, rows @ ..] = answer.list().ok_or_else(short)? else {
        return Err(short());
    };
    let now = Timestamp::from_millis(now.int().ok_or_else(short)?);
    let mut found: HashMap<Name, Row> = HashMap::new();
    let mut names = asks.names(tenant, now).zip(row_kinds(asks));
    for row in rows {
        let (name, kind) = names.next().ok_or_else(short)?;
        if *row == Value::Nil {
            continue;
        }
        let text = row.text().ok_or_else(|| corrupt("a row is not text"))?;
        match read(text, kind, now) {
            Read::Row(row) => drop(found.insert(name, row)),
            Read::OtherWindow => {}
            Read::Corrupt => return Err(corrupt("a row cannot be read")),
        }
    }
    if names.next().is_some() {
        return Err(short());
    }
    let load = |name: Name| Ok::<_, Error>(found.get(&name).copied());
    let verdicts = decide(tenant, now, asks, load)?.verdicts;
    if passed.int() != Some(i64::from(verdicts.passed())) {
        return Err(corrupt("the script decided otherwise than the rule"));
    }
    Ok(verdicts)
}

#[derive(Debug, PartialEq, Eq)]
enum Read {
    Row(Row),
    /// The row counts a window that is over.
    OtherWindow,
    Corrupt,
}

fn read(text: &str, kind: RowKind, now: Timestamp) -> Read {
    match read_row(text, kind) {
        None => Read::Corrupt,
        Some((row, Some(start))) => {
            let RowKind::Window { secs } = kind else {
                return Read::Corrupt;
            };
            let second = now.as_millis().div_euclid(1_000);
            let secs = i64::try_from(secs.max(1)).unwrap_or(i64::MAX);
            match second - second.rem_euclid(secs) == start {
                true => Read::Row(row),
                false => Read::OtherWindow,
            }
        }
        Some((row, None)) => Read::Row(row),
    }
}

/// Parses a row. Returns the start of its window if it has one.
fn read_row(text: &str, kind: RowKind) -> Option<(Row, Option<i64>)> {
    let mut words = text.split(' ');
    let mut start = None;
    let cell = match kind {
        RowKind::Window { .. } => {
            words.next().filter(|word| *word == "w")?;
            start = Some(words.next()?.parse().ok()?);
            let count = words.next()?.parse().ok()?;
            Cell::Window { count }
        }
        RowKind::Bucket => Cell::Bucket {
            level: words.next()?.parse().ok()?,
            unit: words.next()?.parse().ok()?,
            at: words.next()?.parse().ok()?,
        },
        RowKind::Delay => Cell::Delay {
            counter: words.next()?.parse().ok()?,
            timer: words.next()?.parse().ok()?,
        },
        RowKind::Nonce => Cell::Nonce {
            first_seen: words.next()?.parse().ok()?,
        },
    };
    let until = match kind {
        RowKind::Delay => i64::MAX,
        RowKind::Window { .. } | RowKind::Bucket | RowKind::Nonce => words.next()?.parse().ok()?,
    };
    let until = Timestamp::from_millis(until);
    words
        .next()
        .is_none()
        .then_some((Row { cell, until }, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_cannot_be_read_are_corrupt() {
        let window = RowKind::Window { secs: 60 };
        let now = Timestamp::from_millis(61_000);
        for (text, kind) in [
            ("", RowKind::Nonce),
            ("1", RowKind::Nonce),
            ("1 2 3", RowKind::Nonce),
            ("1 two", RowKind::Nonce),
            ("60 1 200", window),
            ("w 60 18446744073709551616 200", window),
            ("1 2 3", RowKind::Bucket),
            ("1 2 3", RowKind::Delay),
        ] {
            assert_eq!(read(text, kind, now), Read::Corrupt, "{text:?}");
        }
        assert_eq!(read("w 0 1 120000", window, now), Read::OtherWindow);
        assert!(matches!(read("w 60 1 180000", window, now), Read::Row(_)));
    }

    #[test]
    fn answers_that_do_not_match_the_question_are_refused() {
        let asks = Asks::default();
        let tenant = TenantId::from_bytes([1; 16]);
        let time = || Value::Int(5);
        let passed = Value::List(vec![time(), Value::Int(1)]);
        assert!(verdicts(tenant, &asks, &passed).is_ok());
        for answer in [
            Value::Nil,
            Value::List(vec![]),
            Value::List(vec![Value::Nil, Value::Int(1)]),
            Value::List(vec![time(), Value::Int(0)]),
            Value::List(vec![time(), Value::Int(1), Value::Nil]),
        ] {
            let read = verdicts(tenant, &asks, &answer);
            assert!(matches!(read, Err(Error::Corrupt(_))), "{answer:?}");
        }
    }
}
