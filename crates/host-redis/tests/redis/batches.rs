//! Callers who ask at the same time share a call of a script, and their answers do not show it.

use std::{collections::HashMap, convert::Infallible};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, Bucket, LimitCheck, MILLIONTHS, Name, NonceCheck, Row, Rule, Verdicts, decide,
    },
};
use asyncgate_host_redis::RedisHost;
use asyncgate_store::{Error, admission::Host};
use futures_util::future::join_all;

use crate::servers::{Server, available, connected};

const TENANT: TenantId = TenantId::from_bytes([3; 16]);

fn nonce(name: &str) -> Asks {
    let nonces = vec![NonceCheck {
        namespace: [1; 32],
        nonce: name.as_bytes().to_vec(),
        ttl_secs: 60,
    }];
    Asks {
        nonces,
        ..Asks::default()
    }
}

/// Asks for tokens of a bucket that holds three and refills one a minute.
fn bucket(key: &str, cost: i64, shadow: bool) -> Asks {
    let bucket = Bucket::per_minute(3, MILLIONTHS).unwrap();
    let limits = vec![LimitCheck {
        policy: "p".into(),
        key: key.to_owned(),
        rule: Rule::Bucket(bucket.with_overdraw(key == "b1")),
        cost,
        shadow,
    }];
    Asks {
        limits,
        ..Asks::default()
    }
}

/// Returns the number of scripts that the server has run.
async fn scripts(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).await.unwrap();
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// Questions of one batch are decided in their order, so the rule can predict all answers.
#[tokio::test]
async fn many_at_once_are_answered_as_one_after_the_other() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::simulated(server.address()).unwrap()).await;
    let mut rows: HashMap<(TenantId, Name), Row> = HashMap::new();
    for round in 0..60_i64 {
        let now = Timestamp::from_millis(1_731_690_000_000 + round * 17_000);
        let asks = (0..40_i64).map(|n| match (n * 7 + round) % 5 {
            0 => nonce(&format!("n{}", (n + round) % 90)),
            1 => bucket("b1", n % 4, false),
            2 => bucket("b2", 1 - n % 3, n % 2 == 0),
            other => bucket(&format!("b{}", n % 6), other - 2, n % 11 == 0),
        });
        // Several tenants share a script as well.
        let tenants = (0..).map(|n: u8| TenantId::from_bytes([n % 3; 16]));
        let asks: Vec<(TenantId, Asks)> = tenants.zip(asks).collect();
        let mut predicted: Vec<Result<Verdicts, Error>> = Vec::new();
        for (tenant, one) in &asks {
            let load = |name| Ok::<_, Infallible>(rows.get(&(*tenant, name)).copied());
            let Ok(decision) = decide(*tenant, now, one, load);
            let written = decision.rows.into_iter();
            rows.extend(written.map(|(name, row)| ((*tenant, name), row)));
            predicted.push(Ok(decision.verdicts));
        }
        let before = scripts(&server).await;
        let asks = asks.into_iter();
        let answers = asks.map(|(tenant, one)| host.admit(tenant, now, one));
        assert_eq!(join_all(answers).await, predicted, "round {round}");
        let ran = scripts(&server).await - before;
        assert!(ran <= 3, "{ran} scripts for 40 questions");
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_an_error_for_its_caller_only() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    let ask = |asks: Asks| host.admit(TENANT, Timestamp::default(), asks);
    assert!(ask(nonce("n0")).await.unwrap().passed());
    let keys = server.command(&["RANDOMKEY"]).await.unwrap();
    let key = keys.lines().nth(1).unwrap();
    server.command(&["SET", key, "1"]).await.unwrap();
    let asked = (0..20).map(|n| ask(nonce(&format!("n{n}"))));
    for (n, answer) in join_all(asked).await.into_iter().enumerate() {
        match n {
            0 => assert!(matches!(answer, Err(Error::Corrupt(_))), "{answer:?}"),
            n => assert!(answer.unwrap().passed(), "nonce {n} is new"),
        }
    }
}

#[tokio::test]
async fn tenants_do_not_share_rows() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    let asked = (0..40_u8).map(|n| {
        let tenant = TenantId::from_bytes([n / 2; 16]);
        host.admit(tenant, Timestamp::default(), nonce("same"))
    });
    let answers = join_all(asked).await.into_iter();
    let passed: Vec<bool> = answers.map(|it| it.unwrap().passed()).collect();
    assert_eq!(passed, [true, false].repeat(20));
}
