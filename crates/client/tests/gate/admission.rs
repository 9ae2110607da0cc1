//! Every operation of admission through the client.

use asyncgate_client::{Client, api::*};
use futures_util::TryStreamExt;

/// Calls each of them once.
pub async fn call_everything(client: &Client) {
    let space = "01".repeat(32);
    let health = client.host_health().await.expect("health");
    assert_eq!(health.status, "healthy");
    let nonce = CheckNoncesInput {
        namespace: Some(space.clone()),
        nonce: Some("AQID".to_owned()),
        ttl_secs: Some(60),
        checks: None,
    };
    for result in ["accepted", "replay"] {
        let checked = client.check_nonces(&nonce).await.expect("a verdict");
        assert_eq!(checked.result.as_deref(), Some(result));
    }
    let counted = IncrementCounterInput {
        namespace: space,
        window_secs: 60,
        limit: 1,
        by: Some(2),
    };
    let counted = client.increment_counter(&counted).await.expect("a count");
    assert_eq!((counted.result.as_str(), counted.count), ("exceeded", 2));

    let subject = SubjectInput {
        kind: "holder_key".to_owned(),
        key: Some("02".repeat(32)),
        ..SubjectInput::default()
    };
    let revoke = RevokeInput {
        subject: subject.clone(),
        reason: None,
    };
    let revoked = client.revoke(&revoke).await.expect("revoked");
    assert!(revoked.created);
    let asked = CheckRevocationsInput {
        subject: Some(subject),
        subjects: None,
    };
    let checked = client.check_revocations(&asked).await.expect("a verdict");
    assert_eq!(checked.result.as_deref(), Some("revoked"));
    let listed = client.revocations(ListRevocationsInput::default());
    let listed: Vec<RevocationRecord> = listed.try_collect().await.expect("a list");
    assert_eq!(listed[0].subject, revoked.subject);
    let Subject { kind, hash } = revoked.subject;
    let taken_back = client.unrevoke(&UnrevokeInput { kind, hash }).await;
    assert!(taken_back.expect("taken back").ok);

    let forged = VerifyWarrantInput {
        warrant: Warrants::One("AQID".to_owned()),
        tool: "read_file".to_owned(),
        args: None,
        pop: None,
    };
    let verified = client.verify_warrant(&forged).await.expect("a verdict");
    assert_eq!(verified.decision, "reject");

    let check = CheckLimitsInput {
        policy: Some("client".to_owned()),
        key: Some("a/b ü".to_owned()),
        ..CheckLimitsInput::default()
    };
    let limited = client.check_limits(&check).await.expect("a verdict");
    assert_eq!((limited.allowed, limited.remaining), (true, Some(99)));
    let policies = client.policies().await.expect("policies").policies;
    assert!(policies.iter().any(|policy| policy.policy == "client"));
    let name = "a/b ü".to_owned();
    let set = SetTierInput {
        client: name.clone(),
        tier: "batch".to_owned(),
        ..SetTierInput::default()
    };
    assert_eq!(client.set_tier(&set).await.expect("set").tier, "batch");
    let one = TierInput { client: name };
    let got = client.get_tier(&one).await.expect("a tier");
    let listed = client.tiers(ListTiersInput::default());
    let listed: Vec<TierRecord> = listed.try_collect().await.expect("a list");
    assert_eq!(listed, [got]);
    let cleared = client.clear_tier(&one).await.expect("cleared");
    assert_eq!(cleared.tier, "standard");
}
