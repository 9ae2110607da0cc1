use asyncgate_core::admission::{Asks, NonceCheck, NonceResult};

use crate::world::{START_MS, World, nonce};

const FIRST: NonceResult = NonceResult::Replay {
    first_seen: Some(START_MS / 1_000),
};

fn use_all(world: &mut World, nonces: Vec<NonceCheck>) -> Vec<NonceResult> {
    world
        .ask(&Asks {
            nonces,
            ..Asks::default()
        })
        .nonces
}

#[test]
fn a_nonce_is_new_once_and_a_replay_does_not_prolong_it() {
    for mut world in [World::new(), World::forgetful()] {
        let mut once = |wait| {
            world.wait(wait);
            use_all(&mut world, vec![nonce("n", 10)])[0]
        };
        assert_eq!(once(0), NonceResult::Accepted);
        assert_eq!(once(0), FIRST);
        assert_eq!(once(9_999), FIRST);
        assert_eq!(once(1), NonceResult::Accepted, "its time is over");
        assert_ne!(once(1), NonceResult::Accepted);
    }
}

#[test]
fn nonces_are_unique_within_their_namespace() {
    let mut world = World::new();
    let other = NonceCheck {
        namespace: [9; 32],
        ..nonce("n", 10)
    };
    let asked = vec![nonce("n", 10), other, nonce("", 10), nonce("m", 10)];
    assert_eq!(
        use_all(&mut world, asked),
        [NonceResult::Accepted; 4],
        "each is another"
    );
}

#[test]
fn each_nonce_of_a_batch_stands_for_itself() {
    let mut world = World::new();
    use_all(&mut world, vec![nonce("b", 10)]);
    let asked = vec![
        nonce("a", 10),
        nonce("b", 10),
        nonce("a", 10),
        nonce("c", 10),
    ];
    let expected = [NonceResult::Accepted, FIRST, FIRST, NonceResult::Accepted];
    assert_eq!(use_all(&mut world, asked), expected);
    assert_eq!(use_all(&mut world, vec![nonce("c", 10)]), [FIRST]);
}

#[test]
fn the_longest_life_is_kept_whole() {
    let mut world = World::forgetful();
    let mut once = |wait| {
        world.wait(wait);
        use_all(&mut world, vec![nonce("n", u64::MAX)])[0]
    };
    assert_eq!(once(0), NonceResult::Accepted);
    assert_eq!(once(i64::MAX / 4), FIRST);
}
