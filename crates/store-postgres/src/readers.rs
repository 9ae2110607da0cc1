//! Connections for reads. They see whatever is committed, and so everything that was answered.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use asyncgate_store::{Answer, Error};
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::{Client, Config};

use crate::session::{Deadlines, Session, unavailable};

/// A read: it is given a connection, and may be asked again if that is lost.
pub(crate) type Read<T> = Arc<
    dyn Fn(Arc<Session>) -> futures_util::future::BoxFuture<'static, Result<T, ReadError>>
        + Send
        + Sync,
>;

/// The failure of a read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The connection or the server below failed.
    Database(tokio_postgres::Error),
    /// What was read cannot be what was written.
    Store(Error),
}

impl From<tokio_postgres::Error> for ReadError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// A small pool of connections, driven by a thread of its own.
#[derive(Debug)]
pub(crate) struct Readers {
    pool: Arc<Pool>,
    /// Absent while it is being dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

#[derive(Debug)]
struct Pool {
    config: Config,
    deadlines: Deadlines,
    longest: Duration,
    /// The connections, as far as they are open. Several reads share one.
    open: Vec<Mutex<Option<Arc<Session>>>>,
    next: AtomicUsize,
}

impl Readers {
    pub(crate) fn start(
        config: Config,
        deadlines: Deadlines,
        connections: usize,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres-reads")
            .enable_all()
            .build()?;
        let mut open = Vec::new();
        open.resize_with(connections.max(1), Mutex::default);
        let pool = Arc::new(Pool {
            config,
            deadlines,
            longest: 2 * deadlines.statement,
            open,
            next: AtomicUsize::new(0),
        });
        let handle = runtime.handle().clone();
        Ok(Self {
            pool,
            runtime: Some(runtime),
            handle,
        })
    }

    /// Runs a read. If the connection turns out to be lost, it is run once more on another one.
    pub(crate) fn read<T: Send + 'static>(&self, read: Read<T>) -> Answer<'static, T> {
        let pool = Arc::clone(&self.pool);
        // The connections belong to the pool's own runtime, and callers may have none with a clock.
        let running = self.handle.spawn(async move {
            let longest = pool.longest;
            let late = |_| Error::Unavailable("the database does not answer in time".to_owned());
            tokio::time::timeout(longest, pool.read(&read))
                .await
                .map_err(late)?
        });
        Box::pin(async move {
            let ended = |error: tokio::task::JoinError| Error::Unavailable(error.to_string());
            running.await.map_err(ended)?
        })
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Whoever drops the store may be a task itself, which must not wait.
            runtime.shutdown_background();
        }
    }
}

impl Pool {
    async fn read<T>(&self, read: &Read<T>) -> Result<T, Error> {
        for is_last in [false, true] {
            let session = self.session().await?;
            match read(Arc::clone(&session)).await {
                Ok(found) => return Ok(found),
                Err(ReadError::Store(error)) => return Err(error),
                Err(ReadError::Database(error)) if is_last || !lost(&session.client, &error) => {
                    return Err(unavailable(error));
                }
                Err(ReadError::Database(_)) => {}
            }
        }
        Err(Error::Unavailable("the connection was lost".to_owned()))
    }

    /// Returns the next connection in turn, opened again if it was lost.
    async fn session(&self) -> Result<Arc<Session>, Error> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.open.len();
        let slot = &self.open[turn];
        let known = slot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(session) = known.filter(|session| !session.client.is_closed()) {
            return Ok(session);
        }
        let session = Arc::new(Session::connect(&self.config, self.deadlines).await?);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Arc::clone(&session));
        Ok(session)
    }
}

/// Returns true if the connection is gone: another one may do better.
fn lost(client: &Client, error: &tokio_postgres::Error) -> bool {
    client.is_closed() || error.is_closed() || error.as_db_error().is_none()
}
