//! The story in words.

use asyncgate_core::ReceiptType;

use super::{Moment, Story};

pub(super) fn lines(story: &Story) -> Vec<String> {
    let mut lines = vec![format!("Task {}", story.task_id)];
    if story.is_empty() {
        lines.push("The ledger has no receipt about it.".to_owned());
        return lines;
    }
    lines.extend(summary(story));
    lines.push(String::new());
    let start = story.moments.first().and_then(|moment| moment.at);
    for moment in &story.moments {
        let after = match (start, moment.at) {
            (Some(start), Some(at)) => lapse(at.millis_since(start)),
            (None, _) | (_, None) => String::new(),
        };
        lines.push(format!(
            "{:>6}  {}  {after:>10}  {}",
            format!("#{}", moment.seq),
            moment.at_text,
            told(story, moment)
        ));
    }
    lines
}

/// Returns the summary: the request, the work, the reports and proof, and what is open.
fn summary(story: &Story) -> Vec<String> {
    let mut lines = Vec::new();
    for moment in &story.moments {
        let line = match moment.receipt_type {
            ReceiptType::TaskAssigned => format!("Asked:     {}", asked(moment)),
            ReceiptType::TaskAccepted => format!("Worked:    {}", worked(story, moment)),
            ReceiptType::TaskCompleted | ReceiptType::TaskFailed | ReceiptType::TaskCanceled => {
                format!("Reported:  {}", told(story, moment))
            }
            ReceiptType::TaskStarted
            | ReceiptType::TaskProgress
            | ReceiptType::TaskRetryScheduled
            | ReceiptType::TaskResultReady
            | ReceiptType::LeaseExpired
            | ReceiptType::LeaseReleased
            | ReceiptType::SystemAnomaly
            | ReceiptType::ReceiptAcknowledged
            | ReceiptType::LedgerSigned => continue,
        };
        lines.push(line);
    }
    lines.push(format!("Proved:    {}", proved(story)));
    lines.push(format!("Open:      {}", open(story)));
    lines
}

fn asked(moment: &Moment) -> String {
    let what = moment
        .shown("type")
        .unwrap_or_else(|| "something".to_owned());
    format!("{} asked for {what} (#{})", moment.to, moment.seq)
}

/// Describes a worker's time with the task: from the acceptance to the end of its lease.
fn worked(story: &Story, accepted: &Moment) -> String {
    let lease = accepted.lease_id.as_deref().unwrap_or("none");
    let end = story.moments.iter().find(|moment| {
        moment.seq > accepted.seq
            && moment.lease_id == accepted.lease_id
            && ends_a_lease(moment.receipt_type)
    });
    let end = end.map_or_else(
        || "has not ended".to_owned(),
        |end| format!("ended with {} (#{})", end.receipt_type.as_str(), end.seq),
    );
    format!(
        "{} under lease {lease} (#{}), which {end}",
        accepted.from, accepted.seq
    )
}

const fn ends_a_lease(receipt_type: ReceiptType) -> bool {
    matches!(
        receipt_type,
        ReceiptType::TaskRetryScheduled
            | ReceiptType::TaskCompleted
            | ReceiptType::TaskFailed
            | ReceiptType::TaskCanceled
            | ReceiptType::LeaseExpired
            | ReceiptType::LeaseReleased
    )
}

fn proved(story: &Story) -> String {
    let proof = story.moments.iter().find_map(|moment| {
        let what = moment
            .shown("artifacts")
            .map(|artifacts| format!("artifacts {artifacts}"))
            .or_else(|| {
                let proof = moment.shown("delivery_proof")?;
                Some(format!("delivery proof {proof}"))
            })?;
        let proves =
            moment.receipt_type == ReceiptType::TaskCompleted && !story.parents(moment).is_empty();
        proves.then(|| format!("{what} by {} (#{})", moment.from, moment.seq))
    });
    proof.unwrap_or_else(|| "nothing".to_owned())
}

fn open(story: &Story) -> String {
    match story.open_obligation() {
        Some(assigned) => format!("{} is owed an outcome (#{})", assigned.to, assigned.seq),
        None => "nothing".to_owned(),
    }
}

/// Describes a receipt in a sentence.
fn told(story: &Story, moment: &Moment) -> String {
    let (from, to) = (&moment.from, &moment.to);
    let said = |field: &str| {
        moment
            .shown(field)
            .map(|value| format!(": {value}"))
            .unwrap_or_default()
    };
    match moment.receipt_type {
        ReceiptType::TaskAssigned => asked_in_full(moment),
        ReceiptType::TaskAccepted => {
            let lease = moment.lease_id.as_deref().unwrap_or("none");
            format!("{from} took it under lease {lease}")
        }
        ReceiptType::TaskStarted => format!("{from} began"),
        ReceiptType::TaskProgress => format!("{from} reported progress{}", said("progress")),
        ReceiptType::TaskRetryScheduled => format!(
            "{from} failed and it will be tried again{}{}",
            moment
                .shown("next_eligible_at")
                .map(|at| format!(" after {at}"))
                .unwrap_or_default(),
            said("error")
        ),
        ReceiptType::TaskCompleted => format!(
            "{from} reported success {}{}",
            discharge(story, moment),
            said("result_payload")
        ),
        ReceiptType::TaskFailed => format!(
            "{from} {} {}{}",
            if moment.is_by_server() {
                "gave it up"
            } else {
                "reported failure"
            },
            discharge(story, moment),
            said("error")
        ),
        ReceiptType::TaskCanceled => format!(
            "{from} called it off {}{}",
            discharge(story, moment),
            said("reason")
        ),
        ReceiptType::TaskResultReady => format!("{to} can fetch the outcome{}", said("status")),
        ReceiptType::LeaseExpired => format!(
            "the lease of {} ran out{}",
            moment
                .shown("previous_worker_id")
                .unwrap_or_else(|| "a worker".to_owned()),
            if moment.body["requeued"] == false {
                ""
            } else {
                " and it was queued again"
            }
        ),
        ReceiptType::LeaseReleased => format!("{from} gave it back and it was queued again"),
        ReceiptType::SystemAnomaly => format!("{from} found something strange{}", said("kind")),
        ReceiptType::ReceiptAcknowledged => {
            format!("{from} acknowledged {}", places(&story.parents(moment)))
        }
        ReceiptType::LedgerSigned => format!("{from} signed the ledger"),
    }
}

fn asked_in_full(moment: &Moment) -> String {
    let what = moment
        .shown("type")
        .unwrap_or_else(|| "something".to_owned());
    if moment.from == moment.to {
        return format!("{} asked for {what}", moment.from);
    }
    format!("{} asked for {what} for {}", moment.from, moment.to)
}

/// Names the obligation that an end discharges; a success without proof discharges none.
fn discharge(story: &Story, moment: &Moment) -> String {
    let parents = story.parents(moment);
    if parents.is_empty() {
        return "without proof, which discharges nothing".to_owned();
    }
    format!("and discharged {}", places(&parents))
}

fn places(seqs: &[u64]) -> String {
    let places: Vec<String> = seqs.iter().map(|seq| format!("#{seq}")).collect();
    if places.is_empty() {
        return "a receipt".to_owned();
    }
    places.join(", ")
}

/// Formats a length of time in its two largest units.
fn lapse(millis: i64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..60 => format!("+{seconds}.{:03}s", millis % 1_000),
        60..3_600 => format!("+{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("+{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        86_400.. => format!("+{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
        ..0 => String::new(),
    }
}
