//! A connection to the database, and the round trips on it.
//!
//! A connection may be shared with others through a pooler in transaction mode: nothing is kept in it from one
//! transaction to the next, so statements have no names and settings end with their transaction.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use asyncgate_store::Error;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Row, Socket,
    error::{Severity, SqlState},
    tls::NoTlsStream,
    types::{ToSql, Type},
};

/// An open connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The number of warnings that the server has sent.
    warnings: Arc<AtomicU64>,
}

/// The times that a transaction may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// The time to connect, all steps together.
    pub(crate) connect: Duration,
    /// The time of one statement, and of the client's silence within a transaction.
    pub(crate) statement: Duration,
    /// The time to wait for a lock.
    pub(crate) lock: Duration,
}

/// A statement with its parameters.
pub(crate) struct Statement {
    sql: String,
    params: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Statement {
    pub(crate) fn new(sql: impl Into<String>) -> Self {
        Self {
            sql: sql.into(),
            params: Vec::new(),
        }
    }

    /// Adds a parameter.
    pub(crate) fn with(mut self, value: impl ToSql + Sync + Send + 'static, kind: Type) -> Self {
        self.params.push((Box::new(value), kind));
        self
    }

    pub(crate) fn int8s(self, values: Vec<i64>) -> Self {
        self.with(values, Type::INT8_ARRAY)
    }

    pub(crate) fn bytes(self, values: Vec<Vec<u8>>) -> Self {
        self.with(values, Type::BYTEA_ARRAY)
    }

    /// Runs the statement in a transaction of its own.
    pub(crate) async fn run(&self, client: &Client) -> Result<Vec<Row>, tokio_postgres::Error> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> = self
            .params
            .iter()
            .map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone()))
            .collect();
        client.query_typed(&self.sql, &params).await
    }
}

impl std::fmt::Debug for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Statement").field(&self.sql).finish()
    }
}

/// The failure of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another instance has taken a shard over. Nothing was written.
    Fenced,
    /// The database refused. Nothing was written.
    Refused(String),
    /// Nobody knows whether it was written.
    Unknown(String),
}

impl Failure {
    /// Returns what those are told whose work it was.
    pub(crate) fn told(&self) -> Error {
        match self {
            Self::Fenced => {
                Error::Unavailable("another instance has taken over from this one".to_owned())
            }
            Self::Refused(why) => Error::Unavailable(why.clone()),
            Self::Unknown(why) => Error::Unknown(why.clone()),
        }
    }
}

pub(crate) fn unavailable(error: tokio_postgres::Error) -> Error {
    Error::Unavailable(said(&error))
}

/// Returns what the server said, which the error itself keeps in its source.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => error.to_string(),
    }
}

impl Session {
    /// Connects. The connection is driven by the runtime that this runs on.
    pub(crate) async fn connect(config: &Config, deadlines: Deadlines) -> Result<Self, Error> {
        // The deadline of the library covers the socket only, and a server that is overloaded lets clients wait after it.
        let connected = tokio::time::timeout(deadlines.connect, config.connect(NoTls)).await;
        let connected = connected
            .map_err(|_| Error::Unavailable("the database does not answer in time".to_owned()))?;
        let (client, connection) = connected.map_err(unavailable)?;
        let warnings = Arc::new(AtomicU64::new(0));
        tokio::spawn(drive(connection, Arc::clone(&warnings)));
        Ok(Self { client, warnings })
    }

    /// Runs statements in one transaction and one round trip: everything is sent before the first answer is read.
    /// The first statement that fails lets all behind it fail, the commit included.
    pub(crate) async fn transact(
        &self,
        deadlines: Deadlines,
        statements: &[Statement],
    ) -> Result<Vec<Vec<Row>>, Failure> {
        if self.client.is_closed() {
            return Err(Failure::Refused("the connection is closed".to_owned()));
        }
        let warnings = self.warnings.load(Ordering::SeqCst);
        let begin = begin(deadlines);
        let mut steps: Vec<BoxFuture<'_, Result<Vec<Row>, tokio_postgres::Error>>> = Vec::new();
        steps.push(Box::pin(async {
            self.client.batch_execute(&begin).await?;
            Ok(Vec::new())
        }));
        for statement in statements {
            steps.push(Box::pin(statement.run(&self.client)));
        }
        steps.push(Box::pin(async {
            self.client.batch_execute("COMMIT").await?;
            Ok(Vec::new())
        }));
        // More than any statement may take, in case the other side is gone without a word.
        let longest = 2 * deadlines.statement;
        let Ok(mut answers) = tokio::time::timeout(longest, in_order(steps)).await else {
            let why = "the database does not answer in time".to_owned();
            return Err(Failure::Unknown(why));
        };
        let commits = answers.len() - 1;
        if let Some(at) = answers.iter().position(Result::is_err) {
            let error = answers.swap_remove(at);
            return Err(error.map_or_else(|error| failure(&error, at == commits), |_| unknown()));
        }
        if self.warnings.load(Ordering::SeqCst) != warnings {
            return Err(unknown());
        }
        answers.pop();
        Ok(answers.into_iter().skip(1).flatten().collect())
    }
}

/// Returns the failure of a commit of which the server has warned: it may be on this server alone.
fn unknown() -> Failure {
    Failure::Unknown("the database warned of the commit".to_owned())
}

/// Returns what an error says about the transaction. An error of the server ends it, but an error of the connection may
/// have come after the commit.
fn failure(error: &tokio_postgres::Error, at_commit: bool) -> Failure {
    let Some(db) = error.as_db_error() else {
        return Failure::Unknown(said(error));
    };
    let ends_session = db.parsed_severity() != Some(Severity::Error);
    if at_commit && ends_session {
        return Failure::Unknown(said(error));
    }
    match *db.code() == SqlState::DIVISION_BY_ZERO {
        true => Failure::Fenced,
        false => Failure::Refused(said(error)),
    }
}

/// Returns the begin of a transaction with its deadlines. Rows are joined by their keys: a plan made while a table was
/// small would scan it for ever. What must be scanned all the same looks so costly then that it would be compiled first.
fn begin(deadlines: Deadlines) -> String {
    let (statement, lock) = (deadlines.statement.as_millis(), deadlines.lock.as_millis());
    format!(
        "BEGIN; SET LOCAL statement_timeout = {statement}; SET LOCAL lock_timeout = {lock}; \
         SET LOCAL idle_in_transaction_session_timeout = {statement}; \
         SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
    )
}

/// Runs futures at once. Each is begun before the one behind it, so that what they send is sent in this order.
async fn in_order<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut steps: Vec<_> = futures
        .into_iter()
        .map(|future| Box::pin(maybe_done(future)))
        .collect();
    poll_fn(|context| {
        let mut pending = false;
        for step in &mut steps {
            if !matches!(**step, MaybeDone::Done(_)) {
                pending |= step.as_mut().poll(context).is_pending();
            }
        }
        match pending {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
    let outputs = steps.iter_mut().map(|step| step.as_mut().take_output());
    outputs.flatten().collect()
}

/// Moves bytes between the client and the server until either is gone.
async fn drive(mut connection: Connection<Socket, NoTlsStream>, warnings: Arc<AtomicU64>) {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    tracing::warn!(notice = notice.message(), "the database warns");
                    warnings.fetch_add(1, Ordering::SeqCst);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection to the database was lost");
                return;
            }
            None => return,
        }
    }
}
