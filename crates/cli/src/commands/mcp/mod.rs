//! `asyncgate mcp --url`: passes the messages of an MCP client on stdin and stdout on to a running server.
//!
//! Messages are carried, not read: every byte of a message reaches the other side, except line breaks
//! between tokens of JSON, because a line is a message here. Only what HTTP wants to know of a message
//! is looked at ([`Envelope`]), in both eras of the protocol.
//!
//! Invariants:
//! - Only one task writes to stdout, one whole line at a time.
//! - A request is always answered: by the server, or by an error that says why it did not.
//! - The key is in no message and no line on stderr.

mod envelope;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use asyncgate_client::{Client, Error, Mcp};
use clap::Args;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::mpsc::{Sender, channel},
    task::{AbortHandle, JoinSet},
};

use super::Running;
use crate::{
    output::complain,
    remote::Certificate,
    signals::{Signals, Wish},
};
use envelope::{Envelope, Kind};

/// The most messages under way; past that the client has to wait.
const MOST_MESSAGES: usize = 256;
/// The code of errors that are neither the client's nor the protocol's.
const NOT_DONE: i32 = -32000;

/// What to do without a key.
const NO_KEY: &str = "the server wants an API key: set ASYNCGATE_API_KEY, or use --api-key";

/// The arguments that name the server to pass messages on to.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running server")]
pub struct Bridge {
    /// Pass all messages on to the server at this address, instead of opening a data directory.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The API key for that server. Better in the environment than on the command line.
    #[arg(
        long,
        alias = "key",
        value_name = "KEY",
        env = "ASYNCGATE_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<String>,
    #[command(flatten)]
    certificate: Certificate,
}

impl Bridge {
    /// Returns true if messages are to be passed on.
    pub fn is_wanted(&self) -> bool {
        self.url.is_some()
    }

    /// Passes messages on until stdin ends and all are answered, or a signal asks to stop. `toolsets`
    /// names those that lists shall show.
    pub fn run(self, toolsets: Option<&str>) -> Running<'_> {
        Box::pin(self.work(toolsets))
    }

    async fn work(self, toolsets: Option<&str>) -> anyhow::Result<()> {
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        let server = self.server(toolsets)?;
        let client = carry(
            server,
            BufReader::new(tokio::io::stdin()),
            tokio::io::stdout(),
        );
        let stop = async { while signals.next().await != Wish::Stop {} };
        tokio::select! {
            ended = client => ended.context("the client's stream failed"),
            () = stop => Ok(()),
        }
    }

    fn server(&self, toolsets: Option<&str>) -> anyhow::Result<Mcp> {
        let url = self.url.as_deref().unwrap_or_default();
        // People copy the address of the endpoint as well as that of the server.
        let url = url.trim_end_matches('/');
        let mut builder = Client::builder(url.strip_suffix("/mcp").unwrap_or(url));
        if let Some(key) = &self.api_key {
            builder = builder.key(key);
        }
        Ok(self.certificate.give(builder)?.build()?.mcp(toolsets))
    }
}

/// Carries messages until the reader ends and all are answered.
async fn carry(
    server: Mcp,
    mut reader: impl AsyncBufRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (sender, mut answers) = channel(MOST_MESSAGES);
    // The tasks of messages have copies of the sender, so that the last of them ends the answers.
    let mut sender = Some(sender);
    let mut carrier = Carrier {
        server,
        version: Arc::default(),
        tasks: JoinSet::new(),
        running: Vec::new(),
    };
    // Kept between rounds: a read that another event interrupts goes on where it was.
    let mut line = Vec::new();
    loop {
        let has_room = carrier.tasks.len() < MOST_MESSAGES;
        tokio::select! {
            read = reader.read_until(b'\n', &mut line), if sender.is_some() && has_room => {
                let ended = read? == 0;
                if let Some(sender) = &sender {
                    carrier.take(std::mem::take(&mut line), sender);
                }
                if ended {
                    sender = None;
                }
            }
            Some(_) = carrier.tasks.join_next() => {}
            answer = answers.recv() => {
                let Some(answer) = answer else {
                    return Ok(());
                };
                let answer: Vec<u8> = answer;
                writer.write_all(&answer).await?;
                writer.flush().await?;
            }
        }
    }
}

struct Carrier {
    server: Mcp,
    /// The version that a handshake agreed on.
    version: Arc<Mutex<Option<String>>>,
    tasks: JoinSet<()>,
    /// Requests by their ids, so that they can be cancelled.
    running: Vec<(String, AbortHandle)>,
}

impl Carrier {
    /// Starts to carry a line.
    fn take(&mut self, line: Vec<u8>, answers: &Sender<Vec<u8>>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let envelope = Envelope::read(&line);
        self.running.retain(|(_, task)| !task.is_finished());
        if let Some(cancelled) = &envelope.cancels {
            let cancelled = self.running.iter().filter(|(id, _)| id == cancelled);
            cancelled.for_each(|(_, task)| task.abort());
        }
        let id = match &envelope.kind {
            Kind::Request(id) => Some(id.clone()),
            Kind::Quiet | Kind::Unknown => None,
        };
        let passage = Passage {
            server: self.server.clone(),
            version: Arc::clone(&self.version),
            answers: answers.clone(),
            envelope,
            line,
        };
        let task = self.tasks.spawn(passage.run());
        self.running.extend(id.map(|id| (id, task)));
    }
}

/// One message on its way to the server, and what comes back.
struct Passage {
    server: Mcp,
    version: Arc<Mutex<Option<String>>>,
    answers: Sender<Vec<u8>>,
    envelope: Envelope,
    line: Vec<u8>,
}

impl Passage {
    async fn run(self) {
        let mut answered = false;
        let error = match self.relay(&mut answered).await {
            Ok(()) => NotDone::unanswered(),
            Err(error) => {
                let error = NotDone::from(&error);
                complain(&error.message);
                error
            }
        };
        let id = match &self.envelope.kind {
            Kind::Request(id) => id.as_str(),
            Kind::Unknown => "null",
            Kind::Quiet => return,
        };
        if !answered {
            self.give(error.answer(id)).await;
        }
    }

    /// Sends the message and gives back what comes. `answered` says whether the answer was among it.
    async fn relay(&self, answered: &mut bool) -> Result<(), Error> {
        let headers = self.envelope.headers(self.version().as_deref());
        let mut messages = self.server.send(&headers, self.line.trim_ascii()).await?;
        while let Some(message) = messages.next().await? {
            if let Some(version) = self.envelope.agreed_version(&message) {
                *self.lock() = Some(version);
            }
            *answered |= self.envelope.is_answered_by(&message);
            self.give(message).await;
        }
        Ok(())
    }

    /// Gives a message to the client, on one line. If nobody reads any more, there is nobody to tell.
    async fn give(&self, mut message: Vec<u8>) {
        for byte in &mut message {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        message.push(b'\n');
        let _ = self.answers.send(message).await;
    }

    fn version(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a request was not answered by the server.
struct NotDone {
    message: String,
    /// What the server said, if it said something that is no message of MCP.
    refusal: Option<Value>,
}

impl NotDone {
    fn unanswered() -> Self {
        Self {
            message: "mcp: the server gave no answer".to_owned(),
            refusal: None,
        }
    }

    fn answer(&self, id: &str) -> Vec<u8> {
        let mut error = json!({"code": NOT_DONE, "message": self.message});
        if let Some(refusal) = &self.refusal {
            error["data"] = refusal.clone();
        }
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes()
    }
}

impl From<&Error> for NotDone {
    fn from(error: &Error) -> Self {
        let refusal = error.refusal();
        Self {
            message: match error.needs_key() {
                true => NO_KEY.to_owned(),
                false => error.to_string(),
            },
            refusal: refusal.and_then(|body| serde_json::to_value(body).ok()),
        }
    }
}
