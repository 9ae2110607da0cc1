//! Keys are rotated and revoked while messages flow: what begins after it fails, what is under way is finished, and
//! no message is lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use asyncgate_api::Code;
use asyncgate_core::identity::{ApiKey, Record, Role};
use asyncgate_engine::{Authenticator as _, Fault};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{World, request};

/// A call as a facade makes it: first the credential, then the operation.
async fn call(world: &World, key: &str, operation: &str, input: &Value) -> Result<Value, Fault> {
    let caller = world.at.auth.authenticate(&request(1, key)).await?;
    world.run(&caller, operation, input).await
}

fn send(n: u32) -> Value {
    json!({"topic": "t", "idem_key": n.to_string(), "payload_text": "x"})
}

/// Takes one message; nothing if there is none.
async fn receive(world: &World, key: &str) -> Result<Option<Value>, Fault> {
    let wish = json!({"topic": "t", "visibility_ms": 600_000, "max_messages": 1});
    let received = call(world, key, "mailbox_recv", &wish).await?;
    let message = received.get("messages").map_or(&received, |list| &list[0]);
    Ok(message.get("msg_id").map(|_| message.clone()))
}

fn ack(message: &Value) -> Value {
    json!({"msg_id": message["msg_id"], "lease": message["lease"]})
}

#[tokio::test]
async fn acks_under_way_are_honoured_and_work_goes_on_with_the_new_key() {
    let world = World::new().await;
    let (old, record) = world.key(Role::Agent, None).await;
    for n in 0..3 {
        call(&world, &old, "mailbox_send", &send(n)).await.unwrap();
    }
    let first = receive(&world, &old).await.unwrap().unwrap();
    let second = receive(&world, &old).await.unwrap().unwrap();

    // This ack has shown its credential before the revocation, and runs after it.
    let caller = world.check(&old).await.unwrap();
    world.revoke(&record).await;
    let first = ack(&first);
    let done = world.run(&caller, "mailbox_ack", &first);
    done.await.unwrap();
    for (operation, input) in [("mailbox_send", send(9)), ("mailbox_ack", ack(&second))] {
        let refused = call(&world, &old, operation, &input).await.unwrap_err();
        assert_eq!(refused.code, Code::Unauthorized);
    }
    assert_eq!(
        receive(&world, &old).await.unwrap_err().code,
        Code::Unauthorized
    );

    let (new, _) = world.key(Role::Agent, None).await;
    call(&world, &new, "mailbox_ack", &ack(&second))
        .await
        .unwrap();
    let third = receive(&world, &new).await.unwrap().unwrap();
    call(&world, &new, "mailbox_ack", &ack(&third))
        .await
        .unwrap();
    assert!(receive(&world, &new).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_under_live_traffic_loses_nothing() {
    let world = Arc::new(World::new().await);
    let keys = Arc::new(std::sync::Mutex::new(world.key(Role::Agent, None).await.0));
    let (sent, done) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let traffic = (0..4).map(|_| {
        let (world, keys) = (Arc::clone(&world), Arc::clone(&keys));
        let (sent, done) = (Arc::clone(&sent), Arc::clone(&done));
        tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let n = sent.fetch_add(1, Ordering::Relaxed);
                // Whoever is refused tries again with the key of the day.
                loop {
                    let key = keys.lock().unwrap().clone();
                    match call(&world, &key, "mailbox_send", &send(n)).await {
                        Ok(_) => break,
                        Err(fault) => assert_eq!(fault.code, Code::Unauthorized),
                    }
                }
                tokio::task::yield_now().await;
            }
        })
    });
    let traffic: Vec<_> = traffic.collect();
    let mut current = keys.lock().unwrap().clone();
    for _ in 0..5 {
        let before = sent.load(Ordering::Relaxed);
        while sent.load(Ordering::Relaxed) < before + 50 {
            assert!(!traffic.iter().any(JoinHandle::is_finished));
            tokio::task::yield_now().await;
        }
        let (next, _) = world.key(Role::Agent, None).await;
        *keys.lock().unwrap() = next.clone();
        let found = world
            .find(asyncgate_core::identity::Find::key(&current[4..16]))
            .await;
        let Some(Record::ApiKey(old)) = found else {
            panic!("it is stored");
        };
        world
            .change(Record::ApiKey(ApiKey {
                expires_at: Some(world.now()),
                ..old
            }))
            .await;
        assert_eq!(world.code(&current).await, Some(Code::Unauthorized));
        current = next;
    }
    done.store(true, Ordering::Relaxed);
    for one in traffic {
        one.await.unwrap();
    }
    let mut received = HashSet::new();
    while let Some(message) = receive(&world, &current).await.unwrap() {
        received.insert(message["idem_key"].as_str().unwrap().to_owned());
        call(&world, &current, "mailbox_ack", &ack(&message))
            .await
            .unwrap();
    }
    assert_eq!(received.len(), sent.load(Ordering::Relaxed) as usize);
}
