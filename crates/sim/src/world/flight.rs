//! Calls in flight: futures of the real operations, polled by hand.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use asyncgate_core::{Changes, Reach, Timestamp};
use asyncgate_engine::{Engine, Entry, Fault, Source};

use crate::{
    asked::Asked,
    cast::Actor,
    entrance::{Answer, Output},
    model::{Notes, Verdict},
    step::{Manner, Op},
};

type Running = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// A call that has begun and is not answered.
pub struct Flight {
    /// The call's number in the schedule.
    pub label: u32,
    /// Who calls.
    pub actor: usize,
    /// What.
    pub op: Op,
    /// How.
    pub manner: Manner,
    /// With which input.
    pub asked: Asked,
    /// What a worker offers.
    pub reach: Option<Reach>,
    /// How many faults the store had injected when it began.
    pub faults: u64,
    /// What the last of its transactions should lead to.
    pub verdict: Option<Verdict>,
    /// When the last of its transactions was decided.
    pub decided: Option<Timestamp>,
    /// How many tasks its transactions created.
    pub tasks_made: usize,
    /// How many receipts its transactions wrote.
    pub receipts_made: usize,
    /// Whether something else was committed since it began.
    pub overtaken: bool,
    /// What its transactions over messages came to.
    pub notes: Notes,
    future: Running,
    bell: Arc<Bell>,
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
}

impl Flight {
    /// Prepares a call; nothing happens before it is polled.
    pub fn begin(begin: Begin<'_>) -> Self {
        let asked = Asked::new(begin.input.into());
        let (engine, caller) = (Arc::clone(begin.engine), Arc::clone(&begin.who.caller));
        let (entry, input) = (begin.entry, Arc::clone(asked.input()));
        let typed = begin.typed.then(|| begin.op.typed());
        let future = Box::pin(async move {
            if let Some(typed) = typed {
                return typed(&engine, &caller, &input).await;
            }
            let source = Source::Json(input.as_bytes());
            let answer = (entry.call)(&engine, &caller, source).await?;
            Ok(Answer {
                output: Output::Json(answer.json),
                created: answer.created,
            })
        });
        let bell = Arc::new(Bell(AtomicBool::new(true)));
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
            verdict: None,
            decided: None,
            tasks_made: 0,
            receipts_made: 0,
            overtaken: false,
            notes: Notes::default(),
            future,
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        }
    }

    /// Goes on with the call.
    pub fn poll(&mut self) -> Poll<Result<Answer, Fault>> {
        self.bell.0.store(false, Ordering::Relaxed);
        let mut context = Context::from_waker(&self.waker);
        self.future.as_mut().poll(&mut context)
    }

    /// Whether something happened that the call waits for.
    pub fn is_woken(&self) -> bool {
        self.bell.0.load(Ordering::Relaxed)
    }

    /// Notes what one of its transactions did.
    pub fn note(&mut self, verdict: Verdict, now: Timestamp, changes: Option<&Changes>) {
        self.verdict = Some(verdict);
        self.decided = Some(now);
        if let Some(changes) = changes {
            let new = changes.tasks.iter().filter(|write| write.before.is_none());
            self.tasks_made += new.count();
            self.receipts_made += changes.receipts.len();
        }
    }
}

/// A watch of the server over deadlines.
pub struct Watch {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    bell: Arc<Bell>,
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
        let bell = Arc::new(Bell(AtomicBool::new(true)));
        Self {
            future: Box::pin(watching),
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        }
    }

    /// Goes on watching if there is a reason to.
    pub fn poll_if_woken(&mut self) -> bool {
        if !self.bell.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        let mut context = Context::from_waker(&self.waker);
        let _ = self.future.as_mut().poll(&mut context);
        true
    }
}

struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
