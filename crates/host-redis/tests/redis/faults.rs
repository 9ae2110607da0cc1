//! Faults: Redis is gone, stuck, full or forgetful, or the server is not Redis at all.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use asyncgate_admission::Load;
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, NonceCheck, NonceResult},
};
use asyncgate_host_redis::RedisHost;
use asyncgate_store::{Error, admission::Host, conformance::nonce};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use asyncgate_store::conformance::{PATIENCE, eventually};

use crate::servers::{Server, address, available, connected};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);

fn one(nonce: NonceCheck) -> Asks {
    Asks {
        nonces: vec![nonce],
        ..Asks::default()
    }
}

pub async fn is_new(host: &RedisHost, text: &str) -> Result<bool, Error> {
    let verdicts = host.admit(TENANT, NOW, one(nonce(text, 600))).await?;
    Ok(verdicts.passed())
}

/// Starts many callers.
pub fn load(host: RedisHost) -> Load {
    Load::start(Arc::new(host), 32)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_under_load() {
    if !available() {
        return;
    }
    let mut server = Server::start(&[]).await;
    let load = load(connected(RedisHost::new(server.address()).unwrap()).await);
    for _ in 0..2 {
        load.until(true).await;
        server.kill();
        load.until(false).await;
        server.restart().await;
    }
    load.until(true).await;
    load.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_and_resumed_under_load() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let load = load(connected(RedisHost::new(server.address()).unwrap()).await);
    for _ in 0..2 {
        load.until(true).await;
        server.program().pause();
        load.until(false).await;
        server.program().resume();
    }
    load.until(true).await;
    load.end();
}

#[tokio::test]
async fn while_a_silent_server_is_dialled_again_calls_fail_at_once() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let host = RedisHost::new(address(&format!("redis://127.0.0.1:{port}"))).unwrap();
    let (_first, _) = silent.accept().await.unwrap();
    let (mut second, _) = silent.accept().await.unwrap();
    let hung_up = async {
        let mut bytes = [0; 4096];
        while let Ok(1..) = second.read(&mut bytes).await {}
    };
    tokio::select! {
        biased;
        () = hung_up => panic!("it waited for the server"),
        answer = is_new(&host, "n") => assert!(answer.is_err()),
    }
}

#[tokio::test]
async fn a_call_ends_even_without_a_guard() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    server.program().pause();
    let calls = ["a", "b"].map(|text| is_new(&host, text));
    for call in calls {
        let ended = tokio::time::timeout(PATIENCE, call).await;
        assert!(matches!(ended, Ok(Err(Error::Unavailable(_)))));
    }
    server.program().resume();
    eventually("it answers again", async || {
        is_new(&host, "c").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn persisted_nonces_are_known_after_a_crash() {
    if !available() {
        return;
    }
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Server::start(&args).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    assert_eq!(is_new(&host, "n").await, Ok(true));
    server.kill();
    server.restart().await;
    let mut last = None;
    eventually("it answers again", async || {
        last = is_new(&host, "n").await.ok();
        last.is_some()
    })
    .await;
    assert_eq!(last, Some(false));
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    assert_eq!(is_new(&host, "n").await, Ok(true));
    server.command(&["SCRIPT", "FLUSH"]).await.unwrap();
    assert_eq!(is_new(&host, "n").await, Ok(false));
    assert_eq!(is_new(&host, "m").await, Ok(true));
}

#[tokio::test]
async fn a_batch_is_one_round_trip_and_one_script() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    let nonces = (0..1_000).map(|n| nonce(&n.to_string(), 60)).collect();
    let asks = Asks {
        nonces,
        ..Asks::default()
    };
    for passed in [true, false] {
        let verdicts = host.admit(TENANT, NOW, asks.clone()).await.unwrap();
        assert_eq!(verdicts.nonces.len(), 1_000);
        let accepted = |result: &NonceResult| *result == NonceResult::Accepted;
        assert!(verdicts.nonces.iter().all(|it| accepted(it) == passed));
    }
    let stats = server.command(&["INFO", "commandstats"]).await.unwrap();
    assert!(stats.contains("cmdstat_evalsha:calls=2,"), "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_instances_that_use_one_nonce_one_may() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let address = server.address();
    let hosts: Vec<_> = (0..4)
        .map(|_| Arc::new(RedisHost::new(address.clone()).unwrap()))
        .collect();
    for host in &hosts {
        eventually("connected", async || host.ping().await.is_ok()).await;
    }
    for round in 0..20 {
        let calls = hosts.iter().cycle().take(64).map(|host| {
            let host = Arc::clone(host);
            tokio::spawn(async move { is_new(&host, &round.to_string()).await.unwrap() })
        });
        let calls: Vec<_> = calls.collect();
        let mut accepted = 0;
        for call in calls {
            accepted += u32::from(call.await.unwrap());
        }
        assert_eq!(accepted, 1);
    }
}

#[tokio::test]
async fn a_full_server_refuses_and_forgets_nothing() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    assert_eq!(is_new(&host, "n").await, Ok(true));
    server
        .command(&["CONFIG", "SET", "maxmemory", "1"])
        .await
        .unwrap();
    let full = is_new(&host, "m").await;
    assert!(
        matches!(&full, Err(Error::Unavailable(text)) if text.contains("OOM")),
        "{full:?}"
    );
    server
        .command(&["CONFIG", "SET", "maxmemory", "0"])
        .await
        .unwrap();
    assert_eq!(is_new(&host, "n").await, Ok(false));
    assert_eq!(is_new(&host, "m").await, Ok(true));
}

#[tokio::test]
async fn rows_that_cannot_be_read_are_an_error_and_stay() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    assert_eq!(is_new(&host, "n").await, Ok(true));
    let keys = server.command(&["RANDOMKEY"]).await.unwrap();
    let key = keys.lines().nth(1).unwrap();
    assert!(key.contains(":nonce:"));
    server.command(&["SET", key, "1"]).await.unwrap();
    assert!(matches!(is_new(&host, "n").await, Err(Error::Corrupt(_))));
    assert!(
        server
            .command(&["GET", key])
            .await
            .unwrap()
            .starts_with("$1\r\n1\r\n")
    );
}

#[tokio::test]
async fn a_nonce_that_became_something_else_than_text_is_an_error_and_not_new() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    let together = Asks {
        nonces: vec![nonce("n", 600), nonce("m", 600)],
        ..Asks::default()
    };
    let after_a_limit = Asks {
        counters: vec![asyncgate_core::admission::Increment {
            namespace: [1; 32],
            window_secs: 60,
            limit: 9,
            by: 1,
        }],
        ..one(nonce("n", 600))
    };
    assert_eq!(is_new(&host, "n").await, Ok(true));
    let keys = server.command(&["RANDOMKEY"]).await.unwrap();
    let key = keys.lines().nth(1).unwrap();
    server.command(&["DEL", key]).await.unwrap();
    server.command(&["RPUSH", key, "x"]).await.unwrap();
    // Each of these is decided by another script.
    for asks in [one(nonce("n", 600)), together, after_a_limit] {
        let answer = host.admit(TENANT, NOW, asks).await;
        assert!(matches!(answer, Err(Error::Corrupt(_))), "{answer:?}");
    }
    assert_eq!(is_new(&host, "other").await, Ok(true));
    let kept = server.command(&["LLEN", key]).await.unwrap();
    assert!(kept.starts_with(":1\r\n"), "{kept}");
}

/// A server that accepts everybody and answers whatever it is asked with what `answers` returns for the number of the
/// connection.
async fn impostor(answers: impl Fn(usize) -> &'static [u8] + Send + 'static) -> RedisHost {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answers(number);
            tokio::spawn(async move {
                let mut asked = vec![0; 64 << 10];
                while let Ok(1..) = stream.read(&mut asked).await {
                    drop(stream.write_all(answer).await);
                }
            });
        }
    });
    RedisHost::new(address(&format!("redis://127.0.0.1:{port}"))).unwrap()
}

#[tokio::test]
async fn an_endless_line_is_not_gathered() {
    static ENDLESS: [u8; 70_000] = [b'+'; 70_000];
    // Dialling would wait for its patience if it gathered; so the cause tells which of both happened.
    let host = impostor(|_| &ENDLESS).await;
    eventually("it says why", async || {
        let error = host.ping().await.unwrap_err().to_string();
        error.contains("protocol of Redis")
    })
    .await;
}

#[tokio::test]
async fn a_reply_of_another_kind_costs_the_connection() {
    // Dialling takes any answer, and then a list is asked for.
    let host = impostor(|number| [&b":1\r\n"[..], b"+PONG\r\n"][number.min(1)]).await;
    let answer = is_new(&host, "n").await;
    let told = format!("{answer:?}");
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{told}");
    assert!(told.contains("another kind"), "{told}");
    eventually("there is a second connection", async || {
        host.ping().await.is_ok()
    })
    .await;
}

/// A busy machine may read an answer after the time for it. The server was not silent all the same.
#[tokio::test]
async fn an_answer_that_is_read_late_counts() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 64 << 10];
        while let Ok(read @ 1..) = stream.read(&mut asked).await {
            stream.write_all(b"+PONG\r\n").await.unwrap();
            if asked[..read].ends_with(b"PING\r\n") {
                // The host shares this thread, so it cannot read before this ends.
                std::thread::sleep(Duration::from_millis(1_200));
            }
        }
    });
    let host = RedisHost::new(address(&format!("redis://127.0.0.1:{port}"))).unwrap();
    for _ in 0..4 {
        assert_eq!(host.ping().await, Ok(()));
    }
}

#[tokio::test]
async fn passwords_are_needed_and_not_shown() {
    if !available() {
        return;
    }
    let server = Server::start(&["--requirepass", "s3cret/@"]).await;
    let host = |login: &str| {
        let place = format!("redis://{login}127.0.0.1:{}/2", server.port);
        RedisHost::new(address(&place)).unwrap()
    };
    let right = connected(host(":s3cret%2F%40@")).await;
    assert_eq!(is_new(&right, "n").await, Ok(true));
    for (login, shown) in [("", "NOAUTH"), (":wr0ng@", "does not accept")] {
        let host = host(login);
        let mut last = String::new();
        eventually("it says why", async || {
            last = host.ping().await.unwrap_err().to_string();
            last.contains(shown)
        })
        .await;
        assert!(!last.contains("wr0ng"), "{last}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // The first connection gets no answer, the others that of a web server.
    tokio::spawn(async move {
        let _silent = listener.accept().await;
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
        }
    });
    let host = RedisHost::new(address(&format!("redis://127.0.0.1:{port}"))).unwrap();
    eventually("it says why", async || {
        let error = host.ping().await.unwrap_err().to_string();
        error.contains("protocol of Redis")
    })
    .await;
}
