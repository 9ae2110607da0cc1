//! Calls in flight: futures of the real operations, polled by hand.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use asyncgate_api::ReceiveMessages;
use asyncgate_core::{Changes, Reach, ReceiptType, RecordId, Timestamp};
use asyncgate_engine::{Authenticator, Caller, Engine, Entry, Fault, Source, Streamed, decode};
use futures_util::{FutureExt, StreamExt, future::pending, stream};

use super::door::Credential;
use crate::{
    asked::Asked,
    cast::Actor,
    entrance::{Answer, Output, Typed},
    model::{Notes, Verdict},
    step::{Manner, Op},
    store::{Commit, Wrote},
};

type Running = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// A call that has begun and is not answered.
pub struct Flight {
    /// The call's number in the schedule.
    pub label: u32,
    /// The actor that calls.
    pub actor: usize,
    /// The operation.
    pub op: Op,
    /// Its treatment by the network.
    pub manner: Manner,
    /// The input.
    pub asked: Asked,
    /// The offer of a worker.
    pub reach: Option<Reach>,
    /// The number of faults that the store had injected when it began.
    pub faults: u64,
    /// The place of the oldest quotas that it may count with.
    pub oldest_quotas: usize,
    /// The expected answer, by the last of its transactions.
    pub verdict: Option<Verdict>,
    /// The answers that older quotas would give.
    pub otherwise: Vec<Verdict>,
    /// The time at which the last of its transactions was decided.
    pub decided: Option<Timestamp>,
    /// The number of tasks that its transactions created.
    pub tasks_made: usize,
    /// The number of receipts that its transactions wrote.
    pub receipts_made: usize,
    /// The number of leases that its transactions gave.
    pub leases_made: usize,
    /// True if something else was committed since it began.
    pub overtaken: bool,
    /// The model's notes on its transactions over messages.
    pub notes: Notes,
    /// The credential that it shows, if it needs one.
    pub credential: Option<RecordId>,
    /// True from the first poll on: the credential was accepted or refused.
    pub received: bool,
    /// The number of messages that the client of a stream asked for; absent before its first look.
    pub window: Option<Option<usize>>,
    /// True if it waits for something to happen, and has no transaction under way.
    pub waits: bool,
    future: Running,
    flag: Arc<WakeFlag>,
    waker: Waker,
}

/// A call to begin.
pub struct Begin<'a> {
    pub label: u32,
    pub actor: usize,
    pub op: Op,
    pub manner: Manner,
    pub entry: &'static Entry,
    pub typed: bool,
    pub who: &'a Actor,
    pub engine: &'a Arc<Engine>,
    pub input: String,
    pub faults: u64,
    pub oldest_quotas: usize,
    pub shown: Option<(Arc<dyn Authenticator>, Credential)>,
}

impl Flight {
    /// Prepares a call; nothing happens before it is polled.
    pub fn begin(begin: Begin<'_>) -> Self {
        let asked = Asked::new(begin.input.into());
        let credential = begin.shown.as_ref().map(|(_, credential)| credential.id);
        let call = Call {
            engine: Arc::clone(begin.engine),
            caller: Arc::clone(&begin.who.caller),
            shown: begin.shown,
            entry: begin.entry,
            typed: begin.typed.then(|| begin.op.typed()),
            input: Arc::clone(asked.input()),
        };
        let future: Running = match begin.manner {
            Manner::Prompt | Manner::Lost | Manner::Late => Box::pin(call.run()),
            Manner::Live => Box::pin(call.listen()),
        };
        // Set from the start, so that the first poll happens without a wake-up.
        let flag = Arc::new(WakeFlag(AtomicBool::new(true)));
        Self {
            label: begin.label,
            actor: begin.actor,
            op: begin.op,
            manner: begin.manner,
            reach: (begin.op == Op::LEASE).then(|| {
                let offers = asked.value("capabilities").unwrap_or_default();
                Reach::new(offers, asked.value("accept_types"))
            }),
            asked,
            faults: begin.faults,
            oldest_quotas: begin.oldest_quotas,
            verdict: None,
            otherwise: Vec::new(),
            decided: None,
            tasks_made: 0,
            receipts_made: 0,
            leases_made: 0,
            overtaken: false,
            notes: Notes::default(),
            credential,
            received: false,
            window: None,
            waits: false,
            future,
            waker: Waker::from(Arc::clone(&flag)),
            flag,
        }
    }

    /// Continues the call.
    pub fn poll(&mut self) -> Poll<Result<Answer, Fault>> {
        self.flag.0.store(false, Ordering::Relaxed);
        let mut context = Context::from_waker(&self.waker);
        self.future.as_mut().poll(&mut context)
    }

    /// Returns true if something happened that the call waits for.
    pub fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::Relaxed)
    }

    /// Adapts what a stream asks for to what it asked the store for: a stream with messages under way has room for
    /// fewer. It never asks for more than its client did.
    pub fn fit(&mut self, commit: &Commit) {
        let (Manner::Live, Wrote::Mail(wrote)) = (self.manner, &commit.wrote) else {
            return;
        };
        let Some(take) = &wrote.reads.ready else {
            return;
        };
        let window = *self
            .window
            .get_or_insert_with(|| self.asked.number("max_messages"));
        let room = window.map_or(take.max_messages, |window: usize| {
            window.min(take.max_messages)
        });
        let asked = serde_json::from_str(self.asked.input());
        let mut asked: serde_json::Map<String, serde_json::Value> = asked.unwrap_or_default();
        asked.insert("max_messages".to_owned(), room.into());
        let asked = serde_json::Value::from(asked).to_string();
        self.asked = Asked::new(asked.into());
    }

    /// Records the effect of one of its transactions.
    pub fn note(&mut self, verdict: Verdict, now: Timestamp, changes: Option<&Changes>) {
        self.verdict = Some(verdict);
        self.decided = Some(now);
        if let Some(changes) = changes {
            let new = changes.tasks.iter().filter(|write| write.before.is_none());
            self.tasks_made += new.count();
            self.receipts_made += changes.receipts.len();
            let accepted = |kind| kind == ReceiptType::TaskAccepted;
            let kinds = changes.receipts.iter().map(|receipt| receipt.receipt_type);
            self.leases_made += kinds.filter(|kind| accepted(*kind)).count();
        }
    }
}

/// A call, with everything that it needs.
struct Call {
    engine: Arc<Engine>,
    caller: Arc<Caller>,
    /// The credential, and the authenticator that it is shown to.
    shown: Option<(Arc<dyn Authenticator>, Credential)>,
    entry: &'static Entry,
    typed: Option<Typed>,
    input: Arc<str>,
}

impl Call {
    async fn caller(&self) -> Result<Arc<Caller>, Fault> {
        match &self.shown {
            Some((auth, credential)) => {
                let caller = auth.authenticate(&credential.request()).await?;
                Ok(Arc::new(caller))
            }
            None => Ok(Arc::clone(&self.caller)),
        }
    }

    async fn run(self) -> Result<Answer, Fault> {
        let caller = self.caller().await?;
        if let Some(typed) = self.typed {
            return typed(&self.engine, &caller, &self.input).await;
        }
        let source = Source::Json(self.input.as_bytes());
        let answer = (self.entry.call)(&self.engine, &caller, source).await?;
        Ok(Answer {
            output: Output::Json(answer.json),
            created: answer.created,
        })
    }

    /// Receives messages like a facade with streams, and returns how many there were.
    async fn listen(self) -> Result<Answer, Fault> {
        let ended = match &self.shown {
            Some((auth, credential)) => auth.until_ended(&credential.request()),
            None => pending().boxed(),
        };
        let caller = self.caller().await?;
        let input = decode::<ReceiveMessages>(Source::Json(self.input.as_bytes()));
        let stream = self.engine.receive_stream(&caller, input).await?;
        let parts = stream::unfold(stream, async |mut stream| {
            let part = stream.next().await?;
            Some((part, stream))
        });
        let mut parts = pin!(parts.take_until(ended));
        let mut messages = 0_usize;
        while let Some(part) = parts.next().await {
            messages += match part {
                Streamed::Messages(messages) => messages.len(),
                Streamed::Heartbeat => 0,
            };
        }
        Ok(Answer {
            output: Output::Typed(Box::new(messages)),
            created: false,
        })
    }
}

/// A background task of the server that watches deadlines.
pub struct Watch {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    flag: Arc<WakeFlag>,
    waker: Waker,
}

impl Watch {
    /// Starts watching tasks.
    pub fn tasks(engine: &Arc<Engine>) -> Self {
        let engine = Arc::clone(engine);
        Self::start(async move { engine.watch_deadlines().await })
    }

    /// Starts watching messages.
    pub fn messages(engine: &Arc<Engine>) -> Self {
        let engine = Arc::clone(engine);
        Self::start(async move { engine.watch_messages().await })
    }

    fn start(watching: impl Future<Output = ()> + Send + 'static) -> Self {
        let flag = Arc::new(WakeFlag(AtomicBool::new(true)));
        Self {
            future: Box::pin(watching),
            waker: Waker::from(Arc::clone(&flag)),
            flag,
        }
    }

    /// Continues the watch if it was woken.
    pub fn poll_if_woken(&mut self) -> bool {
        if !self.flag.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        let mut context = Context::from_waker(&self.waker);
        let _ = self.future.as_mut().poll(&mut context);
        true
    }
}

struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
