//! Every way to be let in, and every way to be refused.

use std::time::Duration;

use asyncgate_engine::fakes::{FakeClock, START_MS};
use prometheus_client::registry::Registry;

use super::*;
use crate::config::tests::settings;

/// A clock that stands still until it is moved.
fn still() -> Arc<FakeClock> {
    Arc::new(FakeClock::at(START_MS))
}

fn in_dir(dir: &tempfile::TempDir) -> Settings {
    settings(&[("data_dir", dir.path().to_str().unwrap())])
}

fn open(settings: &Settings, clock: &Arc<FakeClock>) -> (Keys, Option<Token>) {
    let clock: Arc<dyn Clock> = clock.clone();
    Keys::open(settings, &clock).unwrap()
}

fn counted(keys: &Keys) -> String {
    let mut registry = Registry::default();
    keys.register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

async fn authenticate(keys: &Keys, credential: Option<&str>) -> Result<Caller, Fault> {
    let request = RequestContext {
        credential,
        ..RequestContext::default()
    };
    keys.authenticate(&request).await
}

async fn code(keys: &Keys, bearer: Option<&str>) -> Option<Code> {
    authenticate(keys, bearer)
        .await
        .err()
        .map(|fault| fault.code)
}

#[tokio::test]
async fn the_shared_key_is_the_admin_and_nothing_else_is() {
    let (keys, fresh) = open(&settings(&[("api_key", "a-shared-key-of-ours")]), &still());
    assert!(fresh.is_none());
    assert_eq!(
        authenticate(&keys, Some("a-shared-key-of-ours"))
            .await
            .unwrap(),
        admin()
    );
    for bad in [
        None,
        Some(""),
        Some("a-shared-key-of-our"),
        Some("a-shared-key-of-ours "),
    ] {
        assert_eq!(code(&keys, bad).await, Some(Code::Unauthorized), "{bad:?}");
    }
}

#[tokio::test]
async fn insecure_dev_lets_everybody_in() {
    let (keys, fresh) = open(&settings(&[("allow_insecure_dev", "true")]), &still());
    assert!(fresh.is_none());
    assert_eq!(authenticate(&keys, None).await.unwrap(), admin());
    assert_eq!(
        authenticate(&keys, Some("whatever")).await.unwrap(),
        admin()
    );
}

#[tokio::test]
async fn the_first_start_makes_a_key_that_later_starts_know() {
    let dir = tempfile::tempdir().unwrap();
    let (keys, fresh) = open(&in_dir(&dir), &still());
    let token = fresh.unwrap();
    let text = std::fs::read_to_string(dir.path().join("keys.json")).unwrap();
    assert!(
        !text.contains(&token.reveal()[16..]) && text.contains("$argon2id$"),
        "{text}"
    );
    assert_eq!(
        authenticate(&keys, Some(token.reveal())).await.unwrap(),
        admin()
    );

    let (again, none) = open(&in_dir(&dir), &still());
    assert!(none.is_none());
    assert_eq!(
        authenticate(&again, Some(token.reveal())).await.unwrap(),
        admin()
    );
    let other = Token::generate().unwrap();
    let same_lookup = format!("{}{}", &token.reveal()[..16], &other.reveal()[16..]);
    for bad in [
        None,
        Some(""),
        Some("aga_"),
        Some(other.reveal()),
        Some(same_lookup.as_str()),
    ] {
        assert_eq!(code(&again, bad).await, Some(Code::Unauthorized), "{bad:?}");
    }
}

#[tokio::test]
async fn a_memory_store_keeps_its_key_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = in_dir(&dir);
    settings.store = StoreKind::Memory;
    let (keys, fresh) = open(&settings, &still());
    assert_eq!(
        authenticate(&keys, Some(fresh.unwrap().reveal()))
            .await
            .unwrap(),
        admin()
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_key_is_proved_once_and_a_revoked_one_dies_within_the_recheck() {
    let dir = tempfile::tempdir().unwrap();
    let clock = still();
    let (keys, fresh) = open(&in_dir(&dir), &clock);
    let token = fresh.unwrap();
    assert!(authenticate(&keys, Some(token.reveal())).await.is_ok());

    let path = dir.path().join("keys.json");
    let original = std::fs::read_to_string(&path).unwrap();
    clock.advance(60_000);
    assert!(
        authenticate(&keys, Some(token.reveal())).await.is_ok(),
        "an unchanged record keeps its proof"
    );

    std::fs::write(&path, "half an edit").unwrap();
    clock.advance(60_000);
    assert!(
        authenticate(&keys, Some(token.reveal())).await.is_ok(),
        "an unreadable file revokes nobody"
    );

    std::fs::write(&path, r#"{"version":1,"keys":[]}"#).unwrap();
    clock.advance(29_999);
    assert!(authenticate(&keys, Some(token.reveal())).await.is_ok());
    clock.advance(1);
    assert!(counted(&keys).contains("cap_cache_entries 1\n"));
    assert_eq!(
        code(&keys, Some(token.reveal())).await,
        Some(Code::Unauthorized)
    );
    let after = counted(&keys);
    assert!(after.contains("cap_cache_entries 0\n"), "{after}");
    let revoked = "cap_cache_evictions_total{reason=\"revoked\"} 1\n";
    assert!(after.contains(revoked), "{after}");

    std::fs::write(&path, original).unwrap();
    clock.advance(30_000);
    assert!(authenticate(&keys, Some(token.reveal())).await.is_ok());
}

#[test]
fn a_record_that_was_edited_into_nonsense_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&in_dir(&dir), &still()));
    let path = dir.path().join("keys.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("service", "nobody"),
        ("$argon2id$", "argon"),
        ("00000000-", "x"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let clock: Arc<dyn Clock> = still();
        let message = Keys::open(&in_dir(&dir), &clock).unwrap_err().to_string();
        assert!(message.contains("keys.json"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_bad_keys_is_turned_away_instead_of_queued() {
    let dir = tempfile::tempdir().unwrap();
    let (keys, fresh) = open(&in_dir(&dir), &still());
    let (keys, token) = (Arc::new(keys), fresh.unwrap());
    let flood = (0..200).map(|_| {
        let other = Token::generate().unwrap();
        let bad = format!("{}{}", &token.reveal()[..16], &other.reveal()[16..]);
        let keys = keys.clone();
        tokio::spawn(async move { code(&keys, Some(&bad)).await })
    });
    let codes = tokio::time::timeout(
        Duration::from_secs(60),
        futures_util::future::join_all(flood),
    )
    .await
    .unwrap();
    let codes: Vec<Option<Code>> = codes.into_iter().map(Result::unwrap).collect();
    assert!(
        codes
            .iter()
            .all(|code| matches!(code, Some(Code::Unauthorized | Code::Unavailable))),
        "{codes:?}"
    );
    assert!(
        codes.contains(&Some(Code::Unavailable)),
        "nobody was turned away"
    );
    assert!(authenticate(&keys, Some(token.reveal())).await.is_ok());
}
