//! Connections to one server, kept for the next request.
//!
//! Nobody watches an idle connection: the next request finds out that it was closed, before anything
//! is sent on it, and its age is looked at whenever the pool is used.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Request, Uri};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::{
    connect::Connector,
    exchange::{Answer, Body, BoxError, Connection, Exchange, Lost},
};

/// The most connections that are kept. More may be in use.
const MAX_IDLE: usize = 128;
/// The time that a connection is kept without use.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);
/// The most of an answer that is read. A full page of the largest tasks fits.
const MAX_ANSWER_BYTES: usize = 512 << 20;

pub(crate) struct Pool {
    connector: Connector,
    server: Uri,
    /// The one used last stands last and is used next, so that those that are not needed grow old.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

impl Pool {
    pub fn new(connector: Connector, server: Uri) -> Self {
        Self {
            connector,
            server,
            idle: Mutex::default(),
        }
    }

    /// Sends a request and reads the whole answer. Dropped before that, it closes its connection.
    pub async fn exchange(&self, request: Request<Body>) -> Result<Answer, Lost> {
        let exchange = self.begin(request).await?;
        self.finish(exchange).await
    }

    /// Sends a request and waits for the answer's head.
    pub async fn begin(&self, request: Request<Body>) -> Result<Exchange, Lost> {
        let connection = match self.take() {
            Some(connection) => connection,
            None => self.connect().await.map_err(Lost::Unconnected)?,
        };
        Exchange::begin(connection, request).await
    }

    /// Reads the rest of an answer and keeps its connection.
    pub async fn finish(&self, exchange: Exchange) -> Result<Answer, Lost> {
        let (answer, connection) = exchange.whole(MAX_ANSWER_BYTES).await?;
        if let Some(connection) = connection {
            self.put(connection);
        }
        Ok(answer)
    }

    /// Sends a request on a connection of its own, which ends with the answer, and does not wait for
    /// the answer's end.
    pub async fn open(&self, request: Request<Body>) -> Result<Exchange, Lost> {
        let connection = self.connect().await.map_err(Lost::Unconnected)?;
        Exchange::begin(connection, request).await
    }

    async fn connect(&self) -> Result<Box<Connection>, BoxError> {
        let connecting = self.connector.clone().oneshot(self.server.clone());
        // On the heap: it is large, and most requests do without.
        let stream = Box::pin(connecting).await?;
        Connection::new(stream).await
    }

    /// Takes a connection that can still be used.
    fn take(&self) -> Option<Box<Connection>> {
        loop {
            let mut connection = self.last()?;
            if connection.is_still_idle() {
                return Some(connection);
            }
        }
    }

    fn last(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle();
        let last = idle.pop()?;
        if last.since.elapsed() <= MAX_IDLE_TIME {
            return Some(last.connection);
        }
        // The others are older still.
        idle.clear();
        None
    }

    fn put(&self, connection: Box<Connection>) {
        let since = Instant::now();
        let mut idle = self.idle();
        let old = idle.partition_point(|idle| since - idle.since > MAX_IDLE_TIME);
        idle.drain(..old);
        if idle.len() < MAX_IDLE {
            idle.push(Idle { connection, since });
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        sync::{Barrier, Semaphore},
        task::{JoinSet, coop},
        time::{sleep, timeout},
    };

    use super::*;
    use crate::connect::{self, Reach};

    /// The reaction of a server to a request.
    #[derive(Clone)]
    enum Act {
        Answer,
        /// And says that it will close the connection.
        Last,
        /// And closes the connection when it is told to.
        AnswerAndClose(Arc<Semaphore>),
        /// A large answer in many pieces.
        Large,
        HalfAnswer,
        Silence,
        Close,
        /// Answers when as many requests have come.
        Together(Arc<Barrier>),
    }

    #[derive(Default)]
    struct Seen {
        connections: AtomicUsize,
        requests: AtomicUsize,
        /// The number of requests that get no more of an answer.
        abandoned: AtomicUsize,
        closed: AtomicUsize,
    }

    /// Waits until as many have been counted.
    async fn reaches(counter: &AtomicUsize, count: usize) {
        while counter.load(Ordering::Relaxed) < count {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Has the server close its connections, and waits until that can be seen.
    async fn close(seen: &Seen, word: &Semaphore, count: usize) {
        word.add_permits(count);
        reaches(&seen.closed, count).await;
        // The runtime looks at its sockets before it sleeps.
        sleep(Duration::from_millis(1)).await;
    }

    /// A server that does these things in turn, and from then on the last.
    async fn server(acts: &[Act]) -> (Pool, Arc<Seen>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let (acts, counts) = (acts.to_vec(), Arc::clone(&seen));
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counts.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(serve(stream, acts.clone(), Arc::clone(&counts)));
            }
        });
        let connector = connect::connector(&connect::Options {
            reach: Reach::Anywhere,
            timeout: Duration::from_secs(60),
            secure: false,
            roots: None,
            certificate: None,
        });
        (
            Pool::new(connector.unwrap(), address.parse().unwrap()),
            seen,
        )
    }

    async fn serve(mut stream: TcpStream, acts: Vec<Act>, seen: Arc<Seen>) -> Option<()> {
        loop {
            let body = body(&mut stream).await?;
            let number = seen.requests.fetch_add(1, Ordering::Relaxed);
            let act = &acts[number.min(acts.len() - 1)];
            match act {
                Act::Answer | Act::AnswerAndClose(_) => answer(&mut stream, "", &body).await?,
                Act::Last => answer(&mut stream, "connection: close\r\n", &body).await?,
                Act::Large => {
                    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                    stream.write_all(head.as_bytes()).await.ok()?;
                    for _ in 0..64 {
                        let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
                        stream.write_all(chunk.as_bytes()).await.ok()?;
                    }
                    stream.write_all(b"0\r\n\r\n").await.ok()?;
                }
                Act::HalfAnswer => {
                    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
                    stream.write_all(half).await.ok()?;
                    return abandon(&seen).await;
                }
                Act::Silence => return abandon(&seen).await,
                Act::Together(all) => {
                    all.wait().await;
                    answer(&mut stream, "", &body).await?;
                }
                Act::Close => return None,
            }
            if let Act::AnswerAndClose(word) = act {
                word.acquire().await.ok()?.forget();
                drop(stream);
                seen.closed.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
    }

    async fn abandon(seen: &Seen) -> Option<()> {
        seen.abandoned.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }

    async fn body(stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&bytes[..end]);
            let length = head
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "));
            let length = length.map_or(0, |length| length.parse().unwrap());
            if bytes.len() == end + 4 + length {
                return Some(bytes.split_off(end + 4));
            }
        }
    }

    async fn answer(stream: &mut TcpStream, header: &str, body: &[u8]) -> Option<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{header}content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(body).await.ok()
    }

    async fn say(pool: &Pool, body: impl AsRef<[u8]>) -> Result<Vec<u8>, Lost> {
        let request = Request::post("/").body(Body::from(body.as_ref().to_vec()));
        let request = request.unwrap();
        let limit = Duration::from_secs(60);
        let answer = timeout(limit, pool.exchange(request)).await;
        answer.expect("no hanging").map(|answer| answer.body)
    }

    fn counted(pool: &Pool, seen: &Seen) -> (usize, usize, usize) {
        let requests = seen.requests.load(Ordering::Relaxed);
        let connections = seen.connections.load(Ordering::Relaxed);
        (requests, connections, pool.idle().len())
    }

    #[tokio::test]
    async fn a_connection_is_used_again() {
        let (pool, seen) = server(&[Act::Answer]).await;
        for word in ["one", "two", ""] {
            assert_eq!(say(&pool, word).await.unwrap(), word.as_bytes());
        }
        assert_eq!(counted(&pool, &seen), (3, 1, 1));
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closed_is_replaced() {
        let together = Act::Together(Arc::new(Barrier::new(2)));
        let word = Arc::new(Semaphore::new(0));
        let last = Act::AnswerAndClose(Arc::clone(&word));
        let acts = [together.clone(), together, last.clone(), last, Act::Answer];
        let (pool, seen) = server(&acts).await;
        for _ in 0..2 {
            let (one, other) = tokio::join!(say(&pool, "one"), say(&pool, "other"));
            assert_eq!(
                (&*one.unwrap(), &*other.unwrap()),
                (&b"one"[..], &b"other"[..])
            );
        }
        assert_eq!(counted(&pool, &seen), (4, 2, 2));
        close(&seen, &word, 2).await;
        assert_eq!(say(&pool, "three").await.unwrap(), b"three");
        assert_eq!(counted(&pool, &seen), (5, 3, 1));
    }

    #[tokio::test]
    async fn what_may_have_been_done_is_not_sent_again() {
        let (pool, seen) = server(&[Act::Answer, Act::Close, Act::Answer]).await;
        say(&pool, "one").await.unwrap();
        let lost = say(&pool, "two").await.unwrap_err();
        assert!(matches!(lost, Lost::Broken(_)), "{lost:?}");
        assert_eq!(counted(&pool, &seen), (2, 1, 0));
        assert_eq!(say(&pool, "three").await.unwrap(), b"three");
    }

    #[tokio::test]
    async fn a_dropped_request_takes_its_connection_with_it() {
        let acts = [
            Act::Answer,
            Act::Silence,
            Act::Answer,
            Act::HalfAnswer,
            Act::Answer,
        ];
        let (pool, seen) = server(&acts).await;
        say(&pool, "one").await.unwrap();
        for (abandoned, word) in [(1, "two"), (2, "three")] {
            tokio::select! {
                answer = say(&pool, "dropped") => panic!("{answer:?}"),
                () = reaches(&seen.abandoned, abandoned) => {}
            }
            assert_eq!(pool.idle().len(), 0);
            assert_eq!(say(&pool, word).await.unwrap(), word.as_bytes());
        }
        assert_eq!(counted(&pool, &seen), (5, 3, 1));
    }

    #[tokio::test]
    async fn a_connection_that_the_server_will_close_is_not_kept() {
        let (pool, seen) = server(&[Act::Last]).await;
        for word in ["one", "two"] {
            assert_eq!(say(&pool, word).await.unwrap(), word.as_bytes());
        }
        assert_eq!(counted(&pool, &seen), (2, 2, 0));
    }

    #[tokio::test]
    async fn the_pool_is_bounded() {
        let many = MAX_IDLE + 9;
        let (pool, seen) = server(&[Act::Together(Arc::new(Barrier::new(many)))]).await;
        let requests = (0..many).map(|n| say(&pool, n.to_string()));
        let answers = futures_util::future::join_all(requests).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(counted(&pool, &seen), (many, many, MAX_IDLE));
    }

    #[tokio::test]
    async fn an_old_connection_is_not_used() {
        let (pool, seen) = server(&[Act::Answer]).await;
        say(&pool, "one").await.unwrap();
        let old = MAX_IDLE_TIME + Duration::from_secs(1);
        for idle in pool.idle().iter_mut() {
            idle.since = idle.since.checked_sub(old).unwrap();
        }
        say(&pool, "two").await.unwrap();
        assert_eq!(counted(&pool, &seen), (2, 2, 1));
    }

    #[tokio::test]
    async fn large_bodies_pass_both_ways() {
        let (pool, seen) = server(&[Act::Answer, Act::Large, Act::Answer]).await;
        let large = vec![b'y'; 4 << 20];
        assert_eq!(say(&pool, &large).await.unwrap(), large);
        assert_eq!(say(&pool, &large).await.unwrap().len(), 64 << 16);
        assert_eq!(say(&pool, "small").await.unwrap(), b"small");
        assert_eq!(counted(&pool, &seen), (3, 1, 1));
    }

    #[tokio::test]
    async fn a_task_that_should_yield_sees_that_a_connection_was_closed() {
        let word = Arc::new(Semaphore::new(0));
        let last = Act::AnswerAndClose(Arc::clone(&word));
        let (pool, seen) = server(&[last, Act::Answer]).await;
        say(&pool, "one").await.unwrap();
        close(&seen, &word, 1).await;
        while coop::has_budget_remaining() {
            coop::consume_budget().await;
        }
        assert_eq!(say(&pool, "two").await.unwrap(), b"two");
        assert_eq!(counted(&pool, &seen), (2, 2, 1));
    }
}
