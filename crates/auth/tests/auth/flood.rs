//! Floods of wrong keys: they cost little, and good keys pass beside them.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::identity::{ApiKey, Record, Role};

use crate::world::{World, guess};

const WRONG: Option<Code> = Some(Code::Unauthorized);

/// Makes so many keys.
async fn keys(world: &World, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(world.key(Role::Agent, None).await.0);
    }
    keys
}

/// Makes a key whose record is from before there were checks.
async fn old_key(world: &World) -> String {
    let (secret, key) = world.key(Role::Agent, None).await;
    let check = None;
    world
        .put(vec![Record::ApiKey(ApiKey { check, ..key })])
        .await;
    secret
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_secrets_cost_no_hash_and_keep_nobody_out() {
    let world = World::new().await;
    let (token, others) = (keys(&world, 1).await.remove(0), keys(&world, 30).await);
    let guesses = (0..300).map(|n| (1, guess(&token, n)));
    let good = others.into_iter().map(|key| (1, key));
    let codes = world.show(guesses.chain(good).collect()).await;
    assert!(codes[..300].iter().all(|code| *code == WRONG), "{codes:?}");
    assert!(codes[300..].iter().all(Option::is_none), "{codes:?}");
    assert_eq!(world.hashes(), 30);
    assert_eq!(world.code(&token).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_one_key_share_one_hash() {
    for old in [false, true] {
        let world = World::new().await;
        let key = match old {
            true => old_key(&world).await,
            false => keys(&world, 1).await.remove(0),
        };
        let same = (0..200).map(|n| (n, key.clone())).collect();
        let codes = world.show(same).await;
        assert!(codes.iter().all(Option::is_none), "{codes:?}");
        assert_eq!(world.hashes(), 1);
        assert_eq!(world.metric("cap_cache_entries"), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_at_an_old_key_lock_out_who_guesses_and_nobody_else() {
    let world = World::new().await;
    let (key, others) = (old_key(&world).await, keys(&world, 5).await);

    // One at a time: five are tried, the others are refused without a hash.
    let mut codes = Vec::new();
    for n in 0..7 {
        codes.push(world.code(&guess(&key, n)).await);
    }
    let locked = Some(Code::RateLimit);
    assert_eq!(codes, [WRONG, WRONG, WRONG, WRONG, WRONG, locked, locked]);
    assert_eq!(world.hashes(), 5);

    // The address is locked out from this key and from no other.
    assert_eq!(world.code(&key).await, locked);
    assert_eq!(world.code(&others[0]).await, None);

    // Many at once, from many addresses: the other keys pass.
    let guesses = (10..210).map(|address| (address, guess(&key, address.into())));
    let good = others[1..].iter().map(|key| (1, key.clone()));
    let codes = world.show(guesses.chain(good).collect()).await;
    assert!(codes[200..].iter().all(Option::is_none), "{codes:?}");

    // Elsewhere the key works. After that a wrong secret is known without a hash.
    assert_eq!(world.code_from(2, &key).await, None);
    let before = world.hashes();
    for n in 100..120 {
        assert_eq!(world.code_from(3, &guess(&key, n)).await, WRONG);
    }
    assert_eq!(world.hashes(), before);
    assert_eq!(world.code(&key).await, None, "it is proved");

    // A lockout ends.
    let world = world.beside(Arc::clone(&world.files));
    for n in 0..6 {
        world.code(&guess(&key, n)).await;
    }
    assert_eq!(world.code(&key).await, locked);
    world.at.clock.advance(60_000);
    assert_eq!(world.code(&key).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_keys_take_turns_and_a_good_one_passes_among_them() {
    let world = World::new().await;
    let good = keys(&world, 1).await.remove(0);
    let invented = |n: u32| (1, format!("aga_{n:0>52}"));
    let codes = world.show((0..200).map(invented).collect()).await;
    assert!(codes.iter().all(|code| *code == WRONG), "{codes:?}");
    // From here on the address has to take turns.
    let mut shown: Vec<(u8, String)> = (200..400).map(invented).collect();
    shown.push((1, good.clone()));
    let codes = world.show(shown).await;
    assert_eq!(codes.last(), Some(&None), "{codes:?}");
    let allowed = [WRONG, Some(Code::Unavailable)];
    assert!(codes[..200].iter().all(|code| allowed.contains(code)));
    assert_eq!(world.hashes(), 1);
}
