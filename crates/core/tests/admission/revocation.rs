use asyncgate_core::{
    Timestamp,
    admission::{Freshness, Protected, Revocation, RevocationCache, Subject, SubjectKind, sha256},
};

#[test]
fn subjects_are_hashes_of_what_they_are_about() {
    // SHA-256 of sixteen and of thirty-two zero bytes.
    let warrant = "warrant_id/374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb";
    assert_eq!(Subject::warrant(&[0; 16]).to_string(), warrant);
    let key = "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925";
    for kind in [SubjectKind::IssuerKey, SubjectKind::HolderKey] {
        let subject = Subject::key(kind, &[0; 32]);
        assert_eq!(subject.to_string(), format!("{}/{key}", kind.as_str()));
        assert_eq!(subject.hash, sha256(&[0; 32]));
    }
    for kind in SubjectKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
    }
    assert!("key".parse::<SubjectKind>().is_err());
}

#[test]
fn a_protected_key_is_protected_as_issuer_and_as_holder() {
    let protected = Protected::new([&[1; 32]]);
    for (subject, covered) in [
        (Subject::key(SubjectKind::IssuerKey, &[1; 32]), true),
        (Subject::key(SubjectKind::HolderKey, &[1; 32]), true),
        (Subject::key(SubjectKind::HolderKey, &[2; 32]), false),
        (Subject::warrant(&[1; 16]), false),
        // A warrant whose hash is that of a key is still a warrant.
        (
            Subject {
                kind: SubjectKind::WarrantId,
                hash: sha256(&[1; 32]),
            },
            false,
        ),
    ] {
        assert_eq!(protected.covers(&subject), covered, "{subject}");
    }
}

#[test]
fn the_first_revocation_stands() {
    let made = |reason: &str, at| Revocation {
        subject: Subject::warrant(&[0; 16]),
        reason: Some(reason.to_owned()),
        revoked_at: Timestamp::from_millis(at),
    };
    assert_eq!(made("a", 1).over(None), (made("a", 1), true));
    assert_eq!(made("b", 2).over(Some(made("a", 1))), (made("a", 1), false));
}

#[test]
fn kept_answers_age() {
    let cache = RevocationCache::default();
    for (age_ms, expected) in [
        (0, Freshness::Fresh),
        (59_999, Freshness::Fresh),
        (60_000, Freshness::Stale),
        (299_999, Freshness::Stale),
        (300_000, Freshness::Expired),
    ] {
        assert_eq!(cache.freshness(age_ms), expected, "{age_ms}");
    }
}
