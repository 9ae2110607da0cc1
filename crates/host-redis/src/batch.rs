//! Batches: small questions of several callers share one call of a script, because the call costs more than the
//! decision.
//!
//! Callers who come while calls are under way wait for the next call, which takes all questions that have come
//! meanwhile. A caller alone waits for nobody. The questions are independent of each other: the script decides
//! each for itself, in the order of arrival.

use std::sync::Arc;

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Rule, Verdicts},
};
use asyncgate_store::Error;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{
    connection::overloaded,
    encoding,
    keys::Keys,
    redis::Redis,
    resp::{Args, Value},
    script,
};

/// The most calls under way. With two, one runs while the answers of the other are delivered.
const MAX_CALLS: usize = 2;
/// The most questions in one call.
const MAX_BATCH: usize = 32;
/// The most questions that wait.
const MAX_WAITING: usize = 8_192;

/// Returns true if a question can share a call: it is about one bucket or one nonce.
pub(crate) fn can_batch(asks: &Asks) -> bool {
    let bucket = |rule: &Rule| matches!(rule, Rule::Bucket(_));
    asks.len() == 1
        && asks.counters.is_empty()
        && !asks.peek
        && asks.limits.iter().all(|check| bucket(&check.rule))
}

/// Gathers questions into batches.
#[derive(Debug)]
pub(crate) struct Batcher {
    queue: mpsc::Sender<(Question, ReplyTo)>,
}

#[derive(Debug)]
struct Question {
    tenant: TenantId,
    /// The time to use. None stands for the server's clock.
    now: Option<Timestamp>,
    asks: Asks,
}

/// The way back to the caller of a question.
type ReplyTo = oneshot::Sender<Result<Verdicts, Error>>;

impl Batcher {
    /// Starts the task that gathers. It ends when this is dropped.
    pub(crate) fn new(redis: Arc<Redis>, keys: Keys) -> Self {
        let (queue, questions) = mpsc::channel(MAX_WAITING);
        tokio::spawn(gather(Arc::new((redis, keys)), questions));
        Self { queue }
    }

    pub(crate) async fn ask(
        &self,
        tenant: TenantId,
        now: Option<Timestamp>,
        asks: Asks,
    ) -> Result<Verdicts, Error> {
        let (reply, answer) = oneshot::channel();
        let question = Question { tenant, now, asks };
        self.queue
            .try_send((question, reply))
            .map_err(|_| overloaded())?;
        let gone = |_| Error::Unavailable("the connection is being closed".to_owned());
        answer.await.map_err(gone)?
    }
}

async fn gather(to: Arc<(Arc<Redis>, Keys)>, mut questions: mpsc::Receiver<(Question, ReplyTo)>) {
    let calls = Arc::new(Semaphore::new(MAX_CALLS));
    let mut batch = Vec::new();
    // The permit comes first, so that questions which come while both calls are under way share the next one.
    while let Ok(permit) = Arc::clone(&calls).acquire_owned().await {
        if questions.recv_many(&mut batch, MAX_BATCH).await == 0 {
            return;
        }
        let groups = groups(batch.drain(..));
        let to = Arc::clone(&to);
        tokio::spawn(async move {
            let (redis, keys) = &*to;
            for group in groups {
                answer(redis, keys, group).await;
            }
            drop(permit);
        });
    }
}

/// Groups questions by their time, because a call has one time. In the product it is always the server's, so
/// there is one group; only tests have several.
fn groups(questions: impl Iterator<Item = (Question, ReplyTo)>) -> Vec<Vec<(Question, ReplyTo)>> {
    let mut groups: Vec<Vec<(Question, ReplyTo)>> = Vec::new();
    for (question, reply) in questions {
        let same = |group: &&mut Vec<(Question, ReplyTo)>| {
            let first = group.first();
            first.is_some_and(|(first, _)| first.now == question.now)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push((question, reply)),
            None => groups.push(vec![(question, reply)]),
        }
    }
    groups
}

/// Asks a group in one call, and answers its callers.
async fn answer(redis: &Redis, keys: &Keys, mut group: Vec<(Question, ReplyTo)>) {
    // Questions of callers who have gone are left out: nobody would know that their nonces were used.
    group.retain(|(_, reply)| !reply.is_closed());
    let (questions, mut replies): (Vec<Question>, Vec<ReplyTo>) = group.into_iter().unzip();
    let gone = futures_util::future::join_all(replies.iter_mut().map(ReplyTo::closed));
    // Dropping the call when the last caller has gone keeps a request from being sent that still waits.
    let verdicts = tokio::select! {
        biased;
        verdicts = ask(redis, keys, &questions) => verdicts,
        _ = gone => return,
    };
    match verdicts {
        Ok(verdicts) => {
            for (reply, verdict) in replies.into_iter().zip(verdicts) {
                // The caller may have gone.
                drop(reply.send(verdict));
            }
        }
        // One row cannot be read, and nothing was written. Each question is asked alone, so that only the
        // callers of that row get the error.
        Err(Error::Corrupt(_)) if questions.len() > 1 => {
            for one in questions.into_iter().zip(replies) {
                Box::pin(answer(redis, keys, vec![one])).await;
            }
        }
        Err(error) => {
            for reply in replies {
                drop(reply.send(Err(error.clone())));
            }
        }
    }
}

/// Asks a group in one call. Returns the answer to each question, or the error of the whole call.
async fn ask(
    redis: &Redis,
    keys: &Keys,
    group: &[Question],
) -> Result<Vec<Result<Verdicts, Error>>, Error> {
    let Some(Question { tenant, now, .. }) = group.first() else {
        return Ok(Vec::new());
    };
    // The first tenant stands for all, because one server has the rows of every tenant: there are no batches in
    // a cluster.
    let mut args = Args::default();
    args.put_number(group.len());
    for Question { tenant, asks, .. } in group {
        encoding::put_keys(&mut args, keys, *tenant, asks);
    }
    encoding::put_time(&mut args, *now);
    args.put_number(0);
    for Question { asks, .. } in group {
        for check in &asks.limits {
            encoding::put_limit(&mut args, check);
        }
        for nonce in &asks.nonces {
            args.put("n");
            encoding::put_nonce(&mut args, nonce);
        }
    }
    let answer = redis.run(&script::BATCH, *tenant, &args).await?;
    let [now, answers @ ..] = answer.list().ok_or_else(short)? else {
        return Err(short());
    };
    if answers.len() != 2 * group.len() {
        return Err(short());
    }
    let verdict = |(question, answer): (&Question, &[Value])| {
        let answer = [std::slice::from_ref(now), answer].concat();
        encoding::verdicts(question.tenant, &question.asks, &Value::List(answer))
    };
    Ok(group
        .iter()
        .zip(answers.chunks_exact(2))
        .map(verdict)
        .collect())
}

fn short() -> Error {
    Error::Corrupt("Redis: the script's answer is not as long as the questions".to_owned())
}
