//! Calls with many items. Each item has an answer of its own.

use asyncgate_api::{Batch, Refusal, Spec};

use crate::{Engine, Fault};

/// The largest input with many items.
pub(crate) const MAX_BATCH_BYTES: usize = 16 << 20;

/// Items that were read and checked one by one. The items that passed go to the rules; the others keep their
/// places among the answers.
#[derive(Debug)]
pub(crate) struct CheckedBatch<T> {
    passed: Vec<T>,
    /// For each item the fault that stopped it, or nothing if it passed.
    stopped: Vec<Option<Fault>>,
}

impl<T> CheckedBatch<T> {
    /// Checks each item.
    pub(crate) fn new<I, const MAX: usize>(
        field: &str,
        items: Batch<I, MAX>,
        check: impl Fn(I) -> Result<T, Fault>,
    ) -> Result<Self, Fault> {
        if items.is_empty() || items.len() > MAX {
            let message = format!("{field} must have 1 to {MAX} entries");
            return Err(Fault::bad_request(message));
        }
        let mut batch = Self {
            passed: Vec::with_capacity(items.len()),
            stopped: Vec::with_capacity(items.len()),
        };
        for item in items.0 {
            match item.map_err(Fault::from).and_then(&check) {
                Ok(item) => {
                    batch.passed.push(item);
                    batch.stopped.push(None);
                }
                Err(fault) => batch.stopped.push(Some(fault)),
            }
        }
        Ok(batch)
    }

    /// Returns true if every item passed.
    pub(crate) fn all_passed(&self) -> bool {
        self.stopped.iter().all(Option::is_none)
    }

    /// Takes the items that passed.
    pub(crate) fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.passed)
    }

    /// Returns the answers of all items in their order, given the answers of those that passed.
    pub(crate) fn answers<A, R>(
        self,
        engine: &Engine,
        spec: &Spec,
        passed: impl IntoIterator<Item = Result<A, Fault>>,
        done: impl Fn(A) -> R,
        refused: impl Fn(Refusal) -> R,
    ) -> Vec<R> {
        let mut passed = passed.into_iter();
        let answers = self.stopped.into_iter().filter_map(|stopped| {
            let answer = match stopped {
                Some(fault) => Err(fault),
                None => passed.next()?,
            };
            Some(match answer {
                Ok(answer) => done(answer),
                Err(fault) => refused(refusal(engine.refuse(spec, fault))),
            })
        });
        answers.collect()
    }
}

fn refusal(fault: Fault) -> Refusal {
    let detail = |name: &str| {
        let text = fault.details.get(name).and_then(|text| text.as_str());
        text.map(str::to_owned)
    };
    Refusal {
        code: fault.code,
        retry_after_secs: fault.retry_after_seconds,
        field: detail("field"),
        msg_id: detail("msg_id"),
        message: fault.message.into_owned(),
    }
}
