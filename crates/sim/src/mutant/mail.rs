//! Defects of the mailbox.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use asyncgate_core::{
    Link, MessageId, TenantId, Timestamp,
    mailbox::{Cause, ChainHead, Changes, Kind, Message, State},
};
use asyncgate_store::{
    Answer, Decide, Job, Messages,
    fair::Weights,
    mailbox::{DeadFilter, DeadPage, Load, Mailbox, Snapshot, Take, Topic},
};

use super::{Mutant, Mutated, lock, take};
use crate::{
    cast::{TENANTS, tenant_id, tenant_number},
    store::at_once,
};

/// Changes the snapshot that a decision about messages sees.
fn shown(mutant: Mutant, snapshot: &mut Snapshot, delivered: &[Message], purges: bool) {
    match mutant {
        Mutant::ForgetsNames => snapshot.send_context.keyed.fill(None),
        Mutant::DeliversTwice => {
            let topic = snapshot.ready.first().map(|message| message.topic.clone());
            let held = delivered.iter();
            let held = held.filter(|held| Some(&held.topic) == topic.as_ref());
            snapshot.ready.extend(held.cloned().map(readied));
        }
        Mutant::PurgesHeld if purges => {
            let held = delivered.iter().cloned();
            snapshot.waiting.extend(held.map(readied));
        }
        Mutant::IgnoresOrder => snapshot.ready.reverse(),
        Mutant::Overfills => snapshot.send_context.depths.clear(),
        Mutant::JumpsTheLine => snapshot.send_context.occupied.clear(),
        Mutant::KeepsTheTurn => snapshot.lines.clear(),
        _ => {}
    }
}

fn readied(message: Message) -> Message {
    let state = State::Ready;
    Message { state, ..message }
}

/// Changes the writes of a decision about messages.
fn written(mutant: Mutant, changes: &mut Changes, delivered: &mut Vec<Message>, number: u64) {
    match mutant {
        Mutant::ForgetsAcks => {
            changes.messages.retain(|write| {
                let leaves = write.message.standing().kind == Kind::Gone;
                !(leaves && write.before.is_some_and(|was| was.kind == Kind::Leased))
            });
        }
        Mutant::ReusesLeases => {
            for write in &mut changes.messages {
                let first = delivered.iter();
                let first = first.filter(|first| first.id == write.message.id);
                let lease = first.filter_map(|first| first.delivery).next();
                if let (Some(now), Some(first)) = (&mut write.message.delivery, lease) {
                    now.lease = first.lease;
                }
            }
        }
        Mutant::DropsTimedOut => {
            let timed_out = changes.messages.extract_if(.., |write| {
                let ready = write.message.state == State::Ready;
                ready && write.before.is_some_and(|was| was.kind == Kind::Leased)
            });
            let timed_out: Vec<_> = timed_out.collect();
            changes.forgotten.extend(timed_out);
        }
        Mutant::NeverGivesUp => {
            for write in &mut changes.messages {
                let cause = Cause::MaxAttempts;
                if matches!(write.message.state, State::Dead { cause: why, .. } if why == cause) {
                    write.message.state = State::Ready;
                }
            }
        }
        Mutant::BreaksChains => {
            for write in &mut changes.messages {
                write.message.prev = Link::START;
            }
        }
        Mutant::PurgesHeld => {
            for write in &mut changes.messages {
                let mut held = delivered.iter();
                let held = held.rfind(|held| held.id == write.message.id);
                if write.message.standing().kind == Kind::Gone {
                    write.before = held.map(Message::standing).or(write.before);
                }
            }
        }
        Mutant::ForgetsDelays => {
            for write in &mut changes.messages {
                if write.before.is_none() {
                    write.message.state = State::Ready;
                }
            }
        }
        Mutant::LosesMail if number.is_multiple_of(50) => *changes = Changes::default(),
        _ => {}
    }
    let only_held = [Mutant::PurgesHeld, Mutant::DeliversTwice].contains(&mutant);
    for write in &changes.messages {
        let id = write.message.id;
        delivered.retain(|held| !only_held || held.id != id);
        if write.message.standing().kind == Kind::Leased {
            delivered.push(write.message.clone());
        }
    }
}

/// Decides about a message as if each of its earlier deliveries were the last.
fn with_old_leases(
    decide: &mut Decide<Messages>,
    now: Timestamp,
    message: &Message,
    delivered: &[Message],
) -> Option<Changes> {
    for old in delivered.iter().filter(|old| old.id == message.id) {
        let mut shown = message.clone();
        shown.delivery = old.delivery;
        let snapshot = Snapshot {
            messages: vec![shown],
            ..Snapshot::default()
        };
        if let Some(mut changes) = decide(now, snapshot).filter(|changes| !changes.is_empty()) {
            for write in &mut changes.messages {
                write.message.delivery = message.delivery;
            }
            return Some(changes);
        }
    }
    None
}

impl Mutated {
    pub(super) fn transact_messages(&self, mut job: Job<Messages>) -> Answer<'_, ()> {
        let number = self.jobs.fetch_add(1, Ordering::Relaxed) + 1;
        let (mutant, kept) = (self.mutant, Arc::clone(&self.kept));
        let purges = job.reads.waiting.is_some();
        let (tenant, asked_at) = (job.tenant, job.now);
        let settles = mutant == Mutant::AcceptsOldDeliveries && job.reads.messages.len() == 1;
        let mut decide = take(&mut job);
        let mut before = None;
        job.decide = Box::new(move |now, mut snapshot| {
            let mut kept = lock(&kept);
            let delivered = kept.delivered.entry(tenant).or_default();
            // A repeated decision must come out the same, so that the rule of the defect is the one noticed.
            delivered.clone_from(before.get_or_insert_with(|| delivered.clone()));
            shown(mutant, &mut snapshot, delivered, purges);
            let message = snapshot.messages.first().filter(|_| settles).cloned();
            let mut changes = match (decide(now, snapshot), message) {
                (None, Some(message)) => {
                    with_old_leases(&mut decide, asked_at, &message, delivered)?
                }
                (changes, _) => changes?,
            };
            written(mutant, &mut changes, delivered, number);
            Some(changes)
        });
        self.store.transact(job.into())
    }
}

impl Mailbox for Mutated {
    fn set_replay_window(&self, millis: i64) {
        self.store.mailbox().set_replay_window(millis);
    }

    fn set_weights(&self, weights: Weights) {
        self.store.mailbox().set_weights(weights);
    }

    fn message(&self, tenant: TenantId, id: MessageId) -> Answer<'_, Option<Message>> {
        self.store.mailbox().message(tenant, id)
    }

    fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Answer<'_, Vec<Message>> {
        self.store.mailbox().messages(tenant, after, limit)
    }

    fn peek(&self, tenant: TenantId, take: Take) -> Answer<'_, Vec<Message>> {
        self.store.mailbox().peek(tenant, take)
    }

    fn dead_letters(&self, tenant: TenantId, filter: DeadFilter) -> Answer<'_, DeadPage> {
        let tenant = match self.mutant {
            Mutant::MixesMail => tenant_id((tenant_number(tenant) + 1) % TENANTS),
            _ => tenant,
        };
        self.store.mailbox().dead_letters(tenant, filter)
    }

    fn topics(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<Topic>> {
        let mut topics = at_once(self.store.mailbox().topics(tenant, after, limit));
        if self.mutant == Mutant::Miscounts {
            for topic in topics.iter_mut().flatten() {
                topic.counts.set(Kind::Dead, 0);
            }
        }
        Box::pin(std::future::ready(topics))
    }

    fn chains(&self, tenant: TenantId) -> Answer<'_, BTreeMap<u16, ChainHead>> {
        self.store.mailbox().chains(tenant)
    }

    fn messages_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        if self.mutant == Mutant::ForgetsMessages {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        self.store.mailbox().messages_due(now, limit)
    }

    fn next_message_due(&self) -> Answer<'_, Option<Timestamp>> {
        self.store.mailbox().next_message_due()
    }

    fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        self.store.mailbox().waiting_since(since, after, limit)
    }

    fn load(&self, now: Timestamp) -> Answer<'_, Load> {
        self.store.mailbox().load(now)
    }
}
