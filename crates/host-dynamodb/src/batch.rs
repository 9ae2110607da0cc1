//! Decides callers together who ask about one limit at the same time.
//!
//! If each caller locked the row for itself, a flood on one row would take as many round trips as there are
//! callers. They would wait longer than their deadline, and a caller without an answer may be let through. So
//! the first caller starts a task that waits for the row's lock, and callers who come meanwhile join its
//! batch. The batch is decided in one transaction: each caller for itself, in the order of arrival, with one
//! write of the row as the last caller leaves it, or one read if no caller changes the row. A batch has no
//! size limit, because its size costs DynamoDB nothing.
//!
//! The task belongs to no caller: a caller who goes away does not stop it, and is not counted unless the
//! transaction has begun. The task ends when all callers have gone, so that a request that hangs does not
//! keep the row from later callers.

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
    rows::{Stored, last_seen},
    transaction::{Proposal, RowSet, Transaction},
};

/// The batches that wait for their rows' locks, by row.
#[derive(Debug, Default)]
pub(crate) struct Batches(Mutex<HashMap<Name, Batch>>);

#[derive(Debug, Default)]
struct Batch {
    callers: Vec<Caller>,
    /// Every caller holds a receiver, so this channel closes when the last caller goes.
    presence: watch::Sender<()>,
}

/// A caller who asks about one row and nothing else.
#[derive(Debug)]
struct Caller {
    now: Timestamp,
    asks: Asks,
    reply: oneshot::Sender<Result<Verdicts, Error>>,
}

impl Batches {
    /// Adds a caller to the row's batch. Returns true for the first caller, and the receiver that the caller
    /// holds while it waits.
    fn join(&self, name: Name, caller: Caller) -> (bool, watch::Receiver<()>) {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = batches.entry(name).or_default();
        batch.callers.push(caller);
        (batch.callers.len() == 1, batch.presence.subscribe())
    }

    /// Removes the row's batch. The next caller begins another one.
    fn take(&self, name: Name) -> Batch {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batches.remove(&name).unwrap_or_default()
    }
}

/// Decides a question about one row, together with all callers who ask about it now.
pub(crate) async fn admit(
    shared: &Arc<Shared>,
    tenant: TenantId,
    now: Timestamp,
    asks: Asks,
) -> Result<Verdicts, Error> {
    let gone = || Error::Unavailable("the step was given up".to_owned());
    let name = asks.names(tenant, now).next().ok_or_else(gone)?;
    let (reply, answer) = oneshot::channel();
    let (first, _presence) = shared.batches.join(name, Caller { now, asks, reply });
    if first {
        tokio::spawn(run(Arc::clone(shared), tenant, name));
    }
    answer.await.map_err(|_| gone())?
}

/// Locks the row, decides the batch as it is by then, and answers its callers.
async fn run(shared: Arc<Shared>, tenant: TenantId, name: Name) {
    let names = [name];
    let mut lock = shared.row_locks.lock(&names).await;
    // Only now: everybody who came while the row was locked is in the batch.
    let Batch {
        mut callers,
        presence,
    } = shared.batches.take(name);
    let transaction = Transaction {
        table: &shared.table,
        tenant,
        names: &names,
    };
    let answers = transaction.run(&mut lock, |assumed| {
        // A caller who has gone is not counted.
        callers.retain(|caller| !caller.reply.is_closed());
        decide_each(tenant, name, &callers, assumed)
    });
    let answers = tokio::select! {
        answers = answers => answers,
        () = presence.closed() => return,
    };
    drop(lock);
    let answers: Vec<Result<Verdicts, Error>> = match answers {
        Ok(verdicts) => verdicts.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); callers.len()],
    };
    for (caller, answer) in callers.into_iter().zip(answers) {
        // The caller may have gone just now.
        drop(caller.reply.send(answer));
    }
}

/// Decides each caller for itself, over the row as the caller before left it.
fn decide_each(
    tenant: TenantId,
    name: Name,
    callers: &[Caller],
    assumed: &RowSet,
) -> Result<Proposal<Vec<Verdicts>>, Error> {
    let mut row: Option<Row> = assumed.get(&name).map(|stored| stored.row);
    let mut written = None;
    let mut earliest: Option<Timestamp> = None;
    let mut verdicts = Vec::with_capacity(callers.len());
    for caller in callers {
        let seen = row.as_ref().and_then(last_seen);
        // Only a bucket remembers a time, and its name does not depend on the time.
        let now = seen.map_or(caller.now, |seen| seen.max(caller.now));
        let decision = decide(tenant, now, &caller.asks, |_| Ok::<_, Error>(row))?;
        if let Some((_, left)) = decision.rows.into_iter().next() {
            (row, written) = (Some(left), Some(left));
        }
        verdicts.push(decision.verdicts);
        // The condition must hold for all: a row that has expired for the earliest caller has expired for
        // the others too, but not the other way round.
        earliest = Some(earliest.map_or(now, |earliest| earliest.min(now)));
    }
    let Some(now) = earliest else {
        return Ok(Proposal::Final(verdicts));
    };
    let rows = written.map(|row| (name, Stored::new(row)));
    Ok(Proposal::Write {
        now,
        rows: rows.into_iter().collect(),
        answer: verdicts,
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

    /// Callers who ask the same, each so many milliseconds after [`NOW`].
    fn callers(asks: &Asks, millis: &[i64]) -> Vec<Caller> {
        let caller = |millis: &i64| Caller {
            now: NOW.plus_millis(*millis),
            asks: asks.clone(),
            reply: oneshot::channel().0,
        };
        millis.iter().map(caller).collect()
    }

    /// Decides, and returns the time of the condition, the row that is left, and for each caller the time in
    /// milliseconds after [`NOW`] and how many are left.
    fn decided(
        asks: &Asks,
        millis: &[i64],
        row: Option<Row>,
    ) -> (Timestamp, Option<Row>, Vec<(i64, u64)>) {
        let name = asks.names(TENANT, NOW).next().unwrap();
        let assumed = row
            .map(|row| (name, Stored::new(row)))
            .into_iter()
            .collect();
        let proposal = decide_each(TENANT, name, &callers(asks, millis), &assumed).unwrap();
        let Proposal::Write { now, rows, answer } = proposal else {
            panic!("there are callers");
        };
        let answers = answer.iter().map(|verdicts| {
            let millis = verdicts.now.millis_since(NOW);
            (millis, verdicts.limits[0].remaining)
        });
        (
            now,
            rows.get(&name).map(|stored| stored.row),
            answers.collect(),
        )
    }

    #[test]
    fn a_bucket_does_not_fill_by_the_difference_of_two_callers() {
        let asks = Asks {
            limits: vec![limit(&bucket(5, 60, false), "k", 1)],
            ..Asks::default()
        };
        // One token a second: the second caller is behind, the fourth comes when a token is back.
        let (now, row, answers) = decided(&asks, &[0, -1_000, 0, 1_000, 0], None);
        assert_eq!(answers, [(0, 4), (0, 3), (0, 2), (1_000, 2), (1_000, 1)]);
        assert_eq!(now, NOW);
        let at = NOW.plus_millis(1_000).as_millis();
        assert!(matches!(row.unwrap().cell, Cell::Bucket { at: seen, .. } if seen == at));
    }

    #[test]
    fn a_row_that_expired_for_one_caller_may_matter_to_another() {
        let asks = Asks {
            limits: vec![limit(&window(9), "k", 1)],
            ..Asks::default()
        };
        let count = |count, until| Row {
            cell: Cell::Window { count },
            until,
        };
        let old = count(5, NOW.plus_millis(1));
        let (now, row, answers) = decided(&asks, &[1, 0], Some(old));
        assert_eq!(answers, [(1, 8), (0, 7)]);
        assert_eq!(row.unwrap().cell, Cell::Window { count: 2 });
        // The condition uses the time at which the old row still matters, and so asks for just that row.
        assert_eq!(now, NOW);
        let (_, row, answers) = decided(&asks, &[0, 1], Some(old));
        assert_eq!(answers, [(0, 3), (1, 2)]);
        assert_eq!(row.unwrap().cell, Cell::Window { count: 7 });
    }

    #[test]
    fn callers_who_change_nothing_write_nothing() {
        let asks = Asks {
            limits: vec![limit(&window(2), "k", 3)],
            ..Asks::default()
        };
        let (_, row, answers) = decided(&asks, &[0, 0], None);
        assert_eq!((row, answers), (None, vec![(0, 2), (0, 2)]));
    }

    #[tokio::test]
    async fn a_batch_that_hangs_ends_with_its_last_caller() {
        // It takes a request and never answers.
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
        // The host holds one reference, and the batch's task another.
        for (call, references) in [(first, 2), (second, 1)] {
            drop(call);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(Arc::strong_count(&host.0), references);
        }
    }
}
