//! The driver against a small HTTP server of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::bench::load::http::Head;
use crate::bench::workload::{Create, Cycle};

/// Answers every request on every connection until the client goes away.
fn serve(answer: fn(&str) -> (u16, String)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || converse(&stream, answer));
        }
    });
    addr
}

fn converse(stream: &TcpStream, answer: fn(&str) -> (u16, String)) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        reader
            .read_line(&mut request)
            .ok()
            .filter(|&read| read > 0)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, text) = answer(&request);
        let mut stream = stream;
        // In two writes, so that answers arrive in pieces.
        write!(
            stream,
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n",
            text.len()
        )
        .ok()?;
        write!(stream, "\r\n{text}").ok()?;
    }
}

fn gate(request: &str) -> (u16, String) {
    if request.starts_with("POST /v1/tasks HTTP") {
        (
            201,
            r#"{"task_id":"t1","status":"queued","duplicate":false}"#.to_owned(),
        )
    } else if request.starts_with("POST /v1/leases/claim HTTP") {
        (
            200,
            r#"{"tasks":[{"task_id":"t1","lease_id":"l1","type":"echo"}]}"#.to_owned(),
        )
    } else if request.starts_with("POST /v1/tasks/t1/complete HTTP") {
        (200, r#"{"ok":true}"#.to_owned())
    } else {
        (404, "{}".to_owned())
    }
}

fn head() -> Head {
    Head::new("127.0.0.1", "key")
}

#[test]
fn a_counted_workload_sends_exactly_its_count() {
    let mut create = Create::echo(&head()).times(1000);
    let tally = drive(serve(gate), Plan::to_the_end(8), &mut create).unwrap();
    assert_eq!(tally.units, 1000);
    assert_eq!(tally.all().count(), 1000);
    assert!(tally.per_second() > 0.0);
}

#[test]
fn a_cycle_is_three_requests() {
    let mut cycle = Cycle::new(&head(), 4);
    let plan = Plan::closed(4, Duration::from_millis(20), Duration::from_secs(1));
    let tally = drive(serve(gate), plan, &mut cycle).unwrap();
    assert!(tally.units > 0);
    assert_eq!(tally.elapsed, Duration::from_secs(1));
    let counts: Vec<u64> = tally.latencies.iter().map(Histogram::count).collect();
    for count in counts {
        assert!(
            count.abs_diff(tally.units) <= 8,
            "{count} requests of a kind for {} cycles",
            tally.units
        );
    }
    assert_eq!(cycle.empty_claims(), 0);
}

#[test]
fn a_pace_is_kept() {
    let mut cycle = Cycle::new(&head(), 4);
    let plan = Plan {
        rate: Some(200.0),
        ..Plan::closed(4, Duration::ZERO, Duration::from_secs(2))
    };
    let tally = drive(serve(gate), plan, &mut cycle).unwrap();
    // Never ahead of the schedule, which is 400 units; a busy machine may fall behind it.
    assert!((80..=401).contains(&tally.units), "{} units", tally.units);
}

#[test]
fn a_delayed_start_counts_as_latency() {
    // One connection cannot serve this pace; the units wait, and their waiting is measured.
    let slow = |request: &str| {
        thread::sleep(Duration::from_millis(10));
        gate(request)
    };
    let mut create = Create::echo(&head());
    let plan = Plan {
        rate: Some(1000.0),
        ..Plan::closed(1, Duration::ZERO, Duration::from_millis(200))
    };
    let tally = drive(serve(slow), plan, &mut create).unwrap();
    assert!(
        tally.all().max() > Duration::from_millis(100),
        "{:?}",
        tally.all().max()
    );
}

#[test]
fn a_refusal_ends_the_run_and_is_shown() {
    let refuse = |_: &str| (503, r#"{"code":"UNAVAILABLE"}"#.to_owned());
    let plan = Plan::closed(2, Duration::ZERO, Duration::from_secs(5));
    let error = drive(serve(refuse), plan, &mut Create::echo(&head()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("503") && error.contains("UNAVAILABLE"),
        "{error}"
    );
}

#[test]
fn an_empty_claim_is_counted_and_tried_again() {
    static CLAIMS: AtomicUsize = AtomicUsize::new(0);
    let empty_at_first = |request: &str| {
        if request.contains("claim") && CLAIMS.fetch_add(1, Ordering::Relaxed) < 3 {
            (200, r#"{"tasks":[]}"#.to_owned())
        } else {
            gate(request)
        }
    };
    let mut cycle = Cycle::new(&head(), 1).times(1);
    let tally = drive(serve(empty_at_first), Plan::to_the_end(1), &mut cycle).unwrap();
    assert_eq!(tally.units, 1);
    assert_eq!(cycle.empty_claims(), 3);
}
