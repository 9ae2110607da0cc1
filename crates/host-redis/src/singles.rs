//! Callers who ask about one thing at the same time are answered by one script.
//!
//! Whoever comes while questions are under way waits for the next script, which takes all that have come
//! meanwhile. A caller alone waits for nobody. What one asks is independent of the others: the script
//! decides each for itself, in the order in which they came.

use std::sync::Arc;

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Rule, Verdicts},
};
use asyncgate_store::Error;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{
    asks,
    keys::Keys,
    resp::{Args, Value},
    script,
    server::Server,
};

/// How many scripts are under way: while one runs, the answers of the other are told and the next is made.
const UNDER_WAY: usize = 2;
/// How many questions a script takes.
const MOST: usize = 32;
/// How many may wait.
const MAX_WAITING: usize = 8_192;

/// Whether a question can be asked together with those of others.
pub(crate) fn is_single(asks: &Asks) -> bool {
    let bucket = |rule: &Rule| matches!(rule, Rule::Bucket(_));
    asks.len() == 1
        && asks.counters.is_empty()
        && !asks.peek
        && asks.limits.iter().all(|check| bucket(&check.rule))
}

/// Where single questions are gathered.
#[derive(Debug)]
pub(crate) struct Singles {
    queue: mpsc::Sender<(Question, Tell)>,
}

#[derive(Debug)]
struct Question {
    tenant: TenantId,
    /// The time to go by, unless it is the server's.
    now: Option<Timestamp>,
    asks: Asks,
}

/// Who asked a question, and waits for this.
type Tell = oneshot::Sender<Result<Verdicts, Error>>;

impl Singles {
    /// Begins to gather. It ends when this is dropped.
    pub(crate) fn new(server: Arc<Server>, keys: Keys) -> Self {
        let (queue, questions) = mpsc::channel(MAX_WAITING);
        tokio::spawn(gather(Arc::new((server, keys)), questions));
        Self { queue }
    }

    pub(crate) async fn ask(
        &self,
        tenant: TenantId,
        now: Option<Timestamp>,
        asks: Asks,
    ) -> Result<Verdicts, Error> {
        let (tell, told) = oneshot::channel();
        let question = Question { tenant, now, asks };
        self.queue
            .try_send((question, tell))
            .map_err(|_| Error::Busy)?;
        let gone = |_| Error::Unavailable("the connection is being closed".to_owned());
        told.await.map_err(gone)?
    }
}

async fn gather(to: Arc<(Arc<Server>, Keys)>, mut asked: mpsc::Receiver<(Question, Tell)>) {
    let turns = Arc::new(Semaphore::new(UNDER_WAY));
    let mut batch = Vec::new();
    while let Ok(turn) = Arc::clone(&turns).acquire_owned().await {
        if asked.recv_many(&mut batch, MOST).await == 0 {
            return;
        }
        let groups = groups(batch.drain(..));
        let to = Arc::clone(&to);
        tokio::spawn(async move {
            let (server, keys) = &*to;
            for group in groups {
                answer(server, keys, group).await;
            }
            drop(turn);
        });
    }
}

/// Only what is decided at one time goes together: all, but for tests.
fn groups(asked: impl Iterator<Item = (Question, Tell)>) -> Vec<Vec<(Question, Tell)>> {
    let mut groups: Vec<Vec<(Question, Tell)>> = Vec::new();
    for (question, tell) in asked {
        let same = |group: &&mut Vec<(Question, Tell)>| {
            let first = group.first();
            first.is_some_and(|(first, _)| first.now == question.now)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push((question, tell)),
            None => groups.push(vec![(question, tell)]),
        }
    }
    groups
}

async fn answer(server: &Server, keys: &Keys, mut group: Vec<(Question, Tell)>) {
    // Who no longer waits is not served: a nonce that nobody asks about must not be used.
    group.retain(|(_, tell)| !tell.is_closed());
    let (questions, mut tells): (Vec<Question>, Vec<Tell>) = group.into_iter().unzip();
    let gone = futures_util::future::join_all(tells.iter_mut().map(Tell::closed));
    // What was not sent yet when the last of them has gone is not sent at all.
    let verdicts = tokio::select! {
        biased;
        verdicts = ask(server, keys, &questions) => verdicts,
        _ = gone => return,
    };
    match verdicts {
        Ok(verdicts) => {
            for (tell, verdict) in tells.into_iter().zip(verdicts) {
                // Who asked may have gone.
                drop(tell.send(verdict));
            }
        }
        // One of the rows cannot be read, and nothing was written: the others are not to suffer for it.
        Err(Error::Corrupt(_)) if questions.len() > 1 => {
            for one in questions.into_iter().zip(tells) {
                Box::pin(answer(server, keys, vec![one])).await;
            }
        }
        Err(error) => {
            for tell in tells {
                drop(tell.send(Err(error.clone())));
            }
        }
    }
}

/// Asks them together. Answers for each, unless nobody is answered.
async fn ask(
    server: &Server,
    keys: &Keys,
    group: &[Question],
) -> Result<Vec<Result<Verdicts, Error>>, Error> {
    let Some(Question { tenant, now, .. }) = group.first() else {
        return Ok(Vec::new());
    };
    // Not in a cluster: there is one server, and it has the rows of every tenant.
    let mut args = Args::default();
    args.put_number(group.len());
    for Question { tenant, asks, .. } in group {
        asks::put_keys(&mut args, keys, *tenant, asks);
    }
    asks::put_time(&mut args, *now);
    args.put_number(0);
    for Question { asks, .. } in group {
        for check in &asks.limits {
            asks::put_limit(&mut args, check);
        }
        for nonce in &asks.nonces {
            args.put("n");
            asks::put_nonce(&mut args, nonce);
        }
    }
    let told = server.run(&script::SINGLES, *tenant, &args).await?;
    let [now, told @ ..] = told.list().ok_or_else(short)? else {
        return Err(short());
    };
    if told.len() != 2 * group.len() {
        return Err(short());
    }
    let verdict = |(question, told): (&Question, &[Value])| {
        let told = [std::slice::from_ref(now), told].concat();
        asks::verdicts(question.tenant, &question.asks, &Value::List(told))
    };
    Ok(group
        .iter()
        .zip(told.chunks_exact(2))
        .map(verdict)
        .collect())
}

fn short() -> Error {
    Error::Corrupt("Redis: the script's answer is not as long as the questions".to_owned())
}
