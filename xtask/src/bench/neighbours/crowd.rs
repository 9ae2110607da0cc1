//! Many connections that do not care how they are treated: whoever is closed comes again, and refusals are counted.
//!
//! The load generator of the other benchmarks stops at the first answer that it does not expect. Attackers expect
//! everything, send requests that no socket takes at once, and some never read.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

/// The pause before a connection that was closed is opened again. Without it, ports would run out.
const PAUSE: Duration = Duration::from_millis(100);
/// The most connections that are opened between two looks at the others.
const OPENED_AT_ONCE: usize = 64;
/// The longest sleep, so that the end is noticed.
const NAP: Duration = Duration::from_millis(20);

/// The address that attackers come from.
const ATTACKERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The connection is not there yet.
const EINPROGRESS: i32 = 115;

/// Makes the next request of a connection.
pub type Script = Box<dyn FnMut(usize) -> Arc<[u8]>>;

/// What a crowd does.
pub struct Crowd {
    pub connections: usize,
    /// False if answers are left in their sockets.
    pub reads: bool,
    /// The number of requests that it still makes.
    pub left: u64,
    pub script: Script,
}

impl Crowd {
    /// Makes a request, if any is left.
    fn request(&mut self, member: usize) -> Option<Arc<[u8]>> {
        self.left = self.left.checked_sub(1)?;
        Some((self.script)(member))
    }
}

/// What became of a crowd.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Answers by status.
    pub answers: BTreeMap<u16, u64>,
    /// Answers that a server must not give: 5xx other than 503 with `Retry-After`.
    pub bad: u64,
    pub opened: u64,
    pub seconds: f64,
}

impl Outcome {
    /// Successful answers per second.
    pub fn per_second(&self) -> f64 {
        let served: u64 = self.answers.range(200..300).map(|(_, count)| count).sum();
        served as f64 / self.seconds.max(1e-9)
    }

    pub fn json(&self) -> Value {
        let answers: BTreeMap<String, u64> = self
            .answers
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect();
        json!({ "answers": answers, "bad": self.bad, "opened": self.opened, "seconds": self.seconds })
    }

    pub fn parse(text: &str) -> Result<Self> {
        let told: Value = serde_json::from_str(text)?;
        let count = |name: &str| told[name].as_u64().with_context(|| format!("no {name}"));
        let answers = told["answers"].as_object().context("no answers")?;
        let answers = answers.iter().map(|(status, count)| {
            Ok((
                status.parse()?,
                count.as_u64().context("an odd number of answers")?,
            ))
        });
        Ok(Self {
            answers: answers.collect::<Result<_>>()?,
            bad: count("bad")?,
            opened: count("opened")?,
            seconds: told["seconds"].as_f64().context("no seconds")?,
        })
    }
}

/// Lets the crowd at the server until the time is over, `stop` is set, or every request is made and answered.
pub fn unleash(
    addr: SocketAddr,
    mut crowd: Crowd,
    length: Duration,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut members: Vec<Member> = (0..crowd.connections).map(|_| Member::default()).collect();
    let mut outcome = Outcome::default();
    let mut scratch = vec![0; 256 * 1024];
    let began = Instant::now();
    while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let absent = members.iter_mut().enumerate();
        let due = absent.filter(|(_, one)| one.stream.is_none() && one.returns <= Some(now));
        let mut opened = 0;
        for (index, member) in due.take(OPENED_AT_ONCE) {
            let Some(request) = crowd.request(index) else {
                break;
            };
            opened += 1;
            member.open(addr, index, &poll, request)?;
        }
        outcome.opened += opened as u64;
        if crowd.left == 0 && members.iter().all(|one| one.stream.is_none()) {
            break;
        }
        let nap = if opened == OPENED_AT_ONCE {
            Duration::ZERO
        } else {
            NAP
        };
        match poll.poll(&mut events, Some(nap)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(error).context("cannot wait for answers");
            }
            _ => {}
        }
        for event in &events {
            let index = event.token().0;
            let member = &mut members[index];
            let closed = event.is_error() || (!crowd.reads && event.is_read_closed());
            let alive = !closed
                && member.write()
                && (!crowd.reads
                    || member.read(&mut scratch, &mut outcome, || crowd.request(index)));
            if !alive {
                member.leave();
            }
        }
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    Ok(outcome)
}

/// One connection of a crowd.
#[derive(Debug, Default)]
struct Member {
    stream: Option<TcpStream>,
    /// The time at which it may be opened again; `None` is at once.
    returns: Option<Instant>,
    request: Arc<[u8]>,
    sent: usize,
    /// The head of an answer as far as it has come.
    head: Vec<u8>,
    /// The bytes of an answer's body that are still to come.
    body: usize,
}

/// Connects from another address than the quiet tenant's: what is shared by address must not be shared with it.
fn connect(addr: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SocketAddr::from((ATTACKERS, 0)).into())?;
    match socket.connect(&addr.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

impl Member {
    fn open(
        &mut self,
        addr: SocketAddr,
        index: usize,
        poll: &Poll,
        request: Arc<[u8]>,
    ) -> Result<()> {
        let mut stream = connect(addr).context("cannot connect")?;
        poll.registry().register(
            &mut stream,
            Token(index),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        *self = Self {
            stream: Some(stream),
            request,
            ..Self::default()
        };
        Ok(())
    }

    fn leave(&mut self) {
        *self = Self {
            returns: Some(Instant::now() + PAUSE),
            ..Self::default()
        };
    }

    /// Sends as much as the socket takes. Returns false if the connection is gone.
    fn write(&mut self) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        while self.sent < self.request.len() {
            match stream.write(&self.request[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                // A connection that is not there yet tells so when it is asked to send.
                Err(error) if error.kind() == ErrorKind::NotConnected => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads what has come, and sends the next request after each answer. Returns false if the connection is gone.
    fn read(
        &mut self,
        scratch: &mut [u8],
        outcome: &mut Outcome,
        mut next: impl FnMut() -> Option<Arc<[u8]>>,
    ) -> bool {
        loop {
            let Some(stream) = &mut self.stream else {
                return false;
            };
            let read = match stream.read(scratch) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let waits = [ErrorKind::WouldBlock, ErrorKind::NotConnected];
                    return waits.contains(&error.kind());
                }
            };
            let mut rest = &scratch[..read];
            while !rest.is_empty() {
                let Some(after) = self.take(rest, outcome) else {
                    return false;
                };
                rest = after;
                if self.head.is_empty() && self.body == 0 {
                    // An answer before the end of its request refuses the rest of it, and the server closes.
                    if self.sent < self.request.len() {
                        return false;
                    }
                    let Some(request) = next() else {
                        return false;
                    };
                    (self.request, self.sent) = (request, 0);
                    if !self.write() {
                        return false;
                    }
                }
            }
        }
    }

    /// Takes a part of an answer off the input. Returns what is left, or nothing if it is not understood.
    fn take<'a>(&mut self, input: &'a [u8], outcome: &mut Outcome) -> Option<&'a [u8]> {
        if self.body > 0 {
            let part = self.body.min(input.len());
            self.body -= part;
            return Some(&input[part..]);
        }
        let before = self.head.len();
        self.head.extend_from_slice(input);
        let from = before.saturating_sub(3);
        let Some(end) = self.head[from..]
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
        else {
            return Some(&[]);
        };
        let end = from + end + 4;
        let head = Answer::read(&self.head[..end])?;
        outcome.bad += u64::from(head.status >= 500 && (head.status != 503 || !head.retry_after));
        *outcome.answers.entry(head.status).or_default() += 1;
        self.body = head.length;
        self.head.clear();
        Some(&input[end - before..])
    }
}

/// The part of an answer's head that counts.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    length: usize,
    retry_after: bool,
}

impl Answer {
    fn read(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let mut lines = head.split("\r\n");
        let mut answer = Self {
            status: lines.next()?.get(9..12)?.parse().ok()?,
            length: 0,
            retry_after: false,
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                answer.length = value.trim().parse().ok()?;
            }
            answer.retry_after |= name.eq_ignore_ascii_case("retry-after");
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_is_taken_in_any_pieces() {
        let two = b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 5\r\n\r\nhello\
                    HTTP/1.1 500 Bad\r\ncontent-length: 0\r\n\r\n";
        for size in 1..two.len() {
            let (mut member, mut outcome) = (Member::default(), Outcome::default());
            for piece in two.chunks(size) {
                let mut rest = piece;
                while !rest.is_empty() {
                    rest = member.take(rest, &mut outcome).unwrap();
                }
            }
            assert_eq!(outcome.answers, BTreeMap::from([(500, 1), (503, 1)]));
            assert_eq!(outcome.bad, 1, "in pieces of {size}");
        }
    }

    #[test]
    fn whoever_is_closed_comes_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let server = thread::spawn(move || {
            for _ in 0..3 {
                drop(listener.accept().unwrap());
            }
            stopped.store(true, Ordering::Relaxed);
        });
        let crowd = Crowd {
            connections: 1,
            reads: true,
            left: u64::MAX,
            script: Box::new(|_| Arc::from(&b"P"[..])),
        };
        let outcome = unleash(addr, crowd, Duration::from_secs(60), &stop).unwrap();
        server.join().unwrap();
        assert!(outcome.opened >= 3, "{outcome:?}");
    }

    #[test]
    fn a_bounded_crowd_ends_with_its_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut asked = 0;
            let (mut stream, _) = listener.accept().unwrap();
            let mut input = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut input) {
                asked += read;
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .unwrap();
            }
            asked
        });
        let crowd = Crowd {
            connections: 1,
            reads: true,
            left: 5,
            script: Box::new(|_| Arc::from(&b"?"[..])),
        };
        let never = AtomicBool::new(false);
        let outcome = unleash(addr, crowd, Duration::from_secs(60), &never).unwrap();
        assert_eq!(outcome.answers, BTreeMap::from([(200, 5)]));
        assert_eq!(server.join().unwrap(), 5);
    }

    #[test]
    fn an_outcome_is_told_and_read() {
        let outcome = Outcome {
            answers: BTreeMap::from([(200, 30), (201, 10), (429, 7)]),
            bad: 2,
            opened: 5,
            seconds: 2.0,
        };
        let read = Outcome::parse(&outcome.json().to_string()).unwrap();
        assert_eq!(read, outcome);
        assert!((read.per_second() - 20.0).abs() < 1e-9);
    }
}
