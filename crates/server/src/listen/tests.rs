//! The listener against raw sockets: answers, bounds, timeouts and the drain.

use asyncgate_engine::fakes::TestEngine;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;

const LONG: Duration = Duration::from_secs(60);
const REQUEST: &[u8] = b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n";

const TIMEOUTS: Timeouts = Timeouts {
    read: LONG,
    request: LONG,
    write: LONG,
    idle: LONG,
    bytes_per_second: 1,
};

fn options(connections: usize) -> Options {
    Options {
        bounds: Bounds {
            all: connections,
            per_address: connections,
        },
        timeouts: TIMEOUTS,
        hsts: false,
        public_url: None,
    }
}

/// Lets a test see a slow request arrive, and decide when it is answered.
#[derive(Default)]
struct Gate {
    entered: Notify,
    open: Notify,
}

async fn start(options: Options, gate: Arc<Gate>) -> Listener {
    let slow = move || {
        let gate = gate.clone();
        async move {
            gate.entered.notify_one();
            gate.open.notified().await;
            "slow"
        }
    };
    let router = Router::new()
        .route("/quick", get(|| async { "quick" }))
        .route("/slow", get(slow));
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = TestEngine::default().engine;
    Listener::start(socket, router, engine, options, Metrics::default()).unwrap()
}

async fn connect(listener: &Listener, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(listener.address().unwrap())
        .await
        .unwrap();
    stream.write_all(request).await.unwrap();
    stream
}

/// Everything up to the end of the connection, which must come within the time.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end like any other.
    let _ = timeout(LONG, stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn read_answer(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4096];
    let read = timeout(LONG, stream.read(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let listener = start(options(4), Arc::default()).await;
    let mut stream = connect(&listener, b"").await;
    for _ in 0..3 {
        stream.write_all(REQUEST).await.unwrap();
        let answer = read_answer(&mut stream).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("quick"),
            "{answer}"
        );
    }
    assert!(listener.drain(LONG).await);
    assert_eq!(read_to_end(&mut stream).await, "");
}

#[tokio::test]
async fn a_drain_lets_requests_in_flight_finish_and_closes_the_rest() {
    let gate = Arc::new(Gate::default());
    let listener = start(options(4), gate.clone()).await;
    let address = listener.address().unwrap();
    let mut idle = connect(&listener, REQUEST).await;
    assert!(read_answer(&mut idle).await.ends_with("quick"));
    let mut busy = connect(&listener, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    gate.entered.notified().await;

    let draining = tokio::spawn(listener.drain(LONG));
    assert_eq!(read_to_end(&mut idle).await, "");
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the socket is closed"
    );
    gate.open.notify_one();
    let answer = read_to_end(&mut busy).await;
    assert!(
        answer.ends_with("slow") && answer.contains("connection: close"),
        "{answer}"
    );
    assert!(draining.await.unwrap());
}

#[tokio::test]
async fn a_drain_cuts_what_does_not_finish() {
    let gate = Arc::new(Gate::default());
    let listener = start(options(4), gate.clone()).await;
    let mut busy = connect(&listener, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    gate.entered.notified().await;
    assert!(!listener.drain(Duration::from_millis(50)).await);
    assert_eq!(read_to_end(&mut busy).await, "");
}

#[tokio::test]
async fn an_idle_connection_gives_way_and_a_busy_one_does_not() {
    let gate = Arc::new(Gate::default());
    let bounds = Bounds {
        all: 2,
        per_address: 9,
    };
    let listener = start(
        Options {
            bounds,
            ..options(2)
        },
        gate.clone(),
    )
    .await;
    let mut busy = connect(&listener, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    gate.entered.notified().await;
    // One after the other, whoever is idle makes room: silent, in the middle of a head, or after an answer.
    let mut silent = connect(&listener, b"").await;
    let mut half = connect(&listener, b"GET /qui").await;
    assert_eq!(read_to_end(&mut silent).await, "");
    let mut answered = connect(&listener, REQUEST).await;
    assert_eq!(read_to_end(&mut half).await, "");
    assert!(read_answer(&mut answered).await.ends_with("quick"));
    let mut waits = connect(&listener, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(read_to_end(&mut answered).await, "");
    gate.entered.notified().await;
    // All are busy: the next one waits for the first answer.
    let mut last = connect(&listener, REQUEST).await;
    gate.open.notify_one();
    assert!(read_answer(&mut last).await.ends_with("quick"));
    assert!(read_to_end(&mut busy).await.ends_with("slow"));
    gate.open.notify_one();
    assert!(read_answer(&mut waits).await.ends_with("slow"));
}

#[tokio::test]
async fn an_address_that_has_too_many_busy_connections_gets_no_more() {
    let gate = Arc::new(Gate::default());
    let bounds = Bounds {
        all: 9,
        per_address: 1,
    };
    let listener = start(
        Options {
            bounds,
            ..options(9)
        },
        gate.clone(),
    )
    .await;
    let mut busy = connect(&listener, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    gate.entered.notified().await;
    let mut refused = TcpStream::connect(listener.address().unwrap())
        .await
        .unwrap();
    assert_eq!(read_to_end(&mut refused).await, "");
    gate.open.notify_one();
    assert!(read_answer(&mut busy).await.ends_with("slow"));
}

#[tokio::test]
async fn silence_slow_headers_and_slow_answers_end_a_connection() {
    let short = Duration::from_millis(400);
    let with_read = Timeouts {
        read: short,
        ..TIMEOUTS
    };
    let cases: [(&[u8], Timeouts); 4] = [
        // The first byte is due as soon as the connection is open.
        (b"", with_read),
        (b"P", with_read),
        (b"GET /quick HTTP/1.1\r\nhos", with_read),
        (
            b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n",
            Timeouts {
                request: short,
                ..TIMEOUTS
            },
        ),
    ];
    for (request, timeouts) in cases {
        let listener = start(
            Options {
                timeouts,
                ..options(4)
            },
            Arc::default(),
        )
        .await;
        let began = Instant::now();
        let mut stream = connect(&listener, request).await;
        assert_eq!(read_to_end(&mut stream).await, "", "{timeouts:?}");
        assert!(
            began.elapsed() >= short && began.elapsed() < LONG,
            "{timeouts:?} {:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn what_is_not_http_is_refused_and_oversized_headers_too() {
    let listener = start(options(4), Arc::default()).await;
    for request in [
        b"\x16\x03\x01\x02\x00".to_vec(),
        [
            b"GET / HTTP/1.1\r\nx: ",
            vec![b'x'; 70_000].as_slice(),
            b"\r\n\r\n",
        ]
        .concat(),
    ] {
        let mut stream = TcpStream::connect(listener.address().unwrap())
            .await
            .unwrap();
        // The server may hang up before all was sent.
        let _ = stream.write_all(&request).await;
        let answer = read_to_end(&mut stream).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn either_protocol_is_recognised_however_its_first_bytes_come() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let post = b"POST /quick HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let listener = start(options(4), Arc::default()).await;
    for piece in [1, 2, 3, 100] {
        let mut stream = connect(&listener, b"").await;
        stream.set_nodelay(true).unwrap();
        for bytes in PREFACE.chunks(piece) {
            stream.write_all(bytes).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut frame = [0; 9];
        timeout(LONG, stream.read_exact(&mut frame))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(frame[3], 4, "the server's settings");

        let mut stream = connect(&listener, b"").await;
        stream.set_nodelay(true).unwrap();
        for bytes in post.chunks(piece) {
            stream.write_all(bytes).await.unwrap();
            tokio::task::yield_now().await;
        }
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    }
}
