//! Ending a task: a worker reports success, or a failure that may be retried.

use crate::{
    Decision, Env, Json, Ledger, Locatability, Principal, ReceiptId, ReceiptType, Rejection, Seq,
    Task, Timestamp,
    ledger::Draft,
    receipt::{Body, MAX_ARTIFACTS, MAX_PROOF_BYTES},
    task::{End, Hold, Outcome, State, batch::alone, hold::put},
};

/// A reported success.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    /// The result of the work.
    pub result: Option<Json>,
    /// The addresses of the results: a list, one object or one text.
    pub artifacts: Option<Json>,
    /// The proof that the results were delivered.
    pub delivery_proof: Option<Json>,
    /// A summary for people.
    pub summary: Option<String>,
    /// What else there is to say of the work: an object.
    pub metadata: Option<Json>,
}

/// A reported failure.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The worker's description of the failure.
    pub error: Json,
    /// True if trying again may help.
    pub retryable: bool,
    /// The delay before the retry; absent means the usual one.
    pub retry_after_seconds: Option<u32>,
}

/// A worker's report of the end of its work.
#[derive(Debug, Clone)]
pub enum Report {
    /// A success.
    Completed(Completion),
    /// A failure.
    Failed(Failure),
}

/// The answer to a worker that reported the end of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// True if this call repeats the one that ended the task; nothing changed.
    pub duplicate: bool,
    /// The receipt of the end or of the retry.
    pub receipt_id: ReceiptId,
    /// True if the owner is owed nothing any more.
    pub discharged: bool,
    /// The time from which the task can be claimed again, if it will be retried.
    pub retry_at: Option<Timestamp>,
}

impl Completion {
    /// Returns true if the completion says where the results are. A list or an object counts as proof, and
    /// a text as one artifact; what is empty does not.
    fn is_locatable(&self) -> bool {
        let says = |proof: &Option<Json>, forms: &[char]| {
            let proof = proof.as_ref();
            proof.is_some_and(|proof| proof.text().starts_with(forms) && !proof.says_nothing())
        };
        says(&self.artifacts, &['[', '{', '"']) || says(&self.delivery_proof, &['[', '{'])
    }

    fn check_limits(&self, env: &Env) -> Result<(), Rejection> {
        let limit = env.policy.max_payload_bytes;
        if self
            .result
            .as_ref()
            .is_some_and(|result| result.len() > limit)
        {
            return Err(Rejection::TooLarge {
                what: "result",
                limit,
            });
        }
        let artifacts = self.artifacts.as_ref();
        let count = artifacts.and_then(Json::array_len);
        if count.is_some_and(|count| count > MAX_ARTIFACTS) {
            let (what, limit) = ("the number of artifacts", MAX_ARTIFACTS);
            return Err(Rejection::LimitExceeded { what, limit });
        }
        // Both stand in one receipt, and proof never leaves its receipt.
        let proof = [artifacts, self.delivery_proof.as_ref()];
        let bytes: usize = proof.into_iter().flatten().map(Json::len).sum();
        if bytes > MAX_PROOF_BYTES {
            let what = "the size of artifacts and delivery_proof in bytes";
            let limit = MAX_PROOF_BYTES;
            return Err(Rejection::LimitExceeded { what, limit });
        }
        Ok(())
    }
}

/// Ends a task with success. Without proof of where the result is, the obligation stays open
/// (lenient) or the call is refused (strict); the same worker may send the proof later.
pub fn complete(
    env: Env,
    head: Seq,
    hold: &Hold,
    task: Task,
    completion: Completion,
) -> Result<Decision<Finished>, Rejection> {
    alone(env, head, |env, ledger| {
        report_success(env, ledger, hold, task, completion)
    })
}

/// Does the work of [`complete`] or [`fail`] behind what was decided before.
pub(super) fn report(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    task: Task,
    report: Report,
) -> Result<Finished, Rejection> {
    match report {
        Report::Completed(completion) => report_success(env, ledger, hold, task, completion),
        Report::Failed(failure) => report_failure(env, ledger, hold, task, failure),
    }
}

fn report_success(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    task: Task,
    completion: Completion,
) -> Result<Finished, Rejection> {
    // Sizes are checked before the repetition, so that a call gets the same refusal however often it is
    // sent.
    completion.check_limits(env)?;
    // An ended task has no lease any more, so a repeated call must be recognised before the check
    // of the lease would refuse it.
    if let Some(end) = ended_by(hold, &task, Outcome::Succeeded) {
        // Late proof is accepted from the worker that ended the task, even though its lease is over.
        if !end.discharged && completion.is_locatable() {
            return Ok(prove(env, ledger, hold, task, completion));
        }
        return Ok(repeat(end));
    }
    hold.check(env, &task)?;
    let locatable = completion.is_locatable();
    if !locatable && env.policy.locatability == Locatability::Strict {
        return Err(Rejection::Unlocatable);
    }
    let receipt = completed_receipt(env, ledger, hold, &task, &completion);
    let end = End {
        outcome: Outcome::Succeeded,
        at: env.now,
        by: Some((hold.lease_id, hold.worker.clone())),
        result: completion.result,
        error: None,
        artifacts: completion.artifacts,
        delivery_proof: completion.delivery_proof,
        result_summary: completion.summary,
        completion_metadata: completion.metadata,
        receipt,
        discharged: locatable,
    };
    Ok(finish(env, ledger, task, end))
}

/// Appends the receipt that discharges the obligation of a success whose proof came late. What the first
/// call said of the result stays.
fn prove(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    mut task: Task,
    mut completion: Completion,
) -> Finished {
    let before = task.standing();
    if let Some(end) = task.end() {
        completion.result.clone_from(&end.result);
        completion.summary.clone_from(&end.result_summary);
        completion.metadata.clone_from(&end.completion_metadata);
    }
    let receipt_id = completed_receipt(env, ledger, hold, &task, &completion);
    if let State::Ended(end) = &mut task.state {
        end.artifacts = completion.artifacts;
        end.delivery_proof = completion.delivery_proof;
        end.discharged = true;
        end.receipt = receipt_id;
    }
    put(env, ledger, task, before);
    Finished {
        duplicate: false,
        receipt_id,
        discharged: true,
        retry_at: None,
    }
}

fn completed_receipt(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    task: &Task,
    completion: &Completion,
) -> ReceiptId {
    let body = Body::new()
        .with_content("result_payload", completion.result.as_ref())
        .with_content("completion_metadata", completion.metadata.as_ref())
        .with_some("result_summary", completion.summary.as_ref())
        .with_proof("artifacts", completion.artifacts.as_ref())
        .with_proof("delivery_proof", completion.delivery_proof.as_ref());
    // The receipt records the success in both cases; only one with proof discharges the obligation.
    let draft = terminal(ReceiptType::TaskCompleted, hold, task, body);
    if completion.is_locatable() {
        ledger.discharge(env, draft, vec![task.assignment])
    } else {
        // No parent: the success is recorded, but the owner's obligation stays open.
        ledger.append(env, draft)
    }
}

/// Reports a failure. It is retried with growing delays if that may help and attempts are left;
/// otherwise it ends the task.
pub fn fail(
    env: Env,
    head: Seq,
    hold: &Hold,
    task: Task,
    failure: Failure,
) -> Result<Decision<Finished>, Rejection> {
    alone(env, head, |env, ledger| {
        report_failure(env, ledger, hold, task, failure)
    })
}

fn report_failure(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    mut task: Task,
    failure: Failure,
) -> Result<Finished, Rejection> {
    let limit = env.policy.max_payload_bytes;
    if failure.error.len() > limit {
        return Err(Rejection::TooLarge {
            what: "error",
            limit,
        });
    }
    // As in `complete`: the lease of an ended task is gone, and its worker may only repeat its call.
    if let Some(end) = ended_by(hold, &task, Outcome::Failed) {
        return Ok(repeat(end));
    }
    hold.check(env, &task)?;
    // Only a reported failure counts as an attempt; expired and released leases do not.
    task.attempt += 1;
    let body = Body::new()
        .with("attempt", task.attempt)
        .with("retry_recommended", failure.retryable)
        .with_content("error", Some(&failure.error));
    if failure.retryable && task.attempt < task.spec.max_attempts {
        return Ok(retry(env, ledger, hold, task, failure, body));
    }
    let draft = terminal(ReceiptType::TaskFailed, hold, &task, body);
    let receipt = ledger.discharge(env, draft, vec![task.assignment]);
    let end = End {
        by: Some((hold.lease_id, hold.worker.clone())),
        ..End::without_result(Outcome::Failed, env.now, Some(failure.error), receipt)
    };
    Ok(finish(env, ledger, task, end))
}

fn retry(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    mut task: Task,
    failure: Failure,
    body: Body,
) -> Finished {
    let before = task.standing();
    let wished = failure.retry_after_seconds;
    let delay_ms = wished.map_or_else(
        || backoff_ms(env, &task),
        |seconds| i64::from(seconds) * 1_000,
    );
    let retry_at = env.now.plus_millis(delay_ms);
    let body = body
        .with("next_eligible_at", retry_at.to_string())
        .with_some("retry_after_seconds", wished);
    let draft = terminal(ReceiptType::TaskRetryScheduled, hold, &task, body);
    let receipt_id = ledger.append(env, draft);
    // A backoff of zero needs no deadline: the task is ready without a sweep.
    let at_once = retry_at <= env.now;
    task.state = if at_once {
        State::Ready
    } else {
        State::Delayed
    };
    task.next_eligible_at = retry_at;
    task.retried_error = Some(failure.error);
    put(env, ledger, task, before);
    Finished {
        duplicate: false,
        receipt_id,
        discharged: false,
        retry_at: Some(retry_at),
    }
}

/// Returns the delay before the next try: it doubles with each reported failure, up to the maximum.
fn backoff_ms(env: &Env, task: &Task) -> i64 {
    // 32 doublings exceed every maximum, and a 32-bit number shifted by 32 still fits 64 bits.
    let doublings = task.attempt.saturating_sub(1).min(32);
    let seconds = u64::from(task.spec.retry_backoff_seconds) << doublings;
    let seconds = seconds.min(u64::from(env.policy.max_retry_backoff_seconds));
    i64::try_from(seconds * 1_000).unwrap_or(i64::MAX)
}

/// Returns the task's end if exactly this hold caused it with this outcome. The worker repeats its
/// call when the first answer was lost.
fn ended_by<'a>(hold: &Hold, task: &'a Task, outcome: Outcome) -> Option<&'a End> {
    task.end().filter(|end| {
        end.outcome == outcome
            && end
                .by
                .as_ref()
                .is_some_and(|(lease, worker)| *lease == hold.lease_id && worker.is(&hold.worker))
    })
}

const fn repeat(end: &End) -> Finished {
    Finished {
        duplicate: true,
        receipt_id: end.receipt,
        discharged: end.discharged,
        retry_at: None,
    }
}

/// Drafts a receipt from the worker to the task's owner.
fn terminal<'a>(
    receipt_type: ReceiptType,
    hold: &'a Hold,
    task: &'a Task,
    body: Body,
) -> Draft<'a> {
    Draft {
        receipt_type,
        from: &hold.worker,
        to: &task.created_by,
        task_id: Some(task.id),
        lease_id: Some(hold.lease_id),
        body: body.finish(|| task.how_to_retrieve()),
    }
}

fn finish(env: &mut Env, ledger: &mut Ledger, task: Task, end: End) -> Finished {
    let finished = Finished {
        duplicate: false,
        receipt_id: end.receipt,
        discharged: end.discharged,
        retry_at: None,
    };
    conclude(env, ledger, task, end);
    finished
}

/// Ends a task whose deadline has passed.
pub(super) fn give_up_late(env: &mut Env, ledger: &mut Ledger, task: Task) {
    give_up(
        env,
        ledger,
        task,
        &serde_json::json!({ "code": "deadline" }),
    );
}

/// Ends a task as failed in the name of the server. Its worker, if it has one, learns this from its next
/// call.
pub(super) fn give_up(env: &mut Env, ledger: &mut Ledger, task: Task, error: &serde_json::Value) {
    let error = Json::from_text(error.to_string());
    let body = Body::new()
        .with("attempt", task.attempt)
        .with("retry_recommended", false)
        .with_content("error", error.as_ref());
    let draft = Draft {
        receipt_type: ReceiptType::TaskFailed,
        from: &Principal::system(),
        to: &task.created_by,
        task_id: Some(task.id),
        // The receipt names the lease that the end cut off, if the task was held.
        lease_id: task.lease().map(|lease| lease.id),
        body: body.finish(|| task.how_to_retrieve()),
    };
    let receipt = ledger.discharge(env, draft, vec![task.assignment]);
    let end = End::without_result(Outcome::Failed, env.now, error, receipt);
    conclude(env, ledger, task, end);
}

/// Ends a task, for every kind of end, and tells the owner that the outcome can be fetched.
pub(super) fn conclude(env: &mut Env, ledger: &mut Ledger, mut task: Task, end: End) {
    let before = task.standing();
    let body = Body::new()
        .with("status", end.outcome.status().as_str())
        .with_content("result_payload", end.result.as_ref())
        .with_content("completion_metadata", end.completion_metadata.as_ref())
        .with_some("result_summary", end.result_summary.as_ref())
        .with_content("error", end.error.as_ref())
        .with_proof("artifacts", end.artifacts.as_ref())
        .with_proof("delivery_proof", end.delivery_proof.as_ref());
    let draft = Draft {
        receipt_type: ReceiptType::TaskResultReady,
        from: &Principal::system(),
        to: &task.created_by,
        task_id: Some(task.id),
        // A task that its owner cancelled or the server gave up was not ended under a lease.
        lease_id: end.by.as_ref().map(|(lease, _)| *lease),
        body: body.finish(|| task.how_to_retrieve()),
    };
    // It names the end as its parent, but discharges nothing: the end itself did that, or late proof will.
    ledger.follow(env, draft, vec![end.receipt]);
    task.state = State::Ended(end);
    put(env, ledger, task, before);
}
