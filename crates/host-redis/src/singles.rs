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
    queue: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Question {
    tenant: TenantId,
    /// The time to go by, unless it is the server's.
    now: Option<Timestamp>,
    asks: Asks,
    tell: oneshot::Sender<Result<Verdicts, Error>>,
}

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
        let question = Question {
            tenant,
            now,
            asks,
            tell,
        };
        self.queue.try_send(question).map_err(|_| Error::Busy)?;
        let gone = |_| Error::Unavailable("the connection is being closed".to_owned());
        told.await.map_err(gone)?
    }
}

async fn gather(to: Arc<(Arc<Server>, Keys)>, mut questions: mpsc::Receiver<Question>) {
    let turns = Arc::new(Semaphore::new(UNDER_WAY));
    let mut batch = Vec::new();
    while let Ok(turn) = Arc::clone(&turns).acquire_owned().await {
        if questions.recv_many(&mut batch, MOST).await == 0 {
            return;
        }
        // Who no longer waits is not served: a nonce that nobody asks about must not be used.
        let wanted = batch.drain(..).filter(|it| !it.tell.is_closed()).collect();
        let to = Arc::clone(&to);
        tokio::spawn(async move {
            let (server, keys) = &*to;
            for group in groups(wanted) {
                answer(server, keys, group).await;
            }
            drop(turn);
        });
    }
}

/// Only what is in one place, and decided at one time, goes together.
fn groups(questions: Vec<Question>) -> Vec<Vec<Question>> {
    let mut groups: Vec<Vec<Question>> = Vec::new();
    for question in questions {
        let place = |it: &Question| (it.tenant, it.now);
        let same = |group: &&mut Vec<Question>| {
            let first = group.first();
            first.is_some_and(|first| place(first) == place(&question))
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(question),
            None => groups.push(vec![question]),
        }
    }
    groups
}

async fn answer(server: &Server, keys: &Keys, mut group: Vec<Question>) {
    match ask(server, keys, &group).await {
        Ok(verdicts) => {
            for (question, verdict) in group.into_iter().zip(verdicts) {
                // Who asked may have gone.
                drop(question.tell.send(verdict));
            }
        }
        // One of the rows cannot be read, and nothing was written: the others are not to suffer for it.
        Err(Error::Corrupt(_)) if group.len() > 1 => {
            for question in group {
                let asked = ask(server, keys, std::slice::from_ref(&question)).await;
                let verdict = asked.and_then(|mut one| one.pop().ok_or_else(short)?);
                drop(question.tell.send(verdict));
            }
        }
        Err(error) => {
            for question in group.drain(..) {
                drop(question.tell.send(Err(error.clone())));
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
    let mut args = Args::default();
    args.put_number(group.len());
    for question in group {
        asks::put_keys(&mut args, keys, *tenant, &question.asks);
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
        asks::verdicts(*tenant, &question.asks, &Value::List(told))
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
