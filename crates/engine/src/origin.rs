//! The origin of a request: its client, and its correlation id.
//!
//! Both follow the request through its task, so that every line of the log can name them without an
//! argument in every function. No rule reads them; a message without a correlation id of its own takes
//! the request's.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

tokio::task_local! {
    static REMOTE: Remote;
    static CORR_ID: CorrId;
    static USER_AGENT: UserAgent;
}

/// The client of a request: the other end of its connection, or somebody behind a proxy there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remote {
    /// Somebody on the network.
    Network(SocketAddr),
    /// Somebody whose request a trusted proxy passed on.
    Forwarded(IpAddr),
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
            Self::Forwarded(address) => address.fmt(f),
            Self::Local { uid } => write!(f, "uid:{uid}"),
        }
    }
}

impl Remote {
    /// Returns the client's address on the network, if it has one.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Network(address) => Some(address.ip().to_canonical()),
            Self::Forwarded(address) => Some(address.to_canonical()),
            Self::Local { .. } => None,
        }
    }

    /// Returns the first address of the network that the client has for itself: its address, and of IPv6 that of the
    /// 64 bits which a provider gives to one machine at the least.
    pub fn network(self) -> Option<IpAddr> {
        Some(match self.ip()? {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        })
    }

    /// Runs `work` on behalf of this client.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        REMOTE.scope(self, work)
    }

    /// Returns the client that the current work is for.
    pub fn current() -> Option<Self> {
        REMOTE.try_get().ok()
    }
}

/// The id of a request in its answer and in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorrId {
    /// The text of the header `X-Corr-Id`. It is shared, because several layers keep it for each request.
    pub text: Arc<str>,
    /// True if the caller chose it.
    pub given: bool,
}

impl CorrId {
    /// Runs `work` on behalf of the request with this id.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CORR_ID.scope(self.clone(), work)
    }

    /// Returns the id of the request that is being answered, if one is.
    pub fn current() -> Option<Self> {
        CORR_ID.try_get().ok()
    }
}

/// The program that says it sent a request. Only requests that the audit log will tell of carry it along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserAgent(Option<Arc<str>>);

impl UserAgent {
    /// Takes over what a request says.
    pub fn new(said: Option<&str>) -> Self {
        Self(said.map(Arc::from))
    }

    /// Runs `work` on behalf of a request of this program.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        USER_AGENT.scope(self, work)
    }

    /// Returns the program that sent the request that is being answered, if that is known.
    pub fn current() -> Option<Arc<str>> {
        USER_AGENT.try_get().ok()?.0
    }
}

/// The request that a task answers, kept so that work goes on for it after the task has turned to
/// something else.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    remote: Option<Remote>,
    corr_id: Option<CorrId>,
}

impl Origin {
    /// Returns the origin of the request that is being answered.
    pub(crate) fn current() -> Self {
        Self {
            remote: Remote::current(),
            corr_id: CorrId::current(),
        }
    }

    /// Runs `work` for the request.
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        match (self.remote, self.corr_id) {
            (Some(remote), Some(corr_id)) => remote.scope(corr_id.scope(work)).await,
            (Some(remote), None) => remote.scope(work).await,
            (None, Some(corr_id)) => corr_id.scope(work).await,
            (None, None) => work.await,
        }
    }
}
