//! Several questions at once, answered in one step.

use std::collections::HashMap;

use super::{
    Counted, Increment, LimitCheck, Limited, Name, NonceCheck, NonceResult, Row, rule::limit,
};
use crate::{TenantId, Timestamp};

/// What is asked.
///
/// Counters count whatever comes of the rest. Limits are charged all or not at all: a refusal charges
/// nothing, except overdraw to the limits that themselves refused. If nonces stand beside counters and
/// limits, or are to be used [`Together`], all of it must pass for any nonce to be used or any limit to
/// be charged, and a replay costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// Calls to count.
    pub counters: Vec<Increment>,
    /// Limits to charge.
    pub limits: Vec<LimitCheck>,
    /// Nonces to use.
    pub nonces: Vec<NonceCheck>,
    /// Whether nonces depend on each other.
    pub together: Together,
    /// Whether to say what would happen, and change nothing.
    pub peek: bool,
}

impl Asks {
    /// The rows that are asked about at a time: those of counters, of limits and of nonces, in order.
    pub fn names(&self, tenant: TenantId, now: Timestamp) -> impl Iterator<Item = Name> {
        let counters = self.counters.iter().map(move |it| it.name(tenant, now));
        let limits = self.limits.iter().map(move |it| it.name(tenant, now));
        let nonces = self.nonces.iter().map(move |it| it.name(tenant));
        counters.chain(limits).chain(nonces)
    }

    /// How many things are asked.
    pub const fn len(&self) -> usize {
        self.counters.len() + self.limits.len() + self.nonces.len()
    }

    /// Whether nothing is asked.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether nonces depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Together {
    /// Each is used for itself.
    #[default]
    Each,
    /// None is used unless all can be.
    All,
}

/// What is answered, in the order asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// The time of the decision.
    pub now: Timestamp,
    /// What was counted.
    pub counters: Vec<Counted>,
    /// What the limits say.
    pub limits: Vec<Limited>,
    /// Whether the nonces are new. One that is `Accepted` was used only if [`Verdicts::passed`], unless
    /// each was asked for itself.
    pub nonces: Vec<NonceResult>,
}

impl Verdicts {
    /// Whether everything may happen.
    pub fn passed(&self) -> bool {
        let fresh = |result: &NonceResult| *result == NonceResult::Accepted;
        self.counters.iter().all(|counted| counted.allowed)
            && self.limits.iter().all(|limited| limited.allowed)
            && self.nonces.iter().all(fresh)
    }
}

/// What to answer and what to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The answer.
    pub verdicts: Verdicts,
    /// Rows to insert or replace, each name once.
    pub rows: Vec<(Name, Row)>,
}

/// Decides. `load` is asked for each row once.
pub fn decide<E>(
    tenant: TenantId,
    now: Timestamp,
    asks: &Asks,
    load: impl FnMut(Name) -> Result<Option<Row>, E>,
) -> Result<Decision, E> {
    let mut pending = PendingRows {
        load,
        now,
        rows: HashMap::new(),
        written: Vec::new(),
    };
    let mut verdicts = Verdicts {
        now,
        ..Verdicts::default()
    };
    for increment in &asks.counters {
        let name = increment.name(tenant, now);
        let (row, counted) = increment.decide(now, pending.get(name)?);
        pending.put(name, row);
        verdicts.counters.push(counted);
    }
    let each =
        asks.together == Together::Each && asks.counters.is_empty() && asks.limits.is_empty();
    let counted = pending.mark();
    for check in &asks.limits {
        let name = check.name(tenant, now);
        let (limited, row) = limit(check, now, pending.get(name)?);
        if let Some(row) = row {
            pending.put(name, row);
        }
        verdicts.limits.push(limited);
    }
    for check in &asks.nonces {
        let name = check.name(tenant);
        let result = match check.decide(now, pending.get(name)?) {
            Ok(row) => {
                pending.put(name, row);
                NonceResult::Accepted
            }
            Err(replay) => replay,
        };
        verdicts.nonces.push(result);
    }
    if !each && !verdicts.passed() {
        pending.undo(counted);
        settle(&mut pending, tenant, &asks.limits, &mut verdicts)?;
    }
    let rows = match asks.peek {
        true => Vec::new(),
        false => pending.rows(),
    };
    Ok(Decision { verdicts, rows })
}

/// After a refusal: limits that refused take what a refusal costs, unless it was for a replay, and the
/// others stand as they stood.
fn settle<E, L: FnMut(Name) -> Result<Option<Row>, E>>(
    pending: &mut PendingRows<L>,
    tenant: TenantId,
    limits: &[LimitCheck],
    verdicts: &mut Verdicts,
) -> Result<(), E> {
    let now = pending.now;
    let replayed = |result: &NonceResult| *result != NonceResult::Accepted;
    let replayed = verdicts.nonces.iter().any(replayed);
    for (check, verdict) in limits.iter().zip(&mut verdicts.limits) {
        let name = check.name(tenant, now);
        let stored = pending.get(name)?;
        if verdict.allowed && !verdict.shadowed {
            let look = LimitCheck {
                cost: 0,
                ..check.clone()
            };
            let (standing, _) = limit(&look, now, stored);
            *verdict = Limited {
                allowed: true,
                shadowed: false,
                retry_after_secs: None,
                ..standing
            };
            continue;
        }
        let (again, row) = limit(check, now, stored);
        // Alone it might pass: it was refused because of what stands beside it, and costs nothing.
        let alone = again.allowed && !again.shadowed;
        if let Some(row) = row.filter(|_| !alone && !replayed) {
            pending.put(name, row);
            *verdict = again;
        }
    }
    Ok(())
}

/// The rows that a decision has loaded, with its own writes over them. The writes can be undone up to a mark.
struct PendingRows<L> {
    load: L,
    now: Timestamp,
    rows: HashMap<Name, Option<Row>>,
    /// What was written over what, in order.
    written: Vec<(Name, Option<Row>)>,
}

impl<L> PendingRows<L> {
    fn get<E>(&mut self, name: Name) -> Result<Option<Row>, E>
    where
        L: FnMut(Name) -> Result<Option<Row>, E>,
    {
        if let Some(row) = self.rows.get(&name) {
            return Ok(*row);
        }
        let row = (self.load)(name)?.filter(|row| row.until > self.now);
        self.rows.insert(name, row);
        Ok(row)
    }

    fn put(&mut self, name: Name, row: Row) {
        let before = self.rows.insert(name, Some(row));
        self.written.push((name, before.flatten()));
    }

    fn mark(&self) -> usize {
        self.written.len()
    }

    fn undo(&mut self, mark: usize) {
        for (name, before) in self.written.drain(mark..).rev() {
            self.rows.insert(name, before);
        }
    }

    /// What was written in the end.
    fn rows(self) -> Vec<(Name, Row)> {
        let mut names: Vec<Name> = self.written.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        let row = |name: Name| Some((name, self.rows.get(&name).copied().flatten()?));
        names.into_iter().filter_map(row).collect()
    }
}
