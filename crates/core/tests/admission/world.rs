//! The rows that a store would keep, and a clock.

use std::{collections::HashMap, convert::Infallible};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, Bucket, Increment, LimitCheck, Limited, MILLIONTHS, Name, NonceCheck, Row, Rule,
        Standing, Verdicts, decide,
    },
};

pub const TENANT: TenantId = TenantId::from_bytes([7; 16]);
/// 2024-11-15T17:00:00Z, a multiple of an hour.
pub const START_MS: i64 = 1_731_690_000_000;

#[derive(Debug, Clone)]
pub struct World {
    pub now_ms: i64,
    pub rows: HashMap<Name, Row>,
    /// True if rows are removed as soon as they no longer matter.
    pub forgetful: bool,
}

impl World {
    pub fn new() -> Self {
        Self {
            now_ms: START_MS,
            rows: HashMap::new(),
            forgetful: false,
        }
    }

    pub fn forgetful() -> Self {
        Self {
            forgetful: true,
            ..Self::new()
        }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms)
    }

    pub fn wait(&mut self, millis: i64) {
        self.now_ms += millis;
        if self.forgetful {
            let now = self.now();
            self.rows.retain(|_, row| row.until > now);
        }
    }

    pub fn ask(&mut self, asks: &Asks) -> Verdicts {
        let load = |name: Name| Ok::<_, Infallible>(self.rows.get(&name).copied());
        let Ok(decision) = decide(TENANT, self.now(), asks, load);
        self.rows.extend(decision.rows);
        decision.verdicts
    }

    pub fn limit(&mut self, check: LimitCheck) -> Limited {
        let limits = vec![check];
        self.ask(&Asks {
            limits,
            ..Asks::default()
        })
        .limits[0]
    }
}

pub fn bucket(capacity: u64, per_minute: u64) -> Rule {
    Rule::Bucket(Bucket::per_minute(capacity, per_minute * MILLIONTHS).unwrap())
}

pub fn overdraft(capacity: u64, per_minute: u64) -> Rule {
    let bucket = Bucket::per_minute(capacity, per_minute * MILLIONTHS).unwrap();
    Rule::Bucket(bucket.with_overdraw(true))
}

pub fn check(rule: &Rule, cost: i64) -> LimitCheck {
    LimitCheck {
        policy: "p".into(),
        key: "k".to_owned(),
        rule: rule.clone(),
        cost,
        shadow: false,
    }
}

pub fn nonce(text: &str, ttl_secs: u64) -> NonceCheck {
    NonceCheck {
        namespace: [1; 32],
        nonce: text.into(),
        ttl_secs,
    }
}

pub fn increment(limit: u64, by: u64) -> Increment {
    Increment {
        namespace: [2; 32],
        window_secs: 60,
        limit,
        by,
    }
}

/// Returns the content of a bucket in thousandths of a token.
pub fn thousandths(limited: &Limited) -> i128 {
    match limited.standing {
        Standing::Bucket { level, unit } => i128::from(level) * 1_000 / i128::from(unit),
        other @ (Standing::Window | Standing::Delay(_)) => panic!("no bucket: {other:?}"),
    }
}
