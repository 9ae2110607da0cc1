use asyncgate_core::{
    Timestamp,
    identity::{KeyLife, KeyRejection, KeyStanding, expiry},
};
use proptest::prelude::*;

const NOW: i64 = 1_763_000_000_000;
const DAY_MS: i64 = 86_400_000;

const fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn key(expires_ms: Option<i64>) -> KeyLife {
    KeyLife::begin(at(NOW), expires_ms.map(at))
}

#[test]
fn expiry_is_exact() {
    let life = key(Some(NOW + 1_000));
    assert_eq!(life.standing(at(NOW)), KeyStanding::Valid);
    assert_eq!(life.standing(at(NOW + 999)), KeyStanding::Valid);
    assert_eq!(life.standing(at(NOW + 1_000)), KeyStanding::Expired);
    assert_eq!(key(None).standing(at(i64::MAX)), KeyStanding::Valid);
}

#[test]
fn a_revoked_key_stays_revoked_whatever_the_clock_says() {
    let revoked = key(Some(NOW + DAY_MS)).revoke(at(NOW + 5), None).unwrap();
    for ms in [NOW - DAY_MS, NOW, NOW + 5, NOW + 2 * DAY_MS] {
        assert_eq!(revoked.standing(at(ms)), KeyStanding::Revoked);
    }
    let again = revoked.revoke(at(NOW + 9), None).unwrap();
    assert_eq!(again.revoked_at, Some(at(NOW + 5)));
}

#[test]
fn the_last_platform_admin_stays() {
    let life = key(None);
    let last = life.revoke(at(NOW), Some(0));
    assert_eq!(last, Err(KeyRejection::LastPlatformAdmin));
    assert!(life.revoke(at(NOW), Some(1)).is_ok());
    // A key that has ended keeps nobody in, so it may go.
    assert!(key(Some(NOW + 1)).revoke(at(NOW + 1), Some(0)).is_ok());
    let revoked = life.revoke(at(NOW), Some(1)).unwrap();
    assert!(revoked.revoke(at(NOW), Some(0)).is_ok());
}

#[test]
fn rotation_overlaps() {
    let rotation = key(None).rotate(at(NOW), 86_400).unwrap();
    assert_eq!(rotation.old.expires_at, Some(at(NOW + DAY_MS)));
    assert!(rotation.old.replaced && !rotation.new.replaced);
    assert_eq!(rotation.new, key(None));
    for (ms, old) in [
        (NOW, KeyStanding::Valid),
        (NOW + DAY_MS - 1, KeyStanding::Valid),
        (NOW + DAY_MS, KeyStanding::Expired),
    ] {
        assert_eq!(rotation.old.standing(at(ms)), old);
        assert_eq!(rotation.new.standing(at(ms)), KeyStanding::Valid);
    }
    let at_once = key(None).rotate(at(NOW), 0).unwrap();
    assert_eq!(at_once.old.standing(at(NOW)), KeyStanding::Expired);
}

#[test]
fn rotation_does_not_prolong_the_old_key_and_the_new_one_lives_as_long() {
    let old = key(Some(NOW + 10_000));
    let rotation = old.rotate(at(NOW + 4_000), 86_400).unwrap();
    assert_eq!(rotation.old.expires_at, Some(at(NOW + 10_000)));
    assert_eq!(rotation.new.expires_at, Some(at(NOW + 14_000)));
    assert_eq!(rotation.new.created_at, at(NOW + 4_000));
}

#[test]
fn what_has_ended_or_was_replaced_cannot_be_rotated() {
    let expired = key(Some(NOW + 1)).rotate(at(NOW + 1), 5);
    assert_eq!(expired, Err(KeyRejection::Ended));
    let revoked = key(None).revoke(at(NOW), None).unwrap();
    assert_eq!(revoked.rotate(at(NOW), 5), Err(KeyRejection::Ended));
    let replaced = key(None).rotate(at(NOW), 5).unwrap();
    let again = replaced.old.rotate(at(NOW + 1), 5);
    assert_eq!(again, Err(KeyRejection::Replaced));
    assert!(replaced.new.rotate(at(NOW + 1), 5).is_ok());
}

#[test]
fn expiries_are_named_in_one_way_and_lie_ahead() {
    let ahead = Some(at(NOW + 1));
    assert_eq!(expiry(at(NOW), None, None), Ok(None));
    assert_eq!(expiry(at(NOW), ahead, None), Ok(ahead));
    assert_eq!(expiry(at(NOW), None, Some(2)), Ok(Some(at(NOW + 2_000))));
    let both = expiry(at(NOW), ahead, Some(1));
    assert_eq!(both, Err(KeyRejection::TwoExpiries));
    for (time, length) in [
        (Some(at(NOW)), None),
        (Some(at(NOW - 1)), None),
        (None, Some(0)),
    ] {
        let refused = expiry(at(NOW), time, length);
        assert_eq!(refused, Err(KeyRejection::ExpiryNotAhead));
    }
    let far = expiry(at(NOW), None, Some(u64::MAX)).unwrap().unwrap();
    assert_eq!(far.to_string(), "9999-12-31T23:59:59.999Z");
}

proptest! {
    /// Whatever is done to a key, what has ended does not begin again, and no rotation prolongs a key.
    #[test]
    fn a_key_that_ended_stays_ended(
        life_ms in prop::option::of(1_i64..100_000),
        rotated_ms in 0_i64..100_000,
        overlap_secs in 0_u64..200,
        later_ms in 0_i64..200_000,
    ) {
        let old = key(life_ms.map(|ms| NOW + ms));
        let Ok(rotation) = old.rotate(at(NOW + rotated_ms), overlap_secs) else {
            prop_assert_eq!(old.standing(at(NOW + rotated_ms)), KeyStanding::Expired);
            return Ok(());
        };
        let later = at(NOW + later_ms);
        if old.standing(later) == KeyStanding::Expired {
            prop_assert_eq!(rotation.old.standing(later), KeyStanding::Expired);
        }
        let overlap_over = later >= at(NOW + rotated_ms + overlap_secs as i64 * 1_000);
        if overlap_over {
            prop_assert_eq!(rotation.old.standing(later), KeyStanding::Expired);
        }
    }
}
