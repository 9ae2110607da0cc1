//! The remote end and the correlation id of the request that a task works on.
//!
//! Both follow the request through its task, so that every line of the log can name them and no
//! function has to pass them on. No rule reads them; a message that has no correlation id of its own
//! takes the request's.

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::task::JoinHandle;

tokio::task_local! {
    static REMOTE: Remote;
    static CORR_ID: CorrId;
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// Somebody on the network.
    Network(SocketAddr),
    /// A process of this machine, run by this user.
    Local {
        /// The user's number.
        uid: u32,
    },
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Local { uid } => write!(f, "uid:{uid}"),
        }
    }
}

impl Remote {
    /// Does `work` for this end of a connection.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        REMOTE.scope(self, work)
    }

    /// The other end of the connection that the current task works for.
    pub fn current() -> Option<Self> {
        REMOTE.try_get().ok()
    }
}

/// The name of a request in its answer and in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorrId {
    /// The id as it stands in `X-Corr-Id`. It is shared: several layers keep it for each request.
    pub text: Arc<str>,
    /// True if the caller chose the id.
    pub given: bool,
}

impl CorrId {
    /// Runs `work`, which answers the request of this id.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CORR_ID.scope(self.clone(), work)
    }

    /// The id of the request that the current task answers, if it answers one.
    pub fn current() -> Option<Self> {
        CORR_ID.try_get().ok()
    }
}

/// Starts a task that goes on with the request that the current task answers.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let (remote, corr_id) = (Remote::current(), CorrId::current());
    tokio::spawn(async move {
        match (remote, corr_id) {
            (Some(remote), Some(corr_id)) => remote.scope(corr_id.scope(work)).await,
            (Some(remote), None) => remote.scope(work).await,
            (None, Some(corr_id)) => corr_id.scope(work).await,
            (None, None) => work.await,
        }
    })
}
