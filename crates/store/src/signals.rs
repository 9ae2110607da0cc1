//! Waiting without polling: commits tell those who wait for what they changed.
//!
//! Invariants: who registers before looking misses nothing; a task or message that becomes ready
//! wakes one who can use it, and if that one goes away before it looked, the next one.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use asyncgate_core::{
    Changes, LeaseId, Placement, Reach, TaskId, TenantId, Timestamp,
    mailbox::{self, Kind},
};
use tokio::sync::Notify;

use crate::lines::{Anything, Lines, Wait, lock};

/// Those who wait, and what for. Backends call [`Signals::publish`] after each commit.
#[derive(Debug)]
pub struct Signals {
    ready: Lines<TenantId, Reach>,
    messages: Lines<(TenantId, Arc<str>), Anything>,
    watching: AtomicUsize,
    ended: Mutex<HashMap<(TenantId, TaskId), Watchers>>,
    settled: Mutex<HashMap<LeaseId, Arc<Notify>>>,
    due: Notify,
    watched: AtomicI64,
    messages_due: Notify,
    messages_watched: AtomicI64,
}

/// A worker in line for tasks that it can serve.
pub type ReadyWait<'a> = Wait<'a, TenantId, Reach>;
/// A receiver in line for messages of a topic.
pub type MessageWait<'a> = Wait<'a, (TenantId, Arc<str>), Anything>;

#[derive(Debug, Default)]
struct Watchers {
    notify: Arc<Notify>,
    count: usize,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            ready: Lines::default(),
            messages: Lines::default(),
            watching: AtomicUsize::default(),
            ended: Mutex::default(),
            settled: Mutex::default(),
            due: Notify::default(),
            watched: AtomicI64::new(i64::MAX),
            messages_due: Notify::default(),
            messages_watched: AtomicI64::new(i64::MAX),
        }
    }
}

impl Signals {
    /// Registers a worker that will look for tasks it can serve.
    pub fn ready(&self, tenant: TenantId, reach: Reach) -> ReadyWait<'_> {
        self.ready.join(tenant, reach)
    }

    /// Registers a receiver that will look for messages of a topic.
    pub fn message(&self, tenant: TenantId, topic: &str) -> MessageWait<'_> {
        self.messages.join((tenant, topic.into()), Anything)
    }

    /// Registers interest in the end of a task.
    pub fn ended(&self, tenant: TenantId, task: TaskId) -> EndedWait<'_> {
        let mut ended = lock(&self.ended);
        let watchers = ended.entry((tenant, task)).or_default();
        watchers.count += 1;
        let notify = Arc::clone(&watchers.notify);
        drop(ended);
        self.watching.fetch_add(1, Ordering::SeqCst);
        EndedWait {
            signals: self,
            key: (tenant, task),
            notify,
        }
    }

    /// Registers interest in the end of deliveries, however they end.
    pub fn deliveries(&self) -> Deliveries<'_> {
        Deliveries {
            signals: self,
            notify: Arc::default(),
            open: Vec::new(),
        }
    }

    /// Says until when the one who watches deadlines will sleep; absent before it has looked. A
    /// deadline that is written earlier than this wakes it.
    pub fn watch_deadlines(&self, until: Option<Timestamp>) {
        let until = until.map_or(i64::MAX, Timestamp::as_millis);
        self.watched.store(until, Ordering::SeqCst);
    }

    /// Waits until a deadline earlier than the watched one was written.
    pub async fn earlier_deadline(&self) {
        self.due.notified().await;
    }

    /// As [`Signals::watch_deadlines`], for messages.
    pub fn watch_messages(&self, until: Option<Timestamp>) {
        let until = until.map_or(i64::MAX, Timestamp::as_millis);
        self.messages_watched.store(until, Ordering::SeqCst);
    }

    /// As [`Signals::earlier_deadline`], for messages.
    pub async fn earlier_message(&self) {
        self.messages_due.notified().await;
    }

    /// Wakes those who wait for what `changes` wrote. Called after the commit.
    pub fn publish(&self, tenant: TenantId, changes: &Changes) {
        for write in &changes.tasks {
            match write.task.placement() {
                Placement::Due { at } => {
                    if at.as_millis() < self.watched.load(Ordering::SeqCst) {
                        self.due.notify_one();
                    }
                }
                Placement::Ready { .. } if self.ready.is_empty() => {}
                Placement::Ready { .. } => self.ready.offer(&tenant, &write.task.class()),
                Placement::Ended => self.wake_watchers(tenant, write.task.id),
            }
        }
    }

    /// Wakes those who wait for what `changes` wrote. Called after the commit.
    pub fn publish_messages(&self, tenant: TenantId, changes: &mailbox::Changes) {
        let watched = self.messages_watched.load(Ordering::SeqCst);
        for write in &changes.messages {
            let standing = write.message.standing();
            if standing.due.is_some_and(|at| at.as_millis() < watched) {
                self.messages_due.notify_one();
            }
            if standing.kind == Kind::Ready && !self.messages.is_empty() {
                let key = (tenant, Arc::clone(&write.message.topic));
                self.messages.offer(&key, &());
            }
            let was_leased = write.before.is_some_and(|was| was.kind == Kind::Leased);
            if was_leased
                && standing.kind != Kind::Leased
                && let Some(delivery) = write.message.delivery
            {
                self.settle(delivery.lease);
            }
        }
    }

    fn settle(&self, lease: LeaseId) {
        if let Some(notify) = lock(&self.settled).remove(&lease) {
            notify.notify_one();
        }
    }

    fn wake_watchers(&self, tenant: TenantId, task: TaskId) {
        if self.watching.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(watchers) = lock(&self.ended).get(&(tenant, task)) {
            watchers.notify.notify_waiters();
        }
    }
}

/// Deliveries that one receiver has not settled yet.
#[derive(Debug)]
pub struct Deliveries<'a> {
    signals: &'a Signals,
    notify: Arc<Notify>,
    open: Vec<(LeaseId, Timestamp)>,
}

impl Deliveries<'_> {
    /// Watches a delivery that lasts until `until`.
    pub fn watch(&mut self, lease: LeaseId, until: Timestamp) {
        lock(&self.signals.settled).insert(lease, Arc::clone(&self.notify));
        self.open.push((lease, until));
    }

    /// How many of the watched deliveries are still open at `now`. One whose end was committed
    /// before it was watched counts until its deadline.
    pub fn open(&mut self, now: Timestamp) -> usize {
        let mut settled = lock(&self.signals.settled);
        self.open.retain(|(lease, until)| {
            if *until <= now {
                settled.remove(lease);
            }
            settled.contains_key(lease)
        });
        self.open.len()
    }

    /// Waits until a delivery ends.
    pub async fn settled(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Deliveries<'_> {
    fn drop(&mut self) {
        let mut settled = lock(&self.signals.settled);
        for (lease, _) in &self.open {
            settled.remove(lease);
        }
    }
}

/// Registered interest in the end of a task.
#[derive(Debug)]
pub struct EndedWait<'a> {
    signals: &'a Signals,
    key: (TenantId, TaskId),
    notify: Arc<Notify>,
}

impl EndedWait<'_> {
    /// A future that is ready once the task has ended. Make it before looking at the task:
    /// an end that is committed after this call is not missed.
    pub fn ended(&self) -> impl Future<Output = ()> + '_ {
        let mut notified = Box::pin(self.notify.notified());
        notified.as_mut().enable();
        notified
    }
}

impl Drop for EndedWait<'_> {
    fn drop(&mut self) {
        self.signals.watching.fetch_sub(1, Ordering::SeqCst);
        let mut ended = lock(&self.signals.ended);
        if let Some(watchers) = ended.get_mut(&self.key) {
            watchers.count -= 1;
            if watchers.count == 0 {
                ended.remove(&self.key);
            }
        }
    }
}
