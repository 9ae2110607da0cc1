//! Several questions in one call, answered in one step.

use std::collections::HashMap;

use super::{
    Counted, Increment, LimitCheck, Limited, Name, NonceCheck, NonceResult, Row, rule::limit,
};
use crate::{TenantId, Timestamp};

/// The questions of one call.
///
/// A counter counts whatever the other answers are. Limits are charged all or not at all: a refusal
/// charges nothing, except overdraw to the limits that themselves refused. If nonces stand beside
/// counters or limits, or are to be used [`Together`], everything must pass before any nonce is used
/// or any limit is charged, and a replay costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// Calls to count.
    pub counters: Vec<Increment>,
    /// Limits to charge.
    pub limits: Vec<LimitCheck>,
    /// Nonces to use.
    pub nonces: Vec<NonceCheck>,
    /// The dependence of the nonces on each other.
    pub together: Together,
    /// True to learn the answers without changing anything.
    pub peek: bool,
}

impl Asks {
    /// Returns the names of the rows that the questions need: of counters, limits and nonces, in order.
    pub fn names(&self, tenant: TenantId, now: Timestamp) -> impl Iterator<Item = Name> {
        let counters = self.counters.iter().map(move |it| it.name(tenant, now));
        let limits = self.limits.iter().map(move |it| it.name(tenant, now));
        let nonces = self.nonces.iter().map(move |it| it.name(tenant));
        counters.chain(limits).chain(nonces)
    }

    /// Returns the number of questions.
    pub const fn len(&self) -> usize {
        self.counters.len() + self.limits.len() + self.nonces.len()
    }

    /// Returns true if nothing but fleeting limits is asked about ([`Rule::is_fleeting`](super::Rule::is_fleeting)).
    pub fn is_fleeting(&self) -> bool {
        let only_limits = self.counters.is_empty() && self.nonces.is_empty();
        only_limits && !self.limits.is_empty() && self.limits.iter().all(|it| it.rule.is_fleeting())
    }

    /// Returns true if there are no questions.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The dependence of nonces on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Together {
    /// Each nonce is used on its own.
    #[default]
    Each,
    /// No nonce is used unless all can be.
    All,
}

/// The answers, in the order of the questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// The time of the decision.
    pub now: Timestamp,
    /// The answers of the counters.
    pub counters: Vec<Counted>,
    /// The answers of the limits.
    pub limits: Vec<Limited>,
    /// The answers about the nonces. An `Accepted` nonce was used only if [`Verdicts::passed`], unless
    /// each nonce was asked on its own.
    pub nonces: Vec<NonceResult>,
}

impl Verdicts {
    /// Returns true if everything passed.
    pub fn passed(&self) -> bool {
        let fresh = |result: &NonceResult| *result == NonceResult::Accepted;
        self.counters.iter().all(|counted| counted.allowed)
            && self.limits.iter().all(|limited| limited.allowed)
            && self.nonces.iter().all(fresh)
    }
}

/// The answers, and the rows to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The answer.
    pub verdicts: Verdicts,
    /// Rows to insert or replace, each name once.
    pub rows: Vec<(Name, Row)>,
}

/// Answers the questions. `load` is called once for each row.
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
    // Nonces alone, each on its own, are the one case where a refusal does not undo the others. In all
    // other cases it undoes everything but the counters, so the mark is set here.
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

/// Charges a refusal, after everything but the counters was undone: limits that refused charge the
/// price of a refusal, unless a nonce was a replay, and the others show their state before the call.
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
            // This limit would have passed: it reports its state, read with a cost of zero.
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
        // On its own it would pass: it was refused because an earlier limit of this call took from the
        // same row, and costs nothing.
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
    /// The rows that were overwritten, in order, with their content before.
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
        // The decision sees its own writes; a row past its end counts as absent.
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

    /// Returns the rows that were written, each once.
    fn rows(self) -> Vec<(Name, Row)> {
        let mut names: Vec<Name> = self.written.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        let row = |name: Name| Some((name, self.rows.get(&name).copied().flatten()?));
        names.into_iter().filter_map(row).collect()
    }
}
