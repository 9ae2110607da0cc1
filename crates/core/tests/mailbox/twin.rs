//! A model of one message, much simpler than the rules: the state it should have, and the answer
//! that a call on it should get.

use asyncgate_core::{
    LeaseId, MessageId,
    mailbox::{Cause, Kind, Policy, Rejection},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    Ready,
    Delayed(i64),
    /// Behind others with its key, with a delay of its own until this time.
    Blocked(i64),
    Leased(i64),
    Dead(Cause, i64),
    /// Acknowledged, and remembered until this time.
    Acked(i64),
    Purged(i64),
    Forgotten,
}

#[derive(Debug, Clone)]
pub struct Twin {
    pub id: MessageId,
    pub topic: usize,
    pub key: u8,
    pub partition: Option<u8>,
    pub content: u8,
    pub priority: i32,
    pub bytes: usize,
    pub sent: i64,
    pub since: i64,
    pub expires: Option<i64>,
    pub is: Is,
    pub attempt: u32,
    /// Every lease that it was ever delivered under.
    pub leases: Vec<LeaseId>,
    /// True if the last of them is still accepted for the message.
    pub delivered: bool,
    pub lease_ends: i64,
    pub reason: Option<String>,
    pub error: Option<String>,
    /// True if it was ever delayed, blocked or brought back, so that others may overtake it.
    pub irregular: bool,
    /// True if it was ever brought back, so that others with its key may overtake it.
    pub came_back: bool,
}

impl Twin {
    pub fn kind(&self) -> Option<Kind> {
        match self.is {
            Is::Ready => Some(Kind::Ready),
            Is::Delayed(_) | Is::Blocked(_) => Some(Kind::Delayed),
            Is::Leased(_) => Some(Kind::Leased),
            Is::Dead(..) => Some(Kind::Dead),
            Is::Acked(_) | Is::Purged(_) => Some(Kind::Gone),
            Is::Forgotten => None,
        }
    }

    pub fn waits(&self) -> bool {
        matches!(self.is, Is::Ready | Is::Delayed(_) | Is::Blocked(_))
    }

    /// Returns true if it has the turn among those with its key.
    pub fn has_turn(&self) -> bool {
        matches!(self.is, Is::Ready | Is::Delayed(_) | Is::Leased(_))
    }

    /// Gives it the turn.
    pub fn take_turn(&mut self, now: i64) {
        if let Is::Blocked(until) = self.is {
            self.is = if until > now {
                Is::Delayed(until)
            } else {
                Is::Ready
            };
        }
    }

    pub fn is_old(&self, now: i64, policy: &Policy) -> bool {
        self.expires.is_some_and(|end| end <= now) || self.since + policy.ready_retention_ms <= now
    }

    pub fn die(&mut self, cause: Cause, now: i64) {
        let usual = match cause {
            Cause::MaxAttempts => "visibility_timeout",
            Cause::Expired => "expired",
            Cause::Integrity => "integrity",
        };
        self.reason.get_or_insert_with(|| usual.to_owned());
        self.is = Is::Dead(cause, now);
    }

    /// Returns the time at which a dead letter is forgotten: not while its key is remembered.
    fn buried(&self, died: i64, policy: &Policy) -> i64 {
        (died + policy.dlq_retention_ms).max(self.sent + policy.t_replay_ms)
    }

    /// Refuses a call that has no right to the message.
    fn admit(&self, now: i64, lease: Option<LeaseId>) -> Result<(), Rejection> {
        match self.is {
            Is::Forgotten => return Err(Rejection::NotFound),
            Is::Acked(until) | Is::Purged(until) if until <= now => {
                return Err(Rejection::NotFound);
            }
            _ => {}
        }
        let current = self.leases.last().filter(|_| self.delivered);
        match (lease, current) {
            (None, None) => Err(Rejection::NotLeased),
            (Some(lease), current) if current != Some(&lease) => Err(Rejection::StaleLease),
            _ => Ok(()),
        }
    }

    /// Acknowledges. Returns true if it was acknowledged before.
    pub fn ack(
        &mut self,
        now: i64,
        lease: Option<LeaseId>,
        policy: &Policy,
    ) -> Result<bool, Rejection> {
        self.admit(now, lease)?;
        match self.is {
            Is::Acked(_) | Is::Purged(_) => return Ok(true),
            Is::Dead(..) if lease.is_none() => return Err(Rejection::NotLeased),
            _ => {}
        }
        self.is = Is::Acked(now + policy.t_replay_ms);
        Ok(false)
    }

    /// Returns true if a refusal changes the message.
    pub fn nack(&self, now: i64, lease: Option<LeaseId>) -> Result<bool, Rejection> {
        self.admit(now, lease)?;
        match self.is {
            Is::Leased(_) => Ok(true),
            Is::Ready | Is::Delayed(_) | Is::Blocked(_) | Is::Dead(..) if lease.is_some() => {
                Ok(false)
            }
            _ => Err(Rejection::NotLeased),
        }
    }

    pub fn extend(
        &mut self,
        now: i64,
        lease: Option<LeaseId>,
        wished: i64,
    ) -> Result<i64, Rejection> {
        self.admit(now, lease)?;
        match self.is {
            Is::Leased(until) if until > now => {
                let until = until.max((now + wished).min(self.lease_ends));
                self.is = Is::Leased(until);
                Ok(until)
            }
            _ if lease.is_some() => Err(Rejection::StaleLease),
            _ => Err(Rejection::NotLeased),
        }
    }

    pub fn sweep(&mut self, now: i64, policy: &Policy) {
        let old = self.is_old(now, policy);
        match self.is {
            Is::Leased(until) if until <= now && self.attempt >= policy.max_attempts => {
                self.die(Cause::MaxAttempts, now);
            }
            Is::Leased(until) if until <= now && !old => self.is = Is::Ready,
            Is::Leased(until) if until > now => {}
            Is::Ready | Is::Delayed(_) | Is::Blocked(_) | Is::Leased(_) if old => {
                self.die(Cause::Expired, now);
            }
            Is::Delayed(until) if until <= now => self.is = Is::Ready,
            Is::Dead(_, died) if self.buried(died, policy) <= now => self.is = Is::Forgotten,
            Is::Acked(until) | Is::Purged(until) if until <= now => self.is = Is::Forgotten,
            _ => {}
        }
    }

    pub fn redrive(&mut self, now: i64) {
        self.is = match self.partition {
            // The pair gives it the turn if nobody else has it.
            Some(_) => Is::Blocked(now),
            None => Is::Ready,
        };
        self.came_back = true;
        self.since = now;
        self.attempt = 0;
        self.delivered = false;
        self.reason = None;
        self.error = None;
        self.expires = self.expires.filter(|end| *end > now);
        self.irregular = true;
    }
}
