//! Calls about messages: checking their transactions and answers.

use std::cell::RefCell;

use asyncgate_api::Code;
use asyncgate_core::identity::Quotas;
use asyncgate_engine::{Clock, Fault};

use super::{Flight, World};
use crate::{
    asked::Asked,
    entrance::Answer,
    model::{AnsweredMail, Gains, Question},
    step::{Manner, Op},
    store::{Commit, Origin},
    violation::{Checked, broken, hold},
};

/// A call whose client has gone away. The writer still runs its transactions.
#[derive(Debug)]
pub struct AbandonedCall {
    label: u32,
    actor: usize,
    op: Op,
    asked: Asked,
}

impl AbandonedCall {
    /// Returns the rest of a call, if it may still write.
    pub fn of(flight: Flight) -> Option<Self> {
        let writes = flight.op.is_mail() && flight.manner == Manner::Late;
        writes.then_some(Self {
            label: flight.label,
            actor: flight.actor,
            op: flight.op,
            asked: flight.asked,
        })
    }
}

impl World {
    /// Hands a commit of messages to the model, together with the call behind it.
    pub(super) fn learn_mail(&mut self, commit: Commit) -> Checked {
        self.check_line(&commit)?;
        let caller = match commit.origin {
            Origin::Call(label, _) => Some(label),
            Origin::Server | Origin::Operator(_) => None,
        };
        let mut notes = None;
        let mut call = None;
        for flight in &mut self.flights {
            if Some(flight.label) == caller {
                flight.fit(&commit);
                call = Some((flight.actor, flight.op, &flight.asked));
                notes = Some(&mut flight.notes);
                flight.decided = Some(commit.now);
            } else {
                flight.overtaken |= flight.op.is_mail();
            }
        }
        let left = self
            .abandoned
            .iter()
            .find(|left| Some(left.label) == caller);
        let call = call.or(left.map(|left| (left.actor, left.op, &left.asked)));
        let question = call.map(|(actor, op, asked)| Question {
            actor: &self.actors[actor],
            op,
            access: self.entries[op.number()].spec.access,
            asked,
            now: commit.now,
            quotas: Quotas::default(),
        });
        self.model.learn(commit, 0, question.as_ref(), notes)
    }

    pub(super) fn answered_mail(
        &mut self,
        flight: &Flight,
        result: Result<Answer, Fault>,
    ) -> Checked {
        let notes = &flight.notes;
        let question = Question {
            actor: &self.actors[flight.actor],
            op: flight.op,
            access: self.entries[flight.op.number()].spec.access,
            asked: &flight.asked,
            now: flight.decided.unwrap_or_else(|| self.clock.now()),
            quotas: Quotas::default(),
        };
        let exact = !flight.overtaken && self.store.faults() == flight.faults;
        // Whether a message is there may have changed since it was looked at.
        let unsure = flight.op == Op::GET_MESSAGE && !exact;
        let foretold = self.model.mail.verdict(&question, notes);
        let told = |code: &str| format!("{} of {}: {code}", flight.op.name(), flight.label);
        // These calls work in steps, and the effect of a finished step stays.
        let steps = [Op::RECV, Op::PURGE, Op::REPROCESS].contains(&flight.op);
        let unchanged = steps || notes.wrote == 0;
        let refused = result.is_err();
        let gains = match result {
            Ok(answer) if flight.manner == Manner::Live => {
                let told: usize = answer
                    .output
                    .read()
                    .or_else(|error| broken("read", error))?;
                hold(told == notes.handed, "done once", || {
                    format!("{told} streamed, {} handed over", notes.handed)
                })?;
                Some(Gains::default())
            }
            Ok(answer) => {
                hold(unsure || foretold.is_ok(), "verdict", || {
                    told(&format!("done, should be {foretold:?}"))
                })?;
                let answered = AnsweredMail {
                    question,
                    output: RefCell::new(Some(answer.output)),
                    notes,
                    exact,
                };
                let journal = &mut self.journal;
                Some(self.model.mail.check_answer(&answered, journal)?)
            }
            Err(fault) if fault.code == Code::EUnavailable => {
                let excused = self.store.faults() > flight.faults;
                hold(excused, "unavailable without a fault", || told("503"))?;
                hold(unchanged, "refused means nothing changed", || told("503"))?;
                None
            }
            Err(fault) => {
                let code = fault.code;
                hold(unsure || foretold == Err(code), "verdict", || {
                    told(&format!("{}, should be {foretold:?}", code.as_str()))
                })?;
                hold(unchanged, "refused means nothing changed", || {
                    told(code.as_str())
                })?;
                Some(Gains::default())
            }
        };
        self.settled(flight, gains, refused);
        Ok(())
    }
}
