//! Sentinels and clusters: the host finds the master, and follows slots that move.

use std::net::Ipv4Addr;

use asyncgate_core::{TenantId, Timestamp, admission::Asks};
use asyncgate_host_redis::RedisHost;
use asyncgate_store::{Error, admission::Host, conformance::nonce};
use tokio::net::TcpListener;

use asyncgate_store::conformance::eventually;

use crate::servers::{Server, address, available, cluster, connected};

const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);

fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([number; 16])
}

async fn is_new(host: &RedisHost, tenant: TenantId, text: &str) -> Result<bool, Error> {
    let asks = Asks {
        nonces: vec![nonce(text, 600)],
        ..Asks::default()
    };
    Ok(host.admit(tenant, NOW, asks).await?.passed())
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_tell_who_is_master() {
    if !available() {
        return;
    }
    let mut master = Server::start(&[]).await;
    let port = master.port.to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]).await;
    eventually("the replica follows", async || {
        let role = replica.command(&["ROLE"]).await.unwrap();
        role.contains("connected")
    })
    .await;
    let sentinel = Server::start_sentinel(master.port).await;
    // The first sentinel says nothing, and the second does not exist.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let place = format!(
        "redis+sentinel://127.0.0.1:{},127.0.0.1:1,127.0.0.1:{}/main",
        silent.local_addr().unwrap().port(),
        sentinel.port
    );
    let host = connected(RedisHost::new(address(&place)).unwrap()).await;
    assert_eq!(is_new(&host, tenant(1), "a").await, Ok(true));
    eventually("the nonce is on the replica", async || {
        replica
            .command(&["DBSIZE"])
            .await
            .unwrap()
            .starts_with(":1")
    })
    .await;
    eventually("the sentinel knows the replica", async || {
        let replicas = sentinel.command(&["SENTINEL", "REPLICAS", "main"]).await;
        replicas.unwrap().contains(&replica.port.to_string())
    })
    .await;
    master.kill();
    let mut turn = 0;
    eventually("the replica took over", async || {
        turn += 1;
        is_new(&host, tenant(1), &turn.to_string()).await.is_ok()
    })
    .await;
    assert_eq!(is_new(&host, tenant(1), "a").await, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_demoted_is_left() {
    if !available() {
        return;
    }
    let (old, new) = (Server::start(&[]).await, Server::start(&[]).await);
    let sentinel = Server::start_sentinel(old.port).await;
    let place = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let host = connected(RedisHost::new(address(&place)).unwrap()).await;
    assert_eq!(is_new(&host, tenant(1), "a").await, Ok(true));
    // The connection stays, but writes are refused; the sentinel learns of it later.
    let port = new.port.to_string();
    old.command(&["REPLICAOF", "127.0.0.1", &port])
        .await
        .unwrap();
    let refused = is_new(&host, tenant(1), "b").await;
    assert!(
        matches!(&refused, Err(Error::Unavailable(text)) if text.contains("READONLY")),
        "{refused:?}"
    );
    sentinel
        .command(&["SENTINEL", "REMOVE", "main"])
        .await
        .unwrap();
    let monitor = ["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "1"];
    sentinel.command(&monitor).await.unwrap();
    let mut turn = 0;
    eventually("the new master answers", async || {
        turn += 1;
        is_new(&host, tenant(1), &turn.to_string()).await.is_ok()
    })
    .await;
    assert!(!new.command(&["DBSIZE"]).await.unwrap().starts_with(":0"));
}

/// Returns the index of the server that has a slot, and of another server.
async fn owner_and_other(servers: &[Server], slot: &str) -> (usize, usize) {
    for (n, server) in servers.iter().enumerate() {
        let count = server.command(&["CLUSTER", "COUNTKEYSINSLOT", slot]).await;
        if !count.unwrap().starts_with(":0") {
            return (n, (n + 1) % servers.len());
        }
    }
    panic!("nobody has slot {slot}");
}

async fn id(server: &Server) -> String {
    let id = server.command(&["CLUSTER", "MYID"]).await.unwrap();
    id.lines().nth(1).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_is_followed() {
    if !available() {
        return;
    }
    let servers = cluster().await;
    let place = format!("redis+cluster://127.0.0.1:{}", servers[0].port);
    let host = connected(RedisHost::new(address(&place)).unwrap()).await;
    let tenant = tenant(9);
    assert_eq!(is_new(&host, tenant, "a").await, Ok(true));
    let tag = format!("{{{}}}", "09".repeat(16));
    let slot = servers[0].command(&["CLUSTER", "KEYSLOT", &tag]).await;
    let slot = slot.unwrap()[1..].lines().next().unwrap().to_owned();
    let (from, to) = owner_and_other(&servers, &slot).await;
    let (from, to) = (&servers[from], &servers[to]);
    let (from_id, to_id) = (id(from).await, id(to).await);
    let set = async |server: &Server, state: &str, id: &str| {
        let answer = server
            .command(&["CLUSTER", "SETSLOT", &slot, state, id])
            .await;
        assert!(answer.as_ref().unwrap().starts_with("+OK"), "{answer:?}");
    };
    set(to, "IMPORTING", &from_id).await;
    set(from, "MIGRATING", &to_id).await;
    // The old server still answers for keys that it has; all other keys belong to the new server.
    assert_eq!(is_new(&host, tenant, "a").await, Ok(false));
    assert_eq!(is_new(&host, tenant, "b").await, Ok(true));
    assert_eq!(is_new(&host, tenant, "b").await, Ok(false));
    let count = to.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).await;
    assert!(count.unwrap().starts_with(":1"));
    let keys = from
        .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "9"])
        .await
        .unwrap();
    let key = keys.lines().find(|line| line.contains(":nonce:")).unwrap();
    let port = to.port.to_string();
    let moved = from
        .command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])
        .await;
    assert!(moved.unwrap().starts_with("+OK"));
    for server in [to, from] {
        set(server, "NODE", &to_id).await;
    }
    for (text, new) in [("a", false), ("b", false), ("c", true), ("c", false)] {
        assert_eq!(is_new(&host, tenant, text).await, Ok(new), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_server_fails_only_for_its_tenants() {
    if !available() {
        return;
    }
    let mut servers = cluster().await;
    let place = format!(
        "redis+cluster://127.0.0.1:{},127.0.0.1:{}",
        servers[2].port, servers[1].port
    );
    let host = connected(RedisHost::new(address(&place)).unwrap()).await;
    for number in 0..40 {
        assert_eq!(is_new(&host, tenant(number), "a").await, Ok(true));
    }
    servers[2].kill();
    assert!(host.ping().await.is_err());
    let mut lost = 0;
    for number in 0..40 {
        lost += u32::from(is_new(&host, tenant(number), "b").await.is_err());
    }
    assert!((1..40).contains(&lost), "{lost}");
    servers[2].restart().await;
    for number in 0..40 {
        eventually("all are there again", async || {
            is_new(&host, tenant(number), "c").await.is_ok()
        })
        .await;
    }
    eventually("all answer", async || host.ping().await.is_ok()).await;
}
