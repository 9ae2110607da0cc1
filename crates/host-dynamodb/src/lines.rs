//! Callers who ask about one limit at the same time are decided together.
//!
//! If each of them had a turn of its own, a flood on one row would take as many round trips as there are
//! callers; they would wait longer than they may, and who is not answered may be let through. So whoever
//! comes first begins a task that waits for the row's turn, and those who come meanwhile stand in line
//! with it. All of them are decided in one step: each for itself, one after the other in the order in
//! which they came, with one write of what the last one leaves, or one read if none of them changes the row.
//! How many there are costs DynamoDB nothing, so a line has no end.
//!
//! The step is nobody's own: a caller who goes away takes nothing with it, and is not counted unless the
//! step is under way. When all have gone, so has the step, so that one request that hangs does not keep the
//! row from those who come later.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Name, Row, Verdicts, decide},
};
use asyncgate_store::Error;
use tokio::sync::{oneshot, watch};

use crate::{
    Shared,
    question::{Belief, Question, Step},
    rows::{Stored, seen},
};

/// Who waits for a step that has not begun, by the row.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<Name, Line>>);

#[derive(Debug, Default)]
struct Line {
    callers: Vec<Caller>,
    /// Is closed when the last of them goes.
    open: watch::Sender<()>,
}

/// One who asks about a row and nothing else.
#[derive(Debug)]
struct Caller {
    now: Timestamp,
    asks: Asks,
    tell: oneshot::Sender<Result<Verdicts, Error>>,
}

impl Lines {
    /// Stands in line. Answers whether it is the first there, and what it has to hold while it waits.
    fn join(&self, name: Name, caller: Caller) -> (bool, watch::Receiver<()>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.entry(name).or_default();
        line.callers.push(caller);
        (line.callers.len() == 1, line.open.subscribe())
    }

    /// Takes all who wait. Who comes from now on is the first of another line.
    fn take(&self, name: Name) -> Line {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.remove(&name).unwrap_or_default()
    }
}

/// Decides about one row, together with all who ask about it now.
pub(crate) async fn decide_together(
    shared: &Arc<Shared>,
    tenant: TenantId,
    now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
    let gone = || Error::Unavailable("the step was given up".to_owned());
    let name = asks.names(tenant, now).next().ok_or_else(gone)?;
    let (tell, told) = oneshot::channel();
    let (first, _here) = shared.lines.join(name, Caller { now, asks, tell });
    if first {
        tokio::spawn(step(Arc::clone(shared), tenant, name));
    }
    told.await.map_err(|_| gone())?
}

/// Waits for the row's turn, decides about all who are in line by then, and tells them.
async fn step(shared: Arc<Shared>, tenant: TenantId, name: Name) {
    let names = [name];
    let mut turn = shared.turns.take(&names).await;
    let Line { mut callers, open } = shared.lines.take(name);
    let question = Question {
        table: &shared.table,
        tenant,
        names: &names,
    };
    let told = question.answer(&mut turn, |belief| {
        // Who no longer waits is not counted.
        callers.retain(|caller| !caller.tell.is_closed());
        decide_each(tenant, name, &callers, belief)
    });
    let told = tokio::select! {
        told = told => told,
        () = open.closed() => return,
    };
    drop(turn);
    let told: Vec<Result<Verdicts, Error>> = match told {
        Ok(verdicts) => verdicts.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); callers.len()],
    };
    for (caller, told) in callers.into_iter().zip(told) {
        // It may have gone just now.
        drop(caller.tell.send(told));
    }
}

/// Decides each for itself, over the row as the one before left it.
fn decide_each(
    tenant: TenantId,
    name: Name,
    callers: &[Caller],
    belief: &Belief,
) -> Result<Step<Vec<Verdicts>>, Error> {
    let mut row: Option<Row> = belief.get(&name).map(|stored| stored.row);
    let mut written = None;
    let mut earliest: Option<Timestamp> = None;
    let mut verdicts = Vec::with_capacity(callers.len());
    for caller in callers {
        let seen = row.as_ref().and_then(seen);
        // Only a bucket has seen a time, and its name is the same at any.
        let now = seen.map_or(caller.now, |seen| seen.max(caller.now));
        let decision = decide(tenant, now, &caller.asks, |_| Ok::<_, Error>(row))?;
        if let Some((_, left)) = decision.rows.into_iter().next() {
            (row, written) = (Some(left), Some(left));
        }
        verdicts.push(decision.verdicts);
        // The condition must hold for all: a row whose time is over for the earliest is over for the others.
        earliest = Some(earliest.map_or(now, |earliest| earliest.min(now)));
    }
    let Some(now) = earliest else {
        return Ok(Step::Over(verdicts));
    };
    let rows = written.map(|row| (name, Stored::new(row)));
    Ok(Step::Decided {
        now,
        rows: rows.into_iter().collect(),
        told: verdicts,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use asyncgate_core::admission::Cell;
    use asyncgate_store::{
        admission::Host,
        conformance::{bucket, limit, window},
    };
    use futures_util::FutureExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::DynamoHost;

    const TENANT: TenantId = TenantId::from_bytes([7; 16]);
    const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);

    /// Callers who want one each, at times so many milliseconds after another.
    fn line(asks: &Asks, millis: &[i64]) -> Vec<Caller> {
        let caller = |millis: &i64| Caller {
            now: NOW.plus_millis(*millis),
            asks: asks.clone(),
            tell: oneshot::channel().0,
        };
        millis.iter().map(caller).collect()
    }

    /// What is decided: its time, the row that is left, and for each the time and how many are left.
    fn decided(
        asks: &Asks,
        millis: &[i64],
        row: Option<Row>,
    ) -> (Timestamp, Option<Row>, Vec<(i64, u64)>) {
        let name = asks.names(TENANT, NOW).next().unwrap();
        let belief = row
            .map(|row| (name, Stored::new(row)))
            .into_iter()
            .collect();
        let step = decide_each(TENANT, name, &line(asks, millis), &belief).unwrap();
        let Step::Decided { now, rows, told } = step else {
            panic!("somebody is in line");
        };
        let told = told.iter().map(|verdicts| {
            let millis = verdicts.now.millis_since(NOW);
            (millis, verdicts.limits[0].remaining)
        });
        (
            now,
            rows.get(&name).map(|stored| stored.row),
            told.collect(),
        )
    }

    #[test]
    fn a_bucket_does_not_fill_by_the_difference_of_two_callers() {
        let asks = Asks {
            limits: vec![limit(&bucket(5, 60, false), "k", 1)],
            ..Asks::default()
        };
        // One token a second: the second is behind, the fourth comes when one is back.
        let (now, row, told) = decided(&asks, &[0, -1_000, 0, 1_000, 0], None);
        assert_eq!(told, [(0, 4), (0, 3), (0, 2), (1_000, 2), (1_000, 1)]);
        assert_eq!(now, NOW);
        let at = NOW.plus_millis(1_000).as_millis();
        assert!(matches!(row.unwrap().cell, Cell::Bucket { at: seen, .. } if seen == at));
    }

    #[test]
    fn a_row_whose_time_is_over_for_one_may_matter_to_another() {
        let asks = Asks {
            limits: vec![limit(&window(9), "k", 1)],
            ..Asks::default()
        };
        let count = |count, until| Row {
            cell: Cell::Window { count },
            until,
        };
        let old = count(5, NOW.plus_millis(1));
        let (now, row, told) = decided(&asks, &[1, 0], Some(old));
        assert_eq!(told, [(1, 8), (0, 7)]);
        assert_eq!(row.unwrap().cell, Cell::Window { count: 2 });
        // The condition goes by the time at which the old row still matters, and so asks for just that row.
        assert_eq!(now, NOW);
        let (_, row, told) = decided(&asks, &[0, 1], Some(old));
        assert_eq!(told, [(0, 3), (1, 2)]);
        assert_eq!(row.unwrap().cell, Cell::Window { count: 7 });
    }

    #[test]
    fn those_who_change_nothing_leave_nothing_to_write() {
        let asks = Asks {
            limits: vec![limit(&window(2), "k", 3)],
            ..Asks::default()
        };
        let (_, row, told) = decided(&asks, &[0, 0], None);
        assert_eq!((row, told), (None, vec![(0, 2), (0, 2)]));
    }

    #[tokio::test]
    async fn a_step_that_hangs_ends_with_the_last_who_waits_for_it() {
        // Who takes a request and never answers.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let address = format!("dynamodb://gate?region=r&endpoint=http://127.0.0.1:{port}");
        let env = |_: &str| Some("k".to_owned());
        let host = DynamoHost::new(&address.parse().unwrap(), env, Timestamp::default).unwrap();
        let check = limit(&window(9), "k", 1);
        let mut calls = [(); 2].map(|()| host.check_limit(TENANT, NOW, &check));
        for call in &mut calls {
            assert!(call.now_or_never().is_none());
        }
        let (request, _) = silent.accept().await.unwrap();
        request.readable().await.unwrap();
        let [first, second] = calls;
        // The host has a share in what is shared, and the step another.
        for (call, shares) in [(first, 2), (second, 1)] {
            drop(call);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(Arc::strong_count(&host.0), shares);
        }
    }
}
