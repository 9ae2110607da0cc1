//! Waiting without polling: commits tell those who wait for what they changed.
//!
//! Invariants: who registers before looking misses nothing; a task that becomes ready wakes one
//! waiting worker that can serve it, and if that worker goes away before it looked, the next one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use asyncgate_core::{Changes, Class, Placement, Reach, TaskId, TenantId, Timestamp};
use tokio::sync::{Notify, oneshot};

/// Those who wait, and what for. Backends call [`Signals::publish`] after each commit.
#[derive(Debug)]
pub struct Signals {
    waiting: AtomicUsize,
    next_id: AtomicU64,
    ready: Mutex<HashMap<TenantId, VecDeque<Worker>>>,
    ended: Mutex<HashMap<(TenantId, TaskId), Watchers>>,
    due: Notify,
    watched: AtomicI64,
}

#[derive(Debug)]
struct Worker {
    id: u64,
    reach: Reach,
    wake: oneshot::Sender<Class>,
}

#[derive(Debug, Default)]
struct Watchers {
    notify: std::sync::Arc<Notify>,
    count: usize,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            waiting: AtomicUsize::default(),
            next_id: AtomicU64::default(),
            ready: Mutex::default(),
            ended: Mutex::default(),
            due: Notify::default(),
            watched: AtomicI64::new(i64::MAX),
        }
    }
}

impl Signals {
    /// Registers a worker that will look for tasks it can serve.
    pub fn ready(&self, tenant: TenantId, reach: Reach) -> ReadyWait<'_> {
        let (wake, woken) = oneshot::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        lock(&self.ready)
            .entry(tenant)
            .or_default()
            .push_back(Worker { id, reach, wake });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        ReadyWait {
            signals: self,
            tenant,
            id,
            woken,
            baton: None,
        }
    }

    /// Registers interest in the end of a task.
    pub fn ended(&self, tenant: TenantId, task: TaskId) -> EndedWait<'_> {
        let mut ended = lock(&self.ended);
        let watchers = ended.entry((tenant, task)).or_default();
        watchers.count += 1;
        let notify = std::sync::Arc::clone(&watchers.notify);
        drop(ended);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        EndedWait {
            signals: self,
            key: (tenant, task),
            notify,
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

    /// Wakes those who wait for what `changes` wrote. Called after the commit.
    pub fn publish(&self, tenant: TenantId, changes: &Changes) {
        for write in &changes.tasks {
            match write.task.placement() {
                Placement::Due { at } => {
                    if at.as_millis() < self.watched.load(Ordering::SeqCst) {
                        self.due.notify_one();
                    }
                }
                _ if self.waiting.load(Ordering::SeqCst) == 0 => {}
                Placement::Ready { .. } => self.wake_worker(tenant, &write.task.class()),
                Placement::Ended => self.wake_watchers(tenant, write.task.id),
            }
        }
    }

    fn wake_worker(&self, tenant: TenantId, class: &Class) {
        let mut ready = lock(&self.ready);
        let Some(workers) = ready.get_mut(&tenant) else {
            return;
        };
        while let Some(n) = workers.iter().position(|worker| worker.reach.serves(class)) {
            let sent = workers
                .remove(n)
                .is_some_and(|worker| worker.wake.send(class.clone()).is_ok());
            if sent {
                return;
            }
        }
    }

    fn wake_watchers(&self, tenant: TenantId, task: TaskId) {
        if let Some(watchers) = lock(&self.ended).get(&(tenant, task)) {
            watchers.notify.notify_waiters();
        }
    }
}

/// A registered worker. Dropping it unregisters, and passes an unused wake-up on.
#[derive(Debug)]
pub struct ReadyWait<'a> {
    signals: &'a Signals,
    tenant: TenantId,
    id: u64,
    woken: oneshot::Receiver<Class>,
    baton: Option<Class>,
}

impl ReadyWait<'_> {
    /// Waits until a task that the worker can serve becomes ready.
    pub async fn woken(&mut self) {
        self.baton = (&mut self.woken).await.ok();
    }

    /// Says that the worker looked after it was woken, so that nobody else needs to.
    pub fn looked(mut self) {
        self.baton = None;
        self.woken.close();
        while self.woken.try_recv().is_ok() {}
    }
}

impl Drop for ReadyWait<'_> {
    fn drop(&mut self) {
        self.signals.waiting.fetch_sub(1, Ordering::SeqCst);
        {
            let mut ready = lock(&self.signals.ready);
            if let Some(workers) = ready.get_mut(&self.tenant) {
                workers.retain(|worker| worker.id != self.id);
                if workers.is_empty() {
                    ready.remove(&self.tenant);
                }
            }
        }
        self.woken.close();
        let unused = self.baton.take().or_else(|| self.woken.try_recv().ok());
        if let Some(class) = unused {
            self.signals.wake_worker(self.tenant, &class);
        }
    }
}

/// Registered interest in the end of a task.
#[derive(Debug)]
pub struct EndedWait<'a> {
    signals: &'a Signals,
    key: (TenantId, TaskId),
    notify: std::sync::Arc<Notify>,
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
        self.signals.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut ended = lock(&self.signals.ended);
        if let Some(watchers) = ended.get_mut(&self.key) {
            watchers.count -= 1;
            if watchers.count == 0 {
                ended.remove(&self.key);
            }
        }
    }
}

/// A panic elsewhere cannot leave these maps half-changed, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
