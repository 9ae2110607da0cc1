//! Predicting the effect of acknowledging, giving back and extending a message.

use asyncgate_api::Code;
use asyncgate_core::{
    MessageId, Timestamp,
    mailbox::{Cause, Message, State},
};

use super::{
    Mail, TenantMail,
    foresee::{Expected, Free},
};
use crate::{asked::Asked, step::Op};

/// The message after the call, nothing if it does not change, or the code of the refusal.
type Settled = Result<Option<Expected>, Code>;

impl Mail {
    /// Predicts the effect of one settling call, after the call has `acked` others.
    pub(super) fn settle(
        &self,
        mail: &TenantMail,
        op: Op,
        asked: &Asked,
        now: Timestamp,
        acked: &[Expected],
    ) -> Settled {
        let Ok(id) = asked.text_or_empty("msg_id").parse::<MessageId>() else {
            return Err(Code::ESchema);
        };
        let earlier = acked.iter().map(|write| &write.message);
        let earlier = earlier.filter(|message| message.id == id).last();
        let message = earlier.or_else(|| mail.message(id));
        let over = |state| matches!(state, State::Gone { until } if until <= now);
        let message = message.filter(|message| !over(message.state));
        let message = message.ok_or(Code::ENotFound)?;
        if op == Op::DELETE_MESSAGE {
            return match message.state {
                State::Leased { .. } => Err(Code::ELeased),
                State::Gone { .. } => Ok(None),
                State::Ready
                | State::Delayed { .. }
                | State::Blocked { .. }
                | State::Dead { .. } => Ok(Some(self.gone(message, now))),
            };
        }
        let lease = message.delivery.map(|delivery| delivery.lease.to_string());
        match asked.text("lease") {
            Some(named) if lease.as_deref() != Some(named) => return Err(Code::EStaleLease),
            Some(_) => {}
            None if self.policy.require_lease => return Err(Code::ESchema),
            None if lease.is_none() => return Err(Code::ENotLeased),
            None => {}
        }
        let named = asked.has("lease");
        match op {
            Op::NACK => self.give_back(message, asked, named, now),
            Op::EXTEND => self.extend(message, asked, named, now),
            _ => match message.state {
                State::Gone { .. } => Ok(None),
                State::Dead { .. } if !named => Err(Code::ENotLeased),
                State::Ready
                | State::Delayed { .. }
                | State::Blocked { .. }
                | State::Leased { .. }
                | State::Dead { .. } => Ok(Some(self.gone(message, now))),
            },
        }
    }

    /// Returns a message that is only remembered from now on.
    pub(super) fn gone(&self, message: &Message, now: Timestamp) -> Expected {
        let until = now.plus_millis(self.policy.t_replay_ms);
        Expected::fixed(Message {
            state: State::Gone { until },
            payload: Default::default(),
            attrs: Default::default(),
            reason: None,
            last_error: None,
            ..message.clone()
        })
    }

    fn give_back(&self, message: &Message, asked: &Asked, named: bool, now: Timestamp) -> Settled {
        match message.state {
            State::Leased { .. } => {}
            State::Ready | State::Delayed { .. } | State::Blocked { .. } | State::Dead { .. }
                if named =>
            {
                return Ok(None);
            }
            State::Ready
            | State::Delayed { .. }
            | State::Blocked { .. }
            | State::Dead { .. }
            | State::Gone { .. } => return Err(Code::ENotLeased),
        }
        let reason = asked.text("reason").unwrap_or("nack").to_owned();
        let mut back = Message {
            reason: Some(reason),
            last_error: asked.text("error").map(str::to_owned),
            ..message.clone()
        };
        if message.attempt >= self.policy.max_attempts {
            return Ok(Some(self.dead(&back, Cause::MaxAttempts, now)));
        }
        let free = match asked.number("delay_ms") {
            Some(0) => Free::Nothing,
            Some(delay) => {
                let until = now.plus_millis(delay);
                back.state = State::Delayed { until };
                return Ok(Some(Expected::fixed(back)));
            }
            None => {
                let doubled = self.policy.backoff_base_ms << message.attempt;
                Free::Backoff(doubled.min(self.policy.backoff_max_ms))
            }
        };
        back.state = State::Ready;
        let message = back;
        Ok(Some(Expected { message, free }))
    }

    fn extend(&self, message: &Message, asked: &Asked, named: bool, now: Timestamp) -> Settled {
        let (until, given) = match (message.state, message.delivery) {
            (State::Leased { until }, Some(given)) if until > now => (until, given),
            _ if named => return Err(Code::EStaleLease),
            _ => return Err(Code::ENotLeased),
        };
        let factor = i64::from(self.policy.inflight_factor);
        let last = given.at.plus_millis(given.visibility_ms * factor);
        let wished = now.plus_millis(self.visibility(asked));
        let until = until.max(wished.min(last));
        Ok(Some(Expected::fixed(Message {
            state: State::Leased { until },
            ..message.clone()
        })))
    }

    /// Returns a message that is a dead letter from now on.
    pub(super) fn dead(&self, message: &Message, cause: Cause, now: Timestamp) -> Expected {
        let reason = match (&message.reason, cause) {
            (Some(reason), _) => reason,
            (None, Cause::MaxAttempts) => "visibility_timeout",
            (None, Cause::Expired) => "expired",
            (None, Cause::Integrity) => "integrity",
        };
        let window = message.sent_at.plus_millis(self.policy.t_replay_ms);
        let kept = now.plus_millis(self.policy.dlq_retention_ms);
        Expected::fixed(Message {
            state: State::Dead {
                cause,
                at: now,
                until: kept.max(window),
            },
            reason: Some(reason.to_owned()),
            ..message.clone()
        })
    }

    /// Returns the time for which a receiver keeps a message.
    pub(super) fn visibility(&self, asked: &Asked) -> i64 {
        asked
            .number("visibility_ms")
            .unwrap_or(self.policy.default_visibility_ms)
    }
}
