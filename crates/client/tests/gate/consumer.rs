//! A consumer's life: every message handled, kept meanwhile, and given back when something dies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use asyncgate_client::{
    Cause, Client, Consumer, ConsumerBuilder, Delivery, Error, Failure, Summary,
    api::{Code, ListDeadLettersInput},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    mailbox::{holds, receive, send, text},
    proxy::{Fault, Proxy},
    server::{Gate, PATIENCE, client, quick},
};

struct Hired {
    stop: oneshot::Sender<()>,
    run: JoinHandle<Result<Summary, Error>>,
}

impl Hired {
    async fn stop(self) -> Summary {
        self.stop.send(()).expect("it runs");
        self.run.await.expect("no panic").expect("a summary")
    }
}

fn hire(builder: ConsumerBuilder) -> Hired {
    let builder = builder
        .pause(quick())
        .cancel_grace(Duration::from_millis(500));
    let consumer = builder.build().expect("a consumer");
    let (stop, stopped) = oneshot::channel::<()>();
    let run = tokio::spawn(consumer.run(async { drop(stopped.await) }));
    Hired { stop, run }
}

/// Waits until a topic holds this much.
async fn until(client: &Client, topic: &str, expected: (u64, u64, u64)) {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = holds(client, topic).await;
        if found == expected {
            return;
        }
        assert!(Instant::now() < end, "{topic} holds {found:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn every_message_is_handled_and_no_more_at_once_than_allowed() {
    let gate = Gate::start().await;
    let client = gate.client();
    for n in 0..40 {
        send(&client, "t", &n.to_string()).await;
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let sum = Arc::new(AtomicUsize::new(0));
    let shared = (running, Arc::clone(&most), Arc::clone(&sum));
    let hired = hire(
        Consumer::builder(&client, "t", move |delivery: Delivery| {
            let (running, most, sum) = shared.clone();
            async move {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                sleep(Duration::from_millis(5)).await;
                sum.fetch_add(delivery.parse::<usize>()?, Ordering::SeqCst);
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .concurrency(3),
    );
    until(&client, "t", (0, 0, 0)).await;
    assert_eq!(hired.stop().await.completed, 40);
    assert_eq!(sum.load(Ordering::SeqCst), (0..40).sum::<usize>());
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_failure_and_a_panic_give_the_message_back_with_the_reason() {
    let gate = Gate::start().await;
    let client = gate.client();
    let hired = hire(
        Consumer::builder(&client, "t", |delivery: Delivery| {
            // Before there is a future, and in it.
            assert_ne!(text(delivery.message()), "early", "too early");
            async move {
                match text(delivery.message()) {
                    "fail" => Err(Failure::retryable("the disk is full").of_kind("disk")),
                    "slow" => std::future::pending().await,
                    "json" => delivery.parse::<u32>().map(drop),
                    _ => panic!("never seen this"),
                }
            }
        })
        .concurrency(5)
        .wait(Duration::ZERO)
        .visibility(Duration::from_secs(3_600))
        .handler_timeout(Duration::from_millis(200)),
    );
    let contents = ["fail", "slow", "json", "panic", "early"];
    for content in contents {
        send(&client, "t", content).await;
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let found = holds(&client, "t").await;
        if found == (0, 0, 5) {
            break;
        }
        assert!(Instant::now() < end, "the topic holds {found:?}");
        // The pause before a message comes again is the server's time. It passes while nobody has one, so
        // that no visibility ends.
        if found.1 == 0 {
            gate.advance(Duration::from_secs(7)).await;
        }
        sleep(Duration::from_millis(20)).await;
    }
    let all = ListDeadLettersInput::default();
    let dead = client.list_dead_letters(&all).await;
    let mut dead = dead.expect("dead letters").messages;
    dead.sort_by_key(|dead| {
        contents
            .iter()
            .position(|known| *known == text(&dead.envelope))
    });
    let reasons: Vec<&str> = dead.iter().map(|dead| dead.reason.as_str()).collect();
    assert_eq!(reasons, ["disk", "timeout", "payload", "panic", "panic"]);
    let errors: Vec<&str> = dead
        .iter()
        .filter_map(|dead| dead.last_error.as_deref())
        .collect();
    assert_eq!(errors[0], "the disk is full");
    assert!(errors[3].ends_with("never seen this"), "{errors:?}");
    assert_eq!(hired.stop().await.failed, 25);
}

#[tokio::test]
async fn a_consumer_that_dies_in_the_middle_of_a_batch_loses_nothing() {
    let gate = Gate::start().await;
    let client = gate.client();
    for n in 0..6 {
        send(&client, "t", &n.to_string()).await;
    }
    let (done, mut told) = mpsc::unbounded_channel();
    let dying = Consumer::builder(&client, "t", move |delivery: Delivery| {
        let done = done.clone();
        async move {
            if delivery.parse::<u32>()? >= 2 {
                return std::future::pending().await;
            }
            done.send(()).expect("somebody listens");
            Ok(())
        }
    })
    .concurrency(6)
    .visibility(Duration::from_secs(30));
    let dying = hire(dying);
    for _ in 0..2 {
        told.recv().await.expect("handled");
    }
    until(&client, "t", (0, 4, 0)).await;
    dying.run.abort();
    drop(dying.run.await);
    assert!(receive(&client, "t").await.is_empty(), "not yet");

    gate.advance(Duration::from_secs(31)).await;
    gate.advance(Duration::from_secs(60)).await;
    let mut back: Vec<String> = receive(&client, "t")
        .await
        .iter()
        .map(|message| format!("{} again {}", text(message), message.attempt))
        .collect();
    back.sort();
    assert_eq!(back, ["2 again 2", "3 again 2", "4 again 2", "5 again 2"]);
}

#[tokio::test]
async fn a_restart_of_the_server_is_outlived() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let held = Arc::new(Semaphore::new(0));
    let (began, mut begun) = mpsc::unbounded_channel();
    let handler = {
        let held = Arc::clone(&held);
        move |delivery: Delivery| {
            let (held, began) = (Arc::clone(&held), began.clone());
            async move {
                began.send(delivery.message().attempt).expect("a listener");
                drop(held.acquire().await);
                Ok(())
            }
        }
    };
    let hired = hire(
        Consumer::builder(&client(proxy.addr), "t", handler)
            .concurrency(2)
            .visibility(Duration::from_secs(30)),
    );
    send(&gate.client(), "t", "one").await;
    assert_eq!(begun.recv().await, Some(1));

    proxy.lead_to(None);
    let gate = gate.restart().await;
    held.add_permits(10);
    send(&gate.client(), "t", "two").await;
    proxy.until_turned_away().await;
    proxy.lead_to(Some(gate.addr));
    until(&gate.client(), "t", (0, 0, 0)).await;
    let summary = hired.stop().await;
    assert_eq!((summary.completed, summary.lost), (2, 0));
}

#[tokio::test]
async fn a_message_is_extended_while_it_is_handled() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = client(proxy.addr);
    send(&client, "t", "x").await;
    proxy.next("/v1/extend", Fault::DropBefore);
    proxy.next("/v1/ack", Fault::DropAfter);
    let watched = proxy.clone();
    let hired = hire(
        Consumer::builder(&client, "t", move |_| {
            let proxy = watched.clone();
            async move {
                while proxy.seen("/v1/extend").len() < 3 {
                    sleep(Duration::from_millis(20)).await;
                }
                Ok(())
            }
        })
        .visibility(Duration::from_secs(3)),
    );
    until(&gate.client(), "t", (0, 0, 0)).await;
    assert_eq!(hired.stop().await.completed, 1);
}

#[tokio::test]
async fn a_handler_hears_that_its_message_is_somebody_elses() {
    let gate = Gate::start().await;
    let client = gate.client();
    send(&client, "t", "x").await;
    let (told, mut causes) = mpsc::unbounded_channel();
    let hired = hire(
        Consumer::builder(&client, "t", move |delivery: Delivery| {
            let told = told.clone();
            async move {
                let cause = delivery.cancelled().await;
                told.send(cause).expect("a listener");
                Ok(())
            }
        })
        .visibility(Duration::from_secs(3)),
    );
    until(&client, "t", (0, 1, 0)).await;
    gate.advance(Duration::from_secs(4)).await;
    assert_eq!(causes.recv().await, Some(Cause::LeaseLost));
    assert_eq!(hired.stop().await.lost, 1);
    gate.advance(Duration::from_secs(60)).await;
    assert!(receive(&client, "t").await[0].attempt >= 2);
}

#[tokio::test]
async fn a_shutdown_lets_handlers_finish_and_gives_back_the_rest() {
    let gate = Gate::start().await;
    let client = gate.client();
    send(&client, "t", "quick").await;
    send(&client, "t", "endless").await;
    let held = Arc::new(Semaphore::new(0));
    let go = Arc::clone(&held);
    let hired = hire(
        Consumer::builder(&client, "t", move |delivery: Delivery| {
            let held = Arc::clone(&held);
            async move {
                if text(delivery.message()) == "endless" {
                    return std::future::pending().await;
                }
                drop(held.acquire().await);
                Ok(())
            }
        })
        .concurrency(2)
        .grace(Duration::from_secs(3)),
    );
    until(&client, "t", (0, 2, 0)).await;
    // Both handlers run when the shutdown begins; one of them ends after that.
    let stopping = async { tokio::join!(hired.stop(), async { go.add_permits(1) }).0 };
    let summary = timeout(PATIENCE, stopping).await.expect("in time");
    assert_eq!((summary.completed, summary.released), (1, 1));
    let back = receive(&client, "t").await;
    assert_eq!((back.len(), text(&back[0])), (1, "endless"));
}

#[tokio::test]
async fn a_server_that_refuses_ends_the_consumer() {
    let gate = Gate::start().await;
    let wrong = Client::new(format!("http://{}", gate.addr), "wrong").expect("a client");
    let handler = |_: Delivery| async { Ok(()) };
    let run = |client, topic| {
        Consumer::builder(client, topic, handler)
            .build()
            .expect("one")
    };
    let refused = run(&wrong, "t").run(std::future::pending()).await;
    assert_eq!(refused.expect_err("no key").code(), Some(Code::ECapAuth));
    let refused = run(&gate.client(), "").run(std::future::pending()).await;
    assert_eq!(refused.expect_err("no topic").code(), Some(Code::ESchema));
    let nobody = Consumer::builder(&gate.client(), "t", handler).concurrency(0);
    assert!(nobody.build().is_err());
}
