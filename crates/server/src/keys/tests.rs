//! Every way to be let in, and every way to be refused.

use asyncgate_engine::Remote;
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
        ("\"check\": \"", "\"check\": \"x"),
        ("00000000-", "x"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let clock: Arc<dyn Clock> = still();
        let message = Keys::open(&in_dir(&dir), &clock).unwrap_err().to_string();
        assert!(message.contains("keys.json"), "{message}");
    }
}

/// Returns a credential with the lookup id of this key and another secret.
fn guess(token: &Token) -> String {
    let other = Token::generate().unwrap();
    format!("{}{}", &token.reveal()[..16], &other.reveal()[16..])
}

/// Takes the check out of every record, as it was before there were checks.
fn make_old(dir: &tempfile::TempDir) {
    let path = dir.path().join("keys.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter(|line| !line.contains("\"check\""));
    let old: String = lines.map(|line| format!("{line}\n")).collect();
    assert_ne!(old, text);
    std::fs::write(&path, old).unwrap();
}

/// Makes keys beside the one in the file.
fn add_keys(dir: &tempfile::TempDir, count: usize) -> Vec<Token> {
    let file = KeyFile::in_dir(dir.path());
    let mut records = file.load().unwrap().unwrap();
    let tokens: Vec<_> = (0..count).map(|_| Token::generate().unwrap()).collect();
    for token in &tokens {
        records.push(Record::for_token(token, &admin(), String::new()).unwrap());
    }
    file.save(records).unwrap();
    tokens
}

fn hashes(keys: &Keys) -> u64 {
    let text = counted(keys);
    let sample = text
        .lines()
        .find_map(|line| line.strip_prefix("credential_hashes_total "));
    sample.unwrap().parse().unwrap()
}

/// Shows credentials all at once from one address each, and returns the outcomes in this order.
async fn show(keys: &Arc<Keys>, shown: Vec<(u8, String)>) -> Vec<Option<Code>> {
    let calls = shown.into_iter().map(|(address, credential)| {
        let keys = keys.clone();
        tokio::spawn(async move { code_from(&keys, address, &credential).await })
    });
    let all = futures_util::future::join_all(calls).await;
    all.into_iter().map(Result::unwrap).collect()
}

async fn code_from(keys: &Keys, address: u8, credential: &str) -> Option<Code> {
    let request = RequestContext {
        credential: Some(credential),
        remote: Some(Remote::Network(([10, 0, 0, address], 9).into())),
        ..RequestContext::default()
    };
    let refused = keys.authenticate(&request).await.err()?;
    Some(refused.code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_secrets_cost_no_hash_and_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let (_, fresh) = open(&in_dir(&dir), &still());
    let (token, others) = (fresh.unwrap(), add_keys(&dir, 30));
    let (keys, _) = open(&in_dir(&dir), &still());
    let keys = Arc::new(keys);
    let guesses = (0..300).map(|_| (1, guess(&token)));
    let good = others.iter().map(|token| (1, token.reveal().to_owned()));
    let codes = show(&keys, guesses.chain(good).collect()).await;
    assert!(
        codes[..300]
            .iter()
            .all(|code| *code == Some(Code::Unauthorized)),
        "{codes:?}"
    );
    assert!(codes[300..].iter().all(Option::is_none), "{codes:?}");
    assert_eq!(hashes(&keys), 30);
    assert_eq!(code_from(&keys, 1, token.reveal()).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_one_key_share_one_hash() {
    let dir = tempfile::tempdir().unwrap();
    let (_, fresh) = open(&in_dir(&dir), &still());
    let token = fresh.unwrap();
    for old in [false, true] {
        if old {
            make_old(&dir);
        }
        let (keys, _) = open(&in_dir(&dir), &still());
        let keys = Arc::new(keys);
        let same = (0..200).map(|n| (n, token.reveal().to_owned())).collect();
        let codes = show(&keys, same).await;
        assert!(codes.iter().all(Option::is_none), "{codes:?}");
        assert_eq!(hashes(&keys), 1);
        let counts = counted(&keys);
        assert!(counts.contains("cap_cache_entries 1\n"), "{counts}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_at_an_old_key_lock_out_who_guesses_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let (_, fresh) = open(&in_dir(&dir), &still());
    let (token, others) = (fresh.unwrap(), add_keys(&dir, 5));
    make_old(&dir);
    let clock = still();
    let (keys, _) = open(&in_dir(&dir), &clock);
    let keys = Arc::new(keys);

    // One at a time: five are tried, the others are refused without a hash.
    let mut codes = Vec::new();
    for _ in 0..7 {
        codes.push(code_from(&keys, 1, &guess(&token)).await);
    }
    let locked = Some(Code::RateLimit);
    let wrong = Some(Code::Unauthorized);
    assert_eq!(codes, [wrong, wrong, wrong, wrong, wrong, locked, locked]);
    assert_eq!(hashes(&keys), 5);

    // The address is locked out from this key and from no other.
    assert_eq!(code_from(&keys, 1, token.reveal()).await, locked);
    assert_eq!(code_from(&keys, 1, others[0].reveal()).await, None);

    // Many at once, from many addresses: few are tried, and the other keys pass.
    let guesses = (10..210).map(|address| (address, guess(&token)));
    let good = others[1..]
        .iter()
        .map(|token| (1, token.reveal().to_owned()));
    let codes = show(&keys, guesses.chain(good).collect()).await;
    assert!(codes[200..].iter().all(Option::is_none), "{codes:?}");
    assert!(codes[..200].contains(&Some(Code::Unavailable)), "{codes:?}");

    // Elsewhere the key works. After that a wrong secret is known without a hash.
    assert_eq!(code_from(&keys, 2, token.reveal()).await, None);
    let before = hashes(&keys);
    for _ in 0..20 {
        assert_eq!(code_from(&keys, 3, &guess(&token)).await, wrong);
    }
    assert_eq!(hashes(&keys), before);
    assert_eq!(
        code_from(&keys, 1, token.reveal()).await,
        None,
        "it is proved"
    );

    // A lockout ends.
    let (keys, _) = open(&in_dir(&dir), &clock);
    for _ in 0..6 {
        code_from(&keys, 1, &guess(&token)).await;
    }
    assert_eq!(code_from(&keys, 1, token.reveal()).await, locked);
    clock.advance(60_000);
    assert_eq!(code_from(&keys, 1, token.reveal()).await, None);
}

#[tokio::test]
async fn refusals_look_alike() {
    let dir = tempfile::tempdir().unwrap();
    let (keys, fresh) = open(&in_dir(&dir), &still());
    let token = fresh.unwrap();
    let unknown = Token::generate().unwrap();
    let mut told = Vec::new();
    for bad in ["", "nonsense", unknown.reveal(), &guess(&token)] {
        let fault = authenticate(&keys, Some(bad)).await.unwrap_err();
        told.push((fault.code, fault.message.clone(), fault.retry_after_seconds));
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}
