//! Waiting without polling: a commit wakes the callers that wait for what it changed.
//!
//! Invariants: a caller that registers before it looks misses nothing; a task or message that becomes
//! ready wakes one waiter that can use it (`waiters.rs` says how); the end of a task or of a lease wakes
//! all that wait for it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use asyncgate_core::{
    Changes, LeaseId, Placement, Reach, TaskId, TenantId, Timestamp,
    mailbox::{self, Kind},
};
use tokio::sync::Notify;

use crate::waiters::{AnyOffer, Waiter, Waiters, lock};

/// The waiters of a store. Backends call [`Signals::publish`] and [`Signals::publish_messages`] after
/// each commit.
#[derive(Debug)]
pub struct Signals {
    workers: Waiters<TenantId, Reach>,
    /// Workers whose tenant holds as many leases as it may.
    room: Waiters<TenantId, AnyOffer>,
    receivers: Waiters<(TenantId, Arc<str>), AnyOffer>,
    /// The ends of tasks.
    ends: Ends,
    /// The ends of leases of tasks.
    lease_ends: Ends,
    open_deliveries: Arc<OpenDeliveries>,
    due: Notify,
    watched: AtomicI64,
    messages_due: Notify,
    messages_watched: AtomicI64,
    dispatches: Notify,
}

/// A worker in the queue for tasks that it can serve.
pub type TaskWaiter<'a> = Waiter<'a, TenantId, Reach>;
/// A worker in the queue for the end of another lease of its tenant.
pub type RoomWaiter<'a> = Waiter<'a, TenantId, AnyOffer>;
/// A receiver in the queue for messages of a topic.
pub type MessageWaiter<'a> = Waiter<'a, (TenantId, Arc<str>), AnyOffer>;

/// The ends that somebody waits for, by the tasks that they are about.
#[derive(Debug, Default)]
struct Ends {
    /// The number of [`EndWaiter`]s, to be read without the lock.
    count: AtomicUsize,
    awaited: Mutex<foldhash::HashMap<(TenantId, TaskId), AwaitedEnd>>,
}

/// An end, and how many wait for it.
#[derive(Debug, Default)]
struct AwaitedEnd {
    notify: Arc<Notify>,
    waiters: usize,
}

impl Ends {
    fn register(&self, tenant: TenantId, task: TaskId) -> EndWaiter<'_> {
        let mut awaited = lock(&self.awaited);
        let end = awaited.entry((tenant, task)).or_default();
        end.waiters += 1;
        let notify = Arc::clone(&end.notify);
        drop(awaited);
        self.count.fetch_add(1, Ordering::SeqCst);
        EndWaiter {
            ends: self,
            key: (tenant, task),
            notify,
        }
    }

    fn publish(&self, tenant: TenantId, task: TaskId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(end) = lock(&self.awaited).get(&(tenant, task)) {
            end.notify.notify_waiters();
        }
    }
}

/// The watched deliveries that have not ended, each with whom to notify of its end.
type OpenDeliveries = Mutex<foldhash::HashMap<LeaseId, Arc<Notify>>>;

impl Default for Signals {
    fn default() -> Self {
        Self {
            workers: Waiters::default(),
            room: Waiters::default(),
            receivers: Waiters::default(),
            ends: Ends::default(),
            lease_ends: Ends::default(),
            open_deliveries: Arc::default(),
            due: Notify::default(),
            watched: AtomicI64::new(i64::MAX),
            messages_due: Notify::default(),
            messages_watched: AtomicI64::new(i64::MAX),
            dispatches: Notify::default(),
        }
    }
}

impl Signals {
    /// Registers a worker that will look for tasks it can serve.
    pub fn task_waiter(&self, tenant: TenantId, reach: Reach) -> TaskWaiter<'_> {
        self.workers.register(tenant, reach)
    }

    /// Registers a worker that will look whether its tenant may hold one more lease.
    pub fn room_waiter(&self, tenant: TenantId) -> RoomWaiter<'_> {
        self.room.register(tenant, AnyOffer)
    }

    /// Wakes a worker whose tenant may hold more leases than before.
    pub fn publish_room(&self, tenant: TenantId) {
        if !self.room.is_empty() {
            self.room.wake_one(&tenant, &());
        }
    }

    /// Registers a receiver that will look for messages of a topic.
    pub fn message_waiter(&self, tenant: TenantId, topic: &str) -> MessageWaiter<'_> {
        self.receivers.register((tenant, topic.into()), AnyOffer)
    }

    /// Registers a caller that will look whether a task has ended.
    pub fn end_waiter(&self, tenant: TenantId, task: TaskId) -> EndWaiter<'_> {
        self.ends.register(tenant, task)
    }

    /// Registers a caller that will look whether the lease of a task has ended, in whatever way.
    pub fn lease_waiter(&self, tenant: TenantId, task: TaskId) -> EndWaiter<'_> {
        self.lease_ends.register(tenant, task)
    }

    /// Returns a watch over deliveries of one receiver, which has none yet.
    pub fn deliveries(&self) -> Deliveries {
        Deliveries {
            all_open: Arc::clone(&self.open_deliveries),
            notify: Arc::default(),
            open: Vec::new(),
        }
    }

    /// Notes until when the sweep of tasks will sleep; absent before it has looked. A deadline that is
    /// written earlier than this wakes it.
    pub fn watch_deadlines(&self, until: Option<Timestamp>) {
        let until = until.map_or(i64::MAX, Timestamp::as_millis);
        self.watched.store(until, Ordering::SeqCst);
    }

    /// Waits until a deadline earlier than the noted one is written.
    pub async fn earlier_deadline(&self) {
        self.due.notified().await;
    }

    /// Does for messages what [`Signals::watch_deadlines`] does for tasks.
    pub fn watch_messages(&self, until: Option<Timestamp>) {
        let until = until.map_or(i64::MAX, Timestamp::as_millis);
        self.messages_watched.store(until, Ordering::SeqCst);
    }

    /// Does for messages what [`Signals::earlier_deadline`] does for tasks.
    pub async fn earlier_message(&self) {
        self.messages_due.notified().await;
    }

    /// Waits until something is written that must reach another system. What was written since the last call counts
    /// too.
    pub async fn new_dispatch(&self) {
        self.dispatches.notified().await;
    }

    /// Notes that something was written that must reach another system.
    pub(crate) fn publish_dispatch(&self) {
        self.dispatches.notify_one();
    }

    /// Wakes the callers that wait for what `changes` wrote. Backends call it after the commit, so that
    /// whoever is woken finds it.
    pub fn publish(&self, tenant: TenantId, changes: &Changes) {
        for write in &changes.tasks {
            let placement = write.task.placement();
            if let Some(at) = placement.due()
                && at.as_millis() < self.watched.load(Ordering::SeqCst)
            {
                self.due.notify_one();
            }
            if write.ends_lease() {
                self.publish_room(tenant);
                self.lease_ends.publish(tenant, write.task.id);
            }
            match placement {
                Placement::Due { .. } => {}
                // A class is made of copies of names: nothing is copied while nobody waits.
                Placement::Ready { .. } if self.workers.is_empty() => {}
                Placement::Ready { .. } => self.workers.wake_one(&tenant, &write.task.class()),
                Placement::Ended => self.ends.publish(tenant, write.task.id),
            }
        }
        if !changes.outbox.is_empty() {
            self.publish_dispatch();
        }
    }

    /// Does for messages what [`Signals::publish`] does for tasks.
    pub fn publish_messages(&self, tenant: TenantId, changes: &mailbox::Changes) {
        let watched = self.messages_watched.load(Ordering::SeqCst);
        for write in &changes.messages {
            let standing = write.message.standing();
            if standing.due.is_some_and(|at| at.as_millis() < watched) {
                self.messages_due.notify_one();
            }
            if standing.kind == Kind::Ready && !self.receivers.is_empty() {
                let key = (tenant, Arc::clone(&write.message.topic));
                self.receivers.wake_one(&key, &());
            }
            let was_leased = write.before.is_some_and(|was| was.kind == Kind::Leased);
            if was_leased
                && standing.kind != Kind::Leased
                && let Some(delivery) = write.message.delivery
            {
                self.publish_settled(delivery.lease);
            }
        }
    }

    fn publish_settled(&self, lease: LeaseId) {
        if let Some(notify) = lock(&self.open_deliveries).remove(&lease) {
            notify.notify_one();
        }
    }
}

/// The deliveries that one receiver has not settled yet.
#[derive(Debug)]
pub struct Deliveries {
    /// The open deliveries of all receivers. A watched one that is missing here has ended.
    all_open: Arc<OpenDeliveries>,
    notify: Arc<Notify>,
    open: Vec<(LeaseId, Timestamp)>,
}

impl Deliveries {
    /// Watches a delivery that lasts until `until`.
    pub fn watch(&mut self, lease: LeaseId, until: Timestamp) {
        lock(&self.all_open).insert(lease, Arc::clone(&self.notify));
        self.open.push((lease, until));
    }

    /// Returns the number of watched deliveries that are still open at `now`. One whose end was
    /// committed before it was watched counts until its deadline.
    pub fn open(&mut self, now: Timestamp) -> usize {
        let mut all_open = lock(&self.all_open);
        self.open.retain(|(lease, until)| {
            if *until <= now {
                all_open.remove(lease);
            }
            all_open.contains_key(lease)
        });
        self.open.len()
    }

    /// Waits until a delivery ends. An end since the last call counts too.
    pub async fn settled(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        let mut all_open = lock(&self.all_open);
        for (lease, _) in &self.open {
            all_open.remove(lease);
        }
    }
}

/// A registered caller that waits for the end of a task or of its lease.
#[derive(Debug)]
pub struct EndWaiter<'a> {
    ends: &'a Ends,
    key: (TenantId, TaskId),
    notify: Arc<Notify>,
}

impl EndWaiter<'_> {
    /// Returns a future that is ready once the end has come. Make it before looking at the task: an
    /// end that is committed after this call is not missed.
    pub fn ended(&self) -> impl Future<Output = ()> + Unpin + '_ {
        let mut notified = Box::pin(self.notify.notified());
        // A future that was never polled would miss the end.
        notified.as_mut().enable();
        notified
    }
}

impl Drop for EndWaiter<'_> {
    fn drop(&mut self) {
        self.ends.count.fetch_sub(1, Ordering::SeqCst);
        let mut awaited = lock(&self.ends.awaited);
        if let Some(end) = awaited.get_mut(&self.key) {
            end.waiters -= 1;
            if end.waiters == 0 {
                awaited.remove(&self.key);
            }
        }
    }
}
