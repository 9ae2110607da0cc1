//! The progress of a connection, and the reasons for which it is cut.
//!
//! Time limits cost nothing per request: the connection notes in a few numbers what it does, and a slow tick compares
//! them with what it saw before. No timer is set or read on the way.
//!
//! Each request notes whose turn it is: the server's while the server has something to do or nothing to say, the
//! client's while a part of the answer waits to be taken. What was handed to the protocol and has not gone out is owed
//! to the client as well. While a client is owed something it must take it at a [`Pace`]; that it shows signs of life
//! does not count. Only the connection's own task writes the numbers, so no ordering is needed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use asyncgate_edge::{Pace, Patience};
use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

/// The time limits of a connection, named as their settings are.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a request's headers, from their first byte; for the first request of a connection, from its beginning.
    pub read: Duration,
    /// For the answer, from the end of the headers.
    pub request: Duration,
    /// The grace of a client that does not take its answer.
    pub write: Duration,
    /// Between requests.
    pub idle: Duration,
    /// The slowest pace of answers and bodies.
    pub bytes_per_second: usize,
}

impl Timeouts {
    /// Returns the time between two looks: short enough for the shortest limit, and no shorter.
    pub fn tick(&self) -> Duration {
        let shortest = [self.request, self.write, self.idle]
            .into_iter()
            .fold(self.read, Duration::min);
        (shortest / 4).clamp(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// Returns the pace at which a client must take its answers.
    pub fn sending(&self) -> Pace {
        self.pace(self.write)
    }

    /// Returns the pace at which a client must send what it announced.
    pub fn receiving(&self) -> Pace {
        self.pace(self.read)
    }

    fn pace(&self, grace: Duration) -> Pace {
        Pace {
            bytes_per_second: self.bytes_per_second,
            grace,
        }
    }
}

/// The reason why a connection was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cut {
    /// It was silent between requests.
    Idle,
    /// The head of a request did not arrive.
    Head,
    /// A request took too long.
    Answer,
    /// The client took its answer too slowly.
    Pace,
    /// The server was full, it had no request under way, and somebody else came.
    Crowded,
    /// Its address had too many others.
    Address,
}

impl Cut {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Idle,
        Self::Head,
        Self::Answer,
        Self::Pace,
        Self::Crowded,
        Self::Address,
    ];

    /// Returns the name of the reason in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Head => "head",
            Self::Answer => "answer",
            Self::Pace => "pace",
            Self::Crowded => "crowded",
            Self::Address => "address",
        }
    }

    /// Logs it.
    pub fn log(self) {
        match self {
            Self::Idle => tracing::debug!("closed a silent connection"),
            Self::Head => tracing::debug!("closed a connection whose request did not arrive"),
            Self::Answer => tracing::warn!("closed a connection whose request took too long"),
            Self::Pace => tracing::info!("closed a connection that took its answer too slowly"),
            Self::Crowded => {
                tracing::debug!("closed an idle connection to make room for another");
            }
            Self::Address => {
                tracing::debug!("closed a connection of an address that has too many");
            }
        }
    }
}

/// The phase of a connection that has one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between requests, or handing over an answer. Connections with many requests at a time are always here.
    Open,
    /// Some of a request's headers have arrived.
    Head,
    /// The request is being worked on; its body may still be arriving.
    Answer,
}

/// What a connection does.
#[derive(Debug)]
pub struct Progress {
    /// The phase and a count of all that happens, in one number, so that one comparison shows whether anything did.
    steps: AtomicU64,
    /// The number of requests whose answers were not handed over whole.
    requests: AtomicUsize,
    /// The number of those on which it is the server's turn.
    working: AtomicUsize,
    /// The bytes of answers that were handed over and have not gone out.
    owed: AtomicUsize,
    /// The bytes of answers that have gone out.
    taken: AtomicUsize,
    /// True while a part of the last request's body was not read.
    body_open: AtomicBool,
    begun: Instant,
    /// The time at which it last had nothing to do, in microseconds since it began.
    idle_since: AtomicU64,
}

const PHASE_BITS: u32 = 2;

impl Default for Progress {
    fn default() -> Self {
        Self {
            steps: AtomicU64::default(),
            requests: AtomicUsize::default(),
            working: AtomicUsize::default(),
            owed: AtomicUsize::default(),
            taken: AtomicUsize::default(),
            body_open: AtomicBool::default(),
            begun: Instant::now(),
            idle_since: AtomicU64::default(),
        }
    }
}

impl Progress {
    /// Moves to a phase; its time starts now.
    pub fn enter(&self, phase: Phase) {
        let step = (self.steps.load(Ordering::Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.steps
            .store(step << PHASE_BITS | phase as u64, Ordering::Relaxed);
    }

    /// Notes that bytes came in. The first ones after an answer begin the next request.
    pub fn read(&self) {
        if self.phase() == Phase::Open {
            self.enter(Phase::Head);
        }
    }

    /// Notes whether a part of the request's body is still to be read.
    pub fn set_body_open(&self, open: bool) {
        self.body_open.store(open, Ordering::Relaxed);
    }

    /// Returns true if the client may still be sending a request that nobody reads: its body was left
    /// alone, or its head was refused.
    pub fn is_being_sent(&self) -> bool {
        self.body_open.load(Ordering::Relaxed) || self.phase() == Phase::Head
    }

    /// Returns the time since which no request has been under way, if none is.
    pub fn idle_since(&self) -> Option<Instant> {
        let micros = self.idle_since.load(Ordering::Relaxed);
        self.is_idle()
            .then(|| self.begun + Duration::from_micros(micros))
    }

    /// Returns true if anything of a request ever came.
    fn any_begun(&self) -> bool {
        self.steps.load(Ordering::Relaxed) > 0
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && self.owed.load(Ordering::Relaxed) == 0
    }

    fn is_owing(&self) -> bool {
        let waiting = self.requests.load(Ordering::Relaxed) > self.working.load(Ordering::Relaxed);
        waiting || self.owed.load(Ordering::Relaxed) > 0
    }

    fn phase(&self) -> Phase {
        match self.steps.load(Ordering::Relaxed) & ((1 << PHASE_BITS) - 1) {
            1 => Phase::Head,
            2 => Phase::Answer,
            _ => Phase::Open,
        }
    }

    /// Notes that so many bytes are owed no more.
    fn settle(&self, bytes: usize) {
        if bytes > 0 && self.owed.fetch_sub(bytes, Ordering::Relaxed) == bytes {
            self.rest();
        }
    }

    /// Begins the time between requests, if nothing is under way.
    fn rest(&self) {
        if !self.is_idle() {
            return;
        }
        let micros = self.begun.elapsed().as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.idle_since.store(micros, Ordering::Relaxed);
        if self.phase() == Phase::Open {
            self.enter(Phase::Open);
        }
    }
}

/// A request from its beginning until its answer was handed over whole, and whose turn it is.
#[derive(Debug)]
pub struct Turn {
    progress: Arc<Progress>,
    /// True while it is the server's.
    server: bool,
}

impl Turn {
    /// Begins a request. It is the server's turn.
    pub fn begin(progress: Arc<Progress>) -> Self {
        progress.requests.fetch_add(1, Ordering::Relaxed);
        progress.working.fetch_add(1, Ordering::Relaxed);
        let phase = progress.phase();
        progress.enter(phase);
        Self {
            progress,
            server: true,
        }
    }

    fn set_servers(&mut self, server: bool) {
        let working = &self.progress.working;
        match (self.server, server) {
            (false, true) => working.fetch_add(1, Ordering::Relaxed),
            (true, false) => working.fetch_sub(1, Ordering::Relaxed),
            (true, true) | (false, false) => return,
        };
        self.server = server;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.set_servers(false);
        self.progress.requests.fetch_sub(1, Ordering::Relaxed);
        self.progress.rest();
    }
}

/// An answer's body. The protocol asks it for the next part only when the client has room for it, so a body
/// that is asked and has nothing shows that it is the server's turn.
#[derive(Debug)]
pub struct Answer {
    body: Body,
    turn: Turn,
}

impl Answer {
    /// Returns the body of the answer to a request. Until it is asked for a part, the client has no room for one.
    pub fn new(body: Body, mut turn: Turn) -> Self {
        turn.set_servers(false);
        Self { body, turn }
    }
}

impl HttpBody for Answer {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.turn.set_servers(frame.is_pending());
        frame.map_ok(|frame| frame.map_data(|bytes| Piece::new(bytes, &self.turn.progress)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of an answer. The protocol keeps it until all of it has gone out, and consumes it as it goes.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    progress: Arc<Progress>,
}

impl Piece {
    fn new(bytes: Bytes, progress: &Arc<Progress>) -> Self {
        progress.owed.fetch_add(bytes.len(), Ordering::Relaxed);
        Self {
            bytes,
            progress: progress.clone(),
        }
    }

    fn took(&self, bytes: usize) {
        self.progress.taken.fetch_add(bytes, Ordering::Relaxed);
        self.progress.settle(bytes);
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.took(count);
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        let bytes = self.bytes.copy_to_bytes(len);
        self.took(len);
        bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.progress.settle(self.bytes.len());
    }
}

/// Looks at a connection's [`Progress`] now and then, and finds when it stands still or is too slow.
#[derive(Debug)]
pub struct StallDetector {
    progress: Arc<Progress>,
    timeouts: Timeouts,
    /// The steps at the last look.
    seen: u64,
    /// The time since the last step, in whole ticks.
    still: Duration,
    /// The bytes that had been taken at the last look.
    taken: usize,
    patience: Patience,
}

impl StallDetector {
    pub fn new(progress: Arc<Progress>, timeouts: Timeouts) -> Self {
        Self {
            progress,
            timeouts,
            seen: 0,
            still: Duration::ZERO,
            taken: 0,
            patience: Patience::new(timeouts.sending()),
        }
    }

    /// Looks once; to be called every [`Timeouts::tick`]. Returns the reason to cut the connection, if there is
    /// one, and then counts anew.
    pub fn look(&mut self) -> Option<Cut> {
        let found = self.look_at_pace().or_else(|| self.look_at_steps());
        if found.is_some() {
            self.still = Duration::ZERO;
        }
        found
    }

    fn look_at_pace(&mut self) -> Option<Cut> {
        let taken = self.progress.taken.load(Ordering::Relaxed);
        let moved = taken.wrapping_sub(self.taken);
        self.taken = taken;
        if !self.progress.is_owing() {
            self.patience = Patience::new(self.timeouts.sending());
            return None;
        }
        self.patience.moved(moved);
        self.patience.waited(self.timeouts.tick());
        self.patience.is_over().then_some(Cut::Pace)
    }

    fn look_at_steps(&mut self) -> Option<Cut> {
        let steps = self.progress.steps.load(Ordering::Relaxed);
        if steps == self.seen {
            self.still += self.timeouts.tick();
        } else {
            self.seen = steps;
            self.still = Duration::ZERO;
        }
        let (limit, cut) = match self.progress.phase() {
            // A stream that has nothing to say is under way, too.
            Phase::Open if !self.progress.is_idle() => return None,
            // The first request is due at once.
            Phase::Open if !self.progress.any_begun() => (self.timeouts.read, Cut::Head),
            Phase::Open => (self.timeouts.idle, Cut::Idle),
            Phase::Head => (self.timeouts.read, Cut::Head),
            Phase::Answer => (self.timeouts.request, Cut::Answer),
        };
        (self.still >= limit).then_some(cut)
    }
}

#[cfg(test)]
mod tests;
