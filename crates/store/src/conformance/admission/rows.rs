//! The rows of a store: they come and go, and clients have tiers.

use asyncgate_core::{
    Timestamp,
    admission::{Asks, ClientTier, NonceResult, Tier},
};

use super::{Case, Driver, nonce};
use crate::conformance::cases;

pub(super) fn cases() -> Vec<Case> {
    cases![
        rows_whose_time_is_over_go_little_by_little,
        rows_that_matter_stay,
        tiers_are_set_replaced_and_taken_back,
        tiers_are_listed_page_by_page,
    ]
}

async fn use_nonces(driver: &Driver, names: std::ops::Range<u32>, ttl_secs: u64) -> usize {
    let nonces = names.map(|n| nonce(&n.to_string(), ttl_secs)).collect();
    let asks = Asks {
        nonces,
        ..Asks::default()
    };
    let host = driver.store().admission();
    let verdicts = host.admit(driver.tenant, driver.now, asks).await.unwrap();
    let fresh = |result: &&NonceResult| **result == NonceResult::Accepted;
    verdicts.nonces.iter().filter(fresh).count()
}

async fn rows(driver: &Driver) -> u64 {
    driver.store().admission().rows().await.unwrap()
}

async fn rows_whose_time_is_over_go_little_by_little(mut driver: Driver) {
    assert_eq!(use_nonces(&driver, 0..500, 10).await, 500);
    assert_eq!(rows(&driver).await, 500);
    driver.wait_ms(60_000);
    // Nobody has to ask for it: new rows push out those whose time is over.
    for n in 1_000..1_400 {
        use_nonces(&driver, n..n + 1, 3_600).await;
    }
    assert_eq!(rows(&driver).await, 400);
}

async fn rows_that_matter_stay(mut driver: Driver) {
    assert_eq!(use_nonces(&driver, 0..100, 3_600).await, 100);
    driver.wait_ms(3_599_000);
    for n in 1_000..1_200 {
        use_nonces(&driver, n..n + 1, 3_600).await;
    }
    assert_eq!(
        use_nonces(&driver, 0..100, 3_600).await,
        0,
        "all are replays"
    );
    assert_eq!(rows(&driver).await, 300);
}

fn tiered(client: &str, tier: Tier, until: Option<Timestamp>) -> ClientTier {
    ClientTier {
        client: client.to_owned(),
        tier,
        reason: until.map(|_| "ünruly".to_owned()),
        until,
    }
}

async fn tiers_are_set_replaced_and_taken_back(driver: Driver) {
    let other = Driver::of_tenant(std::sync::Arc::clone(driver.store()), 2);
    let (tenant, now) = (driver.tenant, driver.now);
    let store = driver.store().admission();
    let find = |client: &str| store.tier(tenant, client.to_owned());
    assert_eq!(find("a").await.unwrap(), None);
    for tier in [
        tiered("a", Tier::Trusted, None),
        tiered("a", Tier::Throttled, Some(now.plus_millis(5))),
    ] {
        store.set_tier(tenant, now, tier.clone()).await.unwrap();
        assert_eq!(find("a").await.unwrap(), Some(tier));
    }
    let elsewhere = store.tier(other.tenant, "a".to_owned()).await.unwrap();
    assert_eq!(elsewhere, None);
    for was in [true, false] {
        let gone = store.clear_tier(tenant, now, "a".to_owned()).await.unwrap();
        assert_eq!(gone, was);
        assert_eq!(find("a").await.unwrap(), None);
    }
}

async fn tiers_are_listed_page_by_page(driver: Driver) {
    let (tenant, now) = (driver.tenant, driver.now);
    let store = driver.store().admission();
    let clients = ["10.0.0.1", "a", "a b", "ä", "\u{10ffff}"];
    for client in clients.iter().rev() {
        let tier = tiered(client, Tier::Batch, None);
        store.set_tier(tenant, now, tier).await.unwrap();
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.tiers(tenant, after, 2).await.unwrap();
        after = page.last().map(|tier| tier.client.clone());
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|tier| tier.client));
    }
    assert_eq!(listed, clients);
}
