//! The database is killed under load and started again: nothing that was acknowledged is lost, no place is left out, and the
//! store works again without being opened anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use asyncgate_core::{Link, ReceiptType, TaskId, TenantId, task::NewTask};
use asyncgate_store::{
    Error, Health, ReadSet, ReceiptFilter, SeqPage, Store,
    conformance::{Driver, echo, eventually},
};
use asyncgate_store_postgres::{Options, PostgresStore};

use crate::server::{Durability, Server};

const TENANTS: u8 = 4;
const WRITERS: u8 = 16;
const CRASHES: usize = 3;

/// What clients were told: the task of each key.
type Told = Arc<Mutex<BTreeMap<(u8, String), TaskId>>>;

/// Creates tasks until it is told to stop. After a failure it sends the same key again, as clients do.
async fn write(
    store: Arc<dyn Store>,
    writer: u8,
    told: Told,
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) {
    let tenant = 1 + writer % TENANTS;
    let mut driver = Driver::of_tenant(Arc::clone(&store), tenant);
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        let key = format!("{writer}-{number}");
        let new = NewTask {
            idempotency_key: Some(key.clone()),
            ..echo()
        };
        let reads = ReadSet::to_create(&new);
        let created = driver
            .try_decide(reads, move |env, snapshot| {
                snapshot.create(env, new.clone())
            })
            .await;
        match created {
            Ok(created) => {
                let id = created.unwrap().task.id;
                told.lock().unwrap().insert((tenant, key), id);
                count.fetch_add(1, Ordering::SeqCst);
                number += 1;
            }
            Err(Error::Unavailable(_) | Error::Unknown(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_database_crashes() {
    let Some(server) = Server::start(Durability::Machine) else {
        return;
    };
    let address = server.database();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&address, &Options::default()).unwrap());
    let (told, count, stop) = (Told::default(), Arc::default(), Arc::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (told, count) = (Arc::clone(&told), Arc::clone(&count));
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(write(store, writer, told, count, stop))
        })
        .collect();
    for crash in 1..=CRASHES {
        let more = |count: &AtomicUsize| count.load(Ordering::SeqCst) >= 200 * crash;
        eventually("work is done", async || more(&count)).await;
        tokio::task::block_in_place(|| server.kill());
        eventually("the store knows", async || store.health() != Health::Ready).await;
        let before = count.load(Ordering::SeqCst);
        tokio::task::block_in_place(|| server.restart());
        eventually("the store works again", async || {
            count.load(Ordering::SeqCst) > before
        })
        .await;
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    let told = told.lock().unwrap().clone();
    for tenant in 1..=TENANTS {
        check(&*store, tenant, &told).await;
    }
}

/// Checks the ledger of a tenant against what clients were told.
async fn check(store: &dyn Store, number: u8, told: &BTreeMap<(u8, String), TaskId>) {
    let tenant = TenantId::from_bytes([number; 16]);
    let (mut link, mut seq, mut assigned) = (Link::START, 0, BTreeSet::new());
    loop {
        let page = SeqPage {
            after: seq,
            limit: 500,
        };
        let receipts = store.receipts(tenant, ReceiptFilter::All, page);
        let receipts = receipts.await.unwrap();
        for found in &receipts {
            seq += 1;
            link = link.then(tenant, &found.receipt);
            assert_eq!((found.receipt.seq(), found.link), (seq, link), "no gap");
            if found.receipt.receipt_type == ReceiptType::TaskAssigned {
                assigned.extend(found.receipt.task_id);
            }
        }
        if receipts.is_empty() {
            break;
        }
    }
    let head = store.head(tenant).await.unwrap();
    assert_eq!((head.seq, head.link), (seq, link));
    assert_eq!(head.open_obligations, assigned.len() as u64);
    for ((of, key), id) in told.iter().filter(|((of, _), _)| *of == number) {
        assert!(assigned.contains(id), "{key} of {of} was acknowledged");
        let task = store.task(tenant, *id).await.unwrap().unwrap();
        assert_eq!(task.spec.idempotency_key.as_deref(), Some(&**key));
    }
    // What was committed without an answer was found again by its key, so no key has two tasks.
    for id in &assigned {
        let task = store.task(tenant, *id).await.unwrap().unwrap();
        let key = task.spec.idempotency_key.clone().unwrap();
        let known = told.get(&(number, key));
        assert!(known.is_none_or(|known| known == id), "one task for a key");
    }
}
