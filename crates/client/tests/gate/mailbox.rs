//! The mailbox through the client: every call, what is sent again, and live streams.

use std::time::Duration;

use asyncgate_client::{
    Client, Kind,
    api::{
        AckBatchInput, AckInput, AckResult, Code, Envelope, ExtendInput, ListDeadLettersInput,
        ListTopicsInput, MessageInput, MessageState, NackInput, PeekInput, PurgeInput, PurgeState,
        RecvInput, ReprocessInput, SendBatchInput, SendInput, SendResult, Text,
    },
};
use futures_util::{StreamExt, TryStreamExt};
use tokio::time::timeout;

use crate::{
    proxy::{BUSY_NOW, Fault, Proxy},
    server::{Gate, KEY, PATIENCE, client, quick},
};

pub fn message(topic: &str, content: &str) -> SendInput {
    SendInput {
        topic: topic.to_owned(),
        payload_text: Some(Text(content.to_owned())),
        ..Default::default()
    }
}

pub async fn send(client: &Client, topic: &str, content: &str) -> String {
    let sent = client.send_message(&message(topic, content)).await;
    sent.expect("sent").msg_id
}

fn wish(topic: &str) -> RecvInput {
    RecvInput {
        topic: topic.to_owned(),
        max_messages: Some(32),
        ..Default::default()
    }
}

pub async fn receive(client: &Client, topic: &str) -> Vec<Envelope> {
    let received = client.receive_messages(&wish(topic)).await;
    received.expect("an answer").messages
}

pub fn text(message: &Envelope) -> &str {
    std::str::from_utf8(&message.payload_b64.0).expect("text")
}

fn ack(message: &Envelope) -> AckInput {
    AckInput {
        msg_id: message.msg_id.clone(),
        lease: message.lease.clone(),
    }
}

fn nack(message: &Envelope) -> NackInput {
    NackInput {
        msg_id: message.msg_id.clone(),
        lease: message.lease.clone(),
        reason: Some("test".to_owned()),
        delay_ms: Some(0),
        ..Default::default()
    }
}

/// The numbers of a topic's messages: ready, with receivers, dead.
pub async fn holds(client: &Client, topic: &str) -> (u64, u64, u64) {
    let all = client.topics(ListTopicsInput::default());
    let all: Vec<_> = all.try_collect().await.expect("topics");
    let found = all.into_iter().find(|state| state.topic == topic);
    found.map_or((0, 0, 0), |state| {
        (state.depth, state.inflight, state.dlq_depth)
    })
}

/// Lets the next message of a topic die.
async fn kill(client: &Client, topic: &str) {
    for _ in 0..5 {
        let input = RecvInput {
            max_messages: Some(1),
            ..wish(topic)
        };
        let received = client.receive_messages(&input).await.expect("an answer");
        let given_back = client.nack_message(&nack(&received.messages[0])).await;
        assert!(given_back.expect("given back").ok);
    }
}

/// Calls every operation of the mailbox and looks at the answers.
pub async fn call_everything(client: &Client) {
    let first = send(client, "t", "one").await;
    let more = SendBatchInput {
        messages: vec![message("t", "two"), message("t", "three"), message("", "x")].into(),
    };
    let more = client.send_messages(&more).await.expect("sent").results;
    assert!(matches!(
        &more[..],
        [SendResult::Sent(_), SendResult::Sent(_), SendResult::Refused(why)] if why.code == Code::ESchema
    ));
    let peek = PeekInput {
        topic: "t".to_owned(),
        ..Default::default()
    };
    let seen = client.peek_messages(&peek).await.expect("a look").messages;
    assert_eq!((seen.len(), &seen[0].lease), (3, &None));

    let taken = receive(client, "t").await;
    let texts: Vec<&str> = taken.iter().map(text).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    assert_eq!((&taken[0].msg_id, taken[0].attempt), (&first, 1));
    let one = |msg_id: &str| MessageInput {
        msg_id: msg_id.to_owned(),
    };
    let shown = client.get_message(&one(&first)).await.expect("a look");
    assert_eq!(shown.state, MessageState::Leased);
    assert_eq!(shown.envelope.payload_text, Some(Text("one".to_owned())));
    let held = client.delete_message(&one(&first)).await.expect_err("held");
    assert_eq!(held.code(), Some(Code::ELeased));
    let moved = client.redrive_message(&one(&first)).await.expect("none");
    assert_eq!(moved.moved, 0);
    let other = send(client, "other", "x").await;
    assert!(client.delete_message(&one(&other)).await.expect("gone").ok);
    let gone = client.get_message(&one(&other)).await.expect_err("gone");
    assert_eq!(gone.code(), Some(Code::ENotFound));
    let extend = ExtendInput {
        msg_id: first,
        visibility_ms: Some(20_000),
        lease: taken[0].lease.clone(),
    };
    let kept = client.extend_message(&extend).await.expect("kept");
    assert!(Some(&kept.visible_at) > taken[0].visible_at.as_ref());
    assert!(client.ack_message(&ack(&taken[0])).await.expect("done").ok);
    let acks = AckBatchInput {
        acks: vec![ack(&taken[1]), AckInput::default()].into(),
    };
    let acked = client.ack_messages(&acks).await.expect("answers").results;
    assert!(matches!(
        &acked[..],
        [AckResult::Done(_), AckResult::Refused(_)]
    ));
    let given_back = client.nack_message(&nack(&taken[2])).await;
    assert!(given_back.expect("given back").ok);

    send(client, "dead", "four").await;
    kill(client, "dead").await;
    let all = ListDeadLettersInput::default();
    let dead = client.list_dead_letters(&all).await;
    let dead = dead.expect("a page").messages;
    assert_eq!((dead.len(), dead[0].reason.as_str()), (1, "test"));
    let again = ReprocessInput {
        topic: "dead".to_owned(),
        per_second: Some(1),
        ..Default::default()
    };
    let moved = client.reprocess_dead_letters(&again).await;
    assert_eq!(moved.expect("moved").moved, 1);
    let page = client.list_topics(&ListTopicsInput::default()).await;
    let names = page.expect("a page").topics.into_iter();
    assert!(names.map(|state| state.topic).eq(["dead", "t"]));
    let purge = PurgeInput {
        topic: "dead".to_owned(),
        state: PurgeState::All,
    };
    assert_eq!(client.purge_topic(&purge).await.expect("purged").purged, 1);
    let heads = client.mailbox_heads().await.expect("heads").heads;
    assert_eq!(heads.iter().map(|head| head.seq).sum::<u64>(), 5);
}

#[tokio::test]
async fn a_send_that_is_sent_again_makes_one_message() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = client(proxy.addr);
    for fault in [
        Fault::DropAfter,
        Fault::HalfAnswer,
        Fault::DropBefore,
        Fault::Answer(BUSY_NOW),
    ] {
        proxy.next("POST /v1/send", fault);
    }
    let sent = client.send_message(&message("t", "x")).await.expect("sent");
    assert!(sent.duplicate, "the first attempt had sent it");
    let requests = proxy.seen("POST /v1/send");
    assert_eq!(requests.len(), 5);
    assert!(requests.iter().all(|request| *request == requests[0]));
    assert_eq!(holds(&client, "t").await, (1, 0, 0));

    // A batch is as safe, also for those that have a key of their own.
    let mut named = message("t", "named");
    named.idem_key = "n".to_owned();
    proxy.next("/v1/send/batch", Fault::DropAfter);
    let batch = SendBatchInput {
        messages: vec![named, message("t", "unnamed")].into(),
    };
    let sent = client.send_messages(&batch).await.expect("sent").results;
    let duplicates = |sent: &SendResult| matches!(sent, SendResult::Sent(one) if one.duplicate);
    assert!(sent.iter().all(duplicates), "{sent:?}");
    assert_eq!(holds(&client, "t").await, (3, 0, 0));
}

#[tokio::test]
async fn without_a_key_of_its_own_the_server_decides() {
    let gate = Gate::start().await;
    let client = Client::builder(format!("http://{}", gate.addr))
        .key(KEY)
        .retry(quick())
        .generate_idempotency_keys(false)
        .build()
        .expect("a client");
    let error = client.send_message(&message("t", "x")).await;
    assert_eq!(error.expect_err("no key").code(), Some(Code::ESchema));
}

#[tokio::test]
async fn a_lost_receive_is_not_repeated_and_its_message_comes_back() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = client(proxy.addr);
    let id = send(&client, "t", "x").await;
    proxy.next("/v1/recv", Fault::DropAfter);
    let error = client.receive_messages(&wish("t")).await;
    let error = error.expect_err("a lost answer");
    assert_eq!(*error.kind(), Kind::Unreachable);
    assert_eq!(error.attempts(), 1);
    assert!(
        receive(&client, "t").await.is_empty(),
        "the lost one has it"
    );
    gate.advance(Duration::from_secs(10)).await;
    gate.advance(Duration::from_secs(10)).await;
    let again = receive(&client, "t").await;
    assert_eq!((&again[0].msg_id, again[0].attempt), (&id, 2));
}

#[tokio::test]
async fn what_names_its_lease_is_said_again() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = client(proxy.addr);
    for text in ["a", "b"] {
        send(&client, "t", text).await;
    }
    let taken = receive(&client, "t").await;
    proxy.next("/v1/ack", Fault::DropAfter);
    client.ack_message(&ack(&taken[0])).await.expect("done");
    proxy.next("/v1/nack", Fault::DropAfter);
    client.nack_message(&nack(&taken[1])).await.expect("back");

    let taken = receive(&client, "t").await;
    assert_eq!(taken.len(), 1);
    proxy.next("/v1/nack", Fault::DropAfter);
    let nameless = NackInput {
        lease: None,
        ..nack(&taken[0])
    };
    let error = client.nack_message(&nameless).await.expect_err("lost");
    assert_eq!(*error.kind(), Kind::Unreachable);
    let stale = client
        .ack_message(&ack(&receive(&client, "t").await[0]))
        .await;
    assert!(stale.is_ok(), "it was given back once, not twice");
    let stale = client.ack_message(&ack(&taken[0])).await;
    assert_eq!(stale.expect_err("stale").code(), Some(Code::EStaleLease));
}

#[tokio::test]
async fn topics_and_dead_letters_are_streams() {
    let gate = Gate::start().await;
    let client = gate.client();
    for n in 0..5 {
        send(&client, &format!("topic-{n}"), "x").await;
        send(&client, "d", &n.to_string()).await;
    }
    for _ in 0..5 {
        kill(&client, "d").await;
    }
    for limit in [1, 2, 50] {
        let limit = Some(limit);
        let all = client.topics(ListTopicsInput {
            limit,
            ..Default::default()
        });
        assert_eq!(all.count().await, 6);
        let dead = client.dead_letters(ListDeadLettersInput {
            topic: Some("d".to_owned()),
            limit,
            ..Default::default()
        });
        let dead: Vec<_> = dead.try_collect().await.expect("dead letters");
        let texts: Vec<&str> = dead.iter().map(|dead| text(&dead.envelope)).collect();
        assert_eq!(texts, ["0", "1", "2", "3", "4"]);
    }
}

#[tokio::test]
async fn a_slow_reprocess_is_waited_for() {
    let gate = Gate::start().await;
    let client = gate.client();
    for n in 0..4 {
        send(&client, "d", &n.to_string()).await;
        kill(&client, "d").await;
    }
    let slowly = ReprocessInput {
        topic: "d".to_owned(),
        limit: Some(4),
        per_second: Some(1),
        ..Default::default()
    };
    // The answer takes three seconds.
    let hasty = Client::builder(format!("http://{}", gate.addr))
        .key(KEY)
        .timeout(Duration::from_secs(2))
        .build()
        .expect("a client");
    let moved = hasty.reprocess_dead_letters(&slowly).await;
    assert_eq!(moved.expect("moved").moved, 4);
}

#[tokio::test]
async fn a_stream_gives_messages_as_they_come_over_a_restart() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = Client::builder(format!("http://{}", proxy.addr))
        .key(KEY)
        .retry(quick())
        .build()
        .expect("a client");
    let mut live = client.receive_stream(wish("t"));
    for n in 0..3 {
        let sent = send(&client, "t", &n.to_string()).await;
        let come = timeout(PATIENCE, live.next()).await.expect("in time");
        let come = come.expect("open").expect("a message");
        assert_eq!((&come.msg_id, text(&come)), (&sent, n.to_string().as_str()));
        client.ack_message(&ack(&come)).await.expect("done");
    }

    proxy.lead_to(None);
    let gate = gate.restart().await;
    let sent = send(&gate.client(), "t", "later").await;
    let waiting = tokio::spawn(async move { live.next().await });
    proxy.until_turned_away().await;
    proxy.lead_to(Some(gate.addr));
    let come = timeout(PATIENCE, waiting).await.expect("in time");
    let come = come.expect("no panic").expect("open").expect("a message");
    assert_eq!(come.msg_id, sent);
}

#[tokio::test]
async fn a_stream_that_is_refused_or_finds_nobody_ends() {
    let gate = Gate::start().await;
    let wrong = Client::new(format!("http://{}", gate.addr), "wrong").expect("a client");
    let mut live = wrong.receive_stream(wish("t"));
    let error = live.next().await.expect("an item").expect_err("refused");
    assert_eq!(error.code(), Some(Code::ECapAuth));
    assert!(live.next().await.is_none());

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = listener.local_addr().expect("an address");
    drop(listener);
    let mut live = client(free).receive_stream(wish("t"));
    let error = live.next().await.expect("an item").expect_err("nobody");
    assert_eq!((error.kind(), error.attempts()), (&Kind::Unreachable, 5));
}
