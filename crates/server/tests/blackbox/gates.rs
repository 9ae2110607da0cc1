//! The acceptance gates of the mailbox, one test for each. What they need beyond one server stands
//! elsewhere: kills under load in the crash suite, every order of events in the simulator, races in the
//! tests of the stores, and times in the benchmarks.

use std::{collections::BTreeSet, thread, time::Instant};

use serde_json::{Value, json};

use crate::{
    harness::{Launch, Server, eventually, run},
    http::Request,
    mail::{MARKED, damage, id},
    profile::{files_in, open_files, start},
};

const HELLO: &str = "aGVsbG8=";
/// The deepest disorder that is allowed.
const DEEPEST: f64 = 32.0;

/// Whatever a receiver was doing when the server died, its message comes again or is a dead letter.
#[test]
fn g1_a_crash_in_the_middle_loses_nothing() {
    let launch = Launch::new().set("mailbox.max_attempts=2");
    let server = launch.start();
    let keys = ["acked", "waiting", "held", "given back", "nearly dead"];
    let ids = keys.map(|key| server.send_message(key, key, HELLO).0);
    server.ack(&server.receive_one("acked", 60_000));
    server.receive_one("held", 250);
    let back = server.receive_one("given back", 60_000);
    let later = json!({"delay_ms": 100});
    server.settle("nack", &back, &later).expect(200);
    let dying = server.receive_one("nearly dead", 60_000);
    let at_once = json!({"delay_ms": 0});
    server.settle("nack", &dying, &at_once).expect(200);
    server.receive_one("nearly dead", 250);
    server.kill();

    let server = launch.start();
    for (key, id_then) in keys.iter().zip(&ids).skip(1).take(3) {
        let again = server.receive_one(key, 60_000);
        assert_eq!(id(&again), *id_then, "{key}");
    }
    let dead = eventually("it died", || {
        server.dead_letters("nearly%20dead").first().cloned()
    });
    assert_eq!(id(&dead), ids[4]);
    assert!(server.receive("acked", 60_000).is_empty());
}

#[test]
fn g2_many_sends_of_one_name_are_one_message() {
    const SENDERS: usize = 8;
    const TIMES: usize = 25;
    let server = Server::start();
    let answers: Vec<(String, bool)> = thread::scope(|scope| {
        let send = || -> Vec<_> {
            let times = (0..TIMES).map(|_| server.send_message("t", "k", HELLO));
            times.collect()
        };
        let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(send)).collect();
        let answers = senders.into_iter().flat_map(|one| one.join().unwrap());
        answers.collect()
    });
    let ids: BTreeSet<&String> = answers.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let new = answers.iter().filter(|(_, duplicate)| !duplicate);
    assert_eq!(new.count(), 1);
    assert_eq!(server.receive("t", 60_000).len(), 1);
    // Other content under the name is refused, and so is the same if its sender wants that.
    let other = json!({"topic": "t", "idem_key": "k", "payload_b64": ""});
    server
        .post("/v1/send", &other)
        .refused(422, "E_IDEM_CONFLICT");
    let same = json!({"topic": "t", "idem_key": "k", "payload_b64": HELLO}).to_string();
    let strict = Request::post("/v1/send", same).header("X-Idempotency-Mode", "409-conflict");
    let told = server.send(strict).refused(409, "E_DUPLICATE");
    assert_eq!(told["msg_id"], **ids.first().unwrap());
}

#[test]
fn g3_what_is_not_acknowledged_comes_again_and_what_is_never_does() {
    const MESSAGES: usize = 20;
    let server = Server::start();
    for n in 0..MESSAGES {
        server.send_message("t", &n.to_string(), HELLO);
    }
    let first = server.receive("t", 2_000);
    assert_eq!(first.len(), MESSAGES);
    let (first_half, mut left) = (&first[..MESSAGES / 2], first[MESSAGES / 2..].to_vec());
    let mut done = BTreeSet::new();
    // At the edge of its time a message is either acknowledged or comes again, never both.
    for message in first_half {
        let answer = server.settle("ack", message, &json!({}));
        if answer.status == 200 {
            done.insert(id(message));
        } else {
            answer.refused(409, "E_STALE_LEASE");
            left.push(message.clone());
        }
    }
    assert!(!done.is_empty(), "none was acknowledged in time");
    let mut missing: BTreeSet<String> = left.iter().map(id).collect();
    eventually("all others come again", || {
        for message in server.receive("t", 60_000) {
            assert!(!done.contains(&id(&message)), "{message} was acknowledged");
            assert_eq!(message["attempt"], 2);
            missing.remove(&id(&message));
        }
        missing.is_empty().then_some(())
    });
    // Who had it before has no say any more; who has it now does.
    for old in &left {
        server
            .settle("ack", old, &json!({}))
            .refused(409, "E_STALE_LEASE");
    }
}

#[test]
fn g4_what_is_too_much_is_refused_with_its_reason() {
    const MIB: usize = 1 << 20;
    let launch = Launch::new()
        .set("mailbox.topic_capacity=2")
        .set("mailbox.global_inflight=2");
    let server = launch.start();
    let message =
        |key: &str, payload: &str| json!({"topic": "t", "idem_key": key, "payload_b64": payload});
    // Base64 of n bytes that are zero.
    let zeros = |bytes: usize| {
        let padding = (3 - bytes % 3) % 3;
        "A".repeat((bytes + padding) / 3 * 4 - padding) + &"=".repeat(padding)
    };
    let large = message("large", &zeros(MIB + 1));
    server
        .post("/v1/send", &large)
        .refused(413, "E_FRAME_TOO_LARGE");
    server
        .post("/v1/send", &message("full", &zeros(MIB)))
        .expect(200);
    server.send_message("t", "b", HELLO);
    let full = |answer: crate::http::Response| {
        answer.refused(429, "E_SATURATED");
        let seconds = answer.header("Retry-After").expect("Retry-After");
        assert!((1..=60).contains(&seconds.parse().unwrap()), "{answer:?}");
    };
    full(server.post("/v1/send", &message("c", HELLO)));
    let mut held = vec![
        server.receive_one("t", 60_000),
        server.receive_one("t", 60_000),
    ];
    server.send_message("t", "c", HELLO);
    full(server.post("/v1/recv", &json!({"topic": "t"})));
    server.ack(&held.remove(0));
    server.receive_one("t", 60_000);

    let mut odd = message("d", HELLO);
    odd["colour"] = json!("red");
    server.post("/v1/send", &odd).refused(400, "E_SCHEMA");
    for (reason, count) in [("oversize", 1.0), ("saturated", 2.0), ("schema", 1.0)] {
        let sample = format!("rejected_total{{reason=\"{reason}\"}}");
        assert_eq!(server.metric(&sample), Some(count), "{reason}");
    }
}

#[test]
fn g5_everything_that_an_operator_watches_is_there() {
    let server = Launch::new().set("mailbox.ready_shards=1").start();
    for key in ["a", "b", "c"] {
        server.send_message("t", key, HELLO);
    }
    server.ack(&server.receive_one("t", 60_000));
    server.receive_one("t", 60_000);
    server.send_message("bad", "a", HELLO);
    server.poison("bad", 5);
    server.post("/v1/send", &json!({})).refused(400, "E_SCHEMA");
    for (sample, value) in [
        ("enqueue_latency_seconds_count", 4.0),
        ("dequeue_latency_seconds_count", 7.0),
        ("ack_commit_latency_seconds_count", 1.0),
        ("queue_depth{queue=\"work\",shard=\"0\"}", 1.0),
        ("inflight{shard=\"0\"}", 1.0),
        (
            "saturation{queue=\"work\",topic_class=\"other\"}",
            1.0 / 1_000_000.0,
        ),
        ("mailbox_depth{topic_class=\"other\"}", 1.0),
        ("mailbox_inflight{topic_class=\"other\"}", 1.0),
        ("rejected_total{reason=\"schema\"}", 1.0),
        (
            "mailbox_dlq_total{topic_class=\"other\",reason=\"nack\"}",
            1.0,
        ),
        ("mailbox_dlq_depth{shard=\"0\"}", 1.0),
        ("mailbox_delivered_total{topic_class=\"other\"}", 1.0),
        ("reorder_depth_max{shard=\"0\"}", 0.0),
    ] {
        assert_eq!(server.metric(sample), Some(value), "{sample}");
    }
    for target in ["/healthz", "/readyz"] {
        let answer = server.send_bare(&Request::get(target));
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
    }
}

#[test]
fn g6_amnesia_leaves_nothing_and_without_it_dead_letters_last() {
    let launch = Launch::new();
    let server = start(&launch, &["--amnesia"]);
    for n in 0..200 {
        server.send_message("t", &n.to_string(), HELLO);
        server.ack(&server.receive_one("t", 60_000));
    }
    server.send_message("bad", "a", HELLO);
    server.poison("bad", 5);
    assert_eq!(server.dead_letters("bad").len(), 1);
    assert_eq!(open_files(&server), Vec::<String>::new());
    server.stop();
    assert_eq!(files_in(launch.dir()), 0);
    let server = start(&launch, &["--amnesia"]);
    assert!(server.dead_letters("bad").is_empty());
    server.stop();

    let server = Server::start();
    server.send_message("bad", "a", MARKED);
    server.poison("bad", 5);
    let dead = server.dead_letters("bad");
    assert_eq!(dead[0]["payload_b64"], MARKED);
    let server = server.restart();
    assert_eq!(server.dead_letters("bad"), dead);
    let launch = server.kill();
    assert_eq!(launch.start().dead_letters("bad"), dead);
}

#[test]
fn g7_a_flipped_bit_is_found_and_everything_else_is_proved() {
    let launch = Launch::new();
    let verify = || {
        let mut command = launch.bare_command();
        command.arg("verify").arg("--data-dir").arg(launch.data());
        run(command)
    };
    let server = launch.start();
    let (damaged, _) = server.send_message("t", "a", MARKED);
    let (intact, _) = server.send_message("t", "b", HELLO);
    server.stop();
    let proved = verify();
    assert!(proved.status.success(), "{proved:?}");

    damage(&launch);
    let found = verify();
    assert!(!found.status.success(), "{found:?}");
    let server = launch.start();
    // Who asks gets what is intact; who would get nothing else is told why.
    let received = server.receive("t", 60_000);
    let ids: Vec<String> = received.iter().map(id).collect();
    assert_eq!(ids, [intact]);
    let answer = eventually("it is told of", || {
        let answer = server.post("/v1/recv", &json!({"topic": "t", "wait_seconds": 1}));
        (answer.status != 200).then_some(answer)
    });
    let told = answer.refused(422, "E_INTEGRITY");
    assert_eq!(told["msg_ids"], json!([damaged]));
}

/// Within the window a name is known, also over a restart; not before its end is it free again.
#[test]
fn g8_a_name_is_known_for_the_whole_window_and_not_longer() {
    // Much longer than a restart takes on a busy machine.
    const WINDOW_MS: u128 = 10_000;
    let launch = Launch::new()
        .set("mailbox.default_visibility=250ms")
        .set(&format!("mailbox.t_replay={WINDOW_MS}ms"));
    let server = launch.start();
    let sending = Instant::now();
    let (first, _) = server.send_message("t", "k", HELLO);
    server.ack(&server.receive_one("t", 60_000));
    let server = server.restart();
    let (mut known, mut free) = (0, false);
    eventually("the window is over", || {
        let (again, duplicate) = server.send_message("t", "k", HELLO);
        assert_eq!(duplicate, again == first);
        known += u32::from(duplicate);
        free |= !duplicate;
        free.then_some(())
    });
    assert!(sending.elapsed().as_millis() >= WINDOW_MS, "it ended early");
    assert!(known > 0, "it was never known after the restart");
    assert_eq!(
        server.receive("t", 60_000).len(),
        1,
        "the acknowledged one stays away"
    );
}

/// How many messages came first although they were sent later than one that came after them.
fn disorder(order: &[usize]) -> usize {
    let later =
        |(n, seq): (usize, &usize)| order[..n].iter().filter(|before| *before > seq).count();
    order.iter().enumerate().map(later).max().unwrap_or(0)
}

#[test]
fn g9_messages_keep_their_order_and_a_failure_disturbs_it_little() {
    const MESSAGES: usize = 120;
    const BATCH: usize = 8;
    let launch = Launch::new().set("mailbox.ready_shards=1");
    let server = launch.start();
    let ids: Vec<String> = (0..MESSAGES)
        .map(|n| server.send_message("t", &n.to_string(), HELLO).0)
        .collect();
    let place = |message: &Value| ids.iter().position(|known| *known == id(message)).unwrap();
    let take = |server: &Server, visibility_ms: u32| {
        let wish = json!({"topic": "t", "visibility_ms": visibility_ms, "max_messages": BATCH});
        let answer = server.post("/v1/recv", &wish).expect(200);
        answer["messages"].as_array().unwrap().clone()
    };
    let deepest = |server: &Server| server.metric("reorder_depth_max{shard=\"0\"}").unwrap();
    let mut order = Vec::new();
    // Under normal load: strictly first in, first out.
    for _ in 0..4 {
        let batch = take(&server, 60_000);
        batch.iter().for_each(|message| server.ack(message));
        order.extend(batch.iter().map(place));
    }
    assert!(order.iter().copied().eq(0..4 * BATCH), "{order:?}");
    assert_eq!(deepest(&server), 0.0);

    // One receiver dies with its batch, the other goes on, and then the server dies, too.
    take(&server, 250);
    let batch = take(&server, 60_000);
    batch.iter().for_each(|message| server.ack(message));
    order.extend(batch.iter().map(place));
    assert!(deepest(&server) <= DEEPEST);
    take(&server, 250);
    server.kill();
    let server = launch.start();
    let oldest = (0..MESSAGES).filter(|place| !order.contains(place));
    let oldest: Vec<usize> = oldest.take(3 * BATCH).collect();
    // Both dead receivers held messages: each batch returns when its own time is over.
    eventually("what was held can be had again", || {
        let wish = json!({"topic": "t", "max_messages": oldest.len()});
        let seen = server.post("/v1/peek", &wish).expect(200);
        let seen = seen["messages"].as_array().unwrap().iter().map(place);
        seen.eq(oldest.iter().copied()).then_some(())
    });
    while order.len() < MESSAGES {
        let batch = take(&server, 60_000);
        assert!(!batch.is_empty(), "{} are lost", MESSAGES - order.len());
        batch.iter().for_each(|message| server.ack(message));
        order.extend(batch.iter().map(place));
    }
    let all: BTreeSet<usize> = order.iter().copied().collect();
    assert_eq!(all.len(), MESSAGES, "each is acknowledged once");
    assert!(disorder(&order) as f64 <= DEEPEST, "{order:?}");
    assert!(deepest(&server) <= DEEPEST);
}
