//! Revocations.

use asyncgate_core::admission::{Subject, SubjectKind};

use super::{HostCase, HostDriver, host_cases, subject};

pub(super) fn cases() -> Vec<HostCase> {
    host_cases![
        the_first_revocation_stands,
        subjects_are_answered_in_order,
        what_is_taken_back_is_valid_again,
        revocations_are_listed_page_by_page,
        revocations_are_a_tenants_own,
        a_host_that_works_says_so,
    ]
}

async fn the_first_revocation_stands(mut driver: HostDriver) {
    let (first, new) = driver.revoke(subject(1), Some("ünsafe\n\"key\"")).await;
    assert!(new);
    assert_eq!(first.revoked_at, driver.now);
    driver.wait_ms(5_000);
    let again = driver.revoke(subject(1), Some("other")).await;
    assert_eq!(again, (first.clone(), false));
    assert_eq!(driver.revoked(vec![subject(1)]).await, [Some(first)]);
    let (silent, _) = driver.revoke(subject(2), None).await;
    assert_eq!(driver.revoked(vec![subject(2)]).await, [Some(silent)]);
}

async fn subjects_are_answered_in_order(driver: HostDriver) {
    driver.revoke(subject(2), None).await;
    let asked = vec![subject(1), subject(2), subject(1), subject(3), subject(2)];
    let found = driver.revoked(asked).await;
    let found: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert_eq!(found, [false, true, false, false, true]);
    // The same hash as another kind is another subject.
    let key = Subject {
        kind: SubjectKind::HolderKey,
        ..subject(2)
    };
    assert_eq!(driver.revoked(vec![key]).await, [None]);
    assert!(driver.revoked(vec![]).await.is_empty());
}

async fn what_is_taken_back_is_valid_again(driver: HostDriver) {
    let host = &driver.host;
    driver.revoke(subject(1), None).await;
    for was in [true, false] {
        let gone = host.unrevoke(driver.tenant, driver.now, subject(1)).await;
        assert_eq!(gone.unwrap(), was);
        assert_eq!(driver.revoked(vec![subject(1)]).await, [None]);
    }
    assert!(driver.revoke(subject(1), None).await.1);
}

async fn revocations_are_listed_page_by_page(driver: HostDriver) {
    let mut subjects: Vec<Subject> = (0..4).map(subject).collect();
    let keys = [SubjectKind::HolderKey, SubjectKind::IssuerKey];
    subjects.extend(keys.map(|kind| Subject::key(kind, &[7; 32])));
    subjects.extend(keys.map(|kind| Subject {
        kind,
        hash: [255; 32],
    }));
    for subject in &subjects {
        driver.revoke(*subject, None).await;
    }
    subjects.sort_unstable();
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = driver.host.revocations(driver.tenant, after, 3).await;
        let page = page.unwrap();
        assert!(page.len() <= 3);
        after = page.last().map(|revocation| revocation.subject);
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|revocation| revocation.subject));
    }
    assert_eq!(listed, subjects);
}

async fn revocations_are_a_tenants_own(driver: HostDriver) {
    let other = driver.neighbour();
    driver.revoke(subject(1), None).await;
    assert_eq!(other.revoked(vec![subject(1)]).await, [None]);
    let listed = other.host.revocations(other.tenant, None, 9).await;
    assert!(listed.unwrap().is_empty());
    let gone = other.host.unrevoke(other.tenant, other.now, subject(1));
    assert!(!gone.await.unwrap());
    assert!(driver.revoked(vec![subject(1)]).await[0].is_some());
}

async fn a_host_that_works_says_so(driver: HostDriver) {
    driver.host.ping().await.unwrap();
    assert!(!driver.host.backend().is_empty());
}
