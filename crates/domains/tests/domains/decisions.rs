//! From body to answer: the order of checks, the words, and the stored state.

use asyncgate_domains::{Answer, Compat, Kind, Poprf, Rules, SecretKey, State};
use serde_json::{Value, json};

use crate::{ADDRESS, domain, key, none, rules, sign, some, stage, unsigned};

const NOW: i64 = 1_700_000_000;

fn mine() -> Value {
    domain(ADDRESS, &json!([stage(0, 2, 1), stage(60, 1, 1)]))
}

fn signed(kind: Kind, domain: &Value, nonce: u64) -> Value {
    sign(kind, unsigned(kind, domain, nonce), &key(0xdead_beef))
}

/// Sends a body to a server that keeps one state.
struct Server {
    rules: Rules,
    state: Option<State>,
    now: i64,
}

impl Server {
    fn new(rules: Rules) -> Self {
        let (state, now) = (None, NOW);
        Self { rules, state, now }
    }

    fn send(&mut self, kind: Kind, body: &Value, version: Option<&str>) -> Answer {
        let admitted = match self.rules.admit(kind, body.to_string().as_bytes(), version) {
            Ok(admitted) => admitted,
            Err(problem) => return self.rules.refuse(problem),
        };
        let decision = admitted.decide(self.state, self.now);
        if let Some(state) = decision.state {
            assert!(admitted.writes());
            self.state = Some(state);
        }
        self.rules.respond(&admitted, &decision)
    }

    /// Returns the code, the error's first word, and the retry.
    fn outcome(&mut self, kind: Kind, body: &Value) -> (u16, String, Option<u64>) {
        let answer = self.send(kind, body, None);
        let error = answer.body.error.unwrap_or("-");
        let word = error.split(' ').next().unwrap_or_default().to_owned();
        (answer.code, word, answer.retry_after)
    }
}

fn refused(code: u16, number: &str, retry: Option<u64>) -> (u16, String, Option<u64>) {
    (code, format!("CELO_ODIS_{number}"), retry)
}

fn served() -> (u16, String, Option<u64>) {
    (200, "-".to_owned(), None)
}

#[test]
fn a_domain_from_its_first_attempt_to_its_end() {
    let mut server = Server::new(rules(Compat::Odis));
    let status = signed(Kind::QuotaStatus, &mine(), 0);
    assert_eq!(server.outcome(Kind::QuotaStatus, &status), served());
    assert_eq!(server.state, None, "looking stores nothing");

    for nonce in [0, 5] {
        let attempt = signed(Kind::Sign, &mine(), nonce);
        assert_eq!(server.outcome(Kind::Sign, &attempt), served());
    }
    assert_eq!(
        server.state.unwrap().counter,
        2,
        "the counter counts, whatever the nonce"
    );
    let third = signed(Kind::Sign, &mine(), 2);
    let early = refused(429, "WARN_03", Some(60));
    assert_eq!(server.outcome(Kind::Sign, &third), early);
    server.now += 59;
    assert_eq!(
        server.outcome(Kind::Sign, &third),
        refused(429, "WARN_03", Some(1))
    );
    server.now += 1;
    assert_eq!(server.outcome(Kind::Sign, &third), served());
    assert_eq!(
        server.outcome(Kind::Sign, &third),
        refused(401, "WARN_16", None),
        "a replay"
    );
    let fourth = signed(Kind::Sign, &mine(), 3);
    assert_eq!(
        server.outcome(Kind::Sign, &fourth),
        refused(429, "WARN_03", None)
    );

    let before = server.state.unwrap();
    let disable = signed(Kind::Disable, &mine(), 0);
    for _ in 0..2 {
        assert_eq!(server.outcome(Kind::Disable, &disable), served());
    }
    let after = State {
        disabled: true,
        ..before
    };
    assert_eq!(server.state, Some(after));
}

#[test]
fn answers_are_written_as_the_deployed_signer_writes_them() {
    let mut server = Server::new(rules(Compat::Odis));
    let disable = signed(Kind::Disable, &mine(), 0);
    let answer = server.send(Kind::Disable, &disable, None);
    assert_eq!(
        serde_json::to_string(&answer.body).unwrap(),
        format!(
            r#"{{"success":true,"version":"1.2.3","status":{{"timer":0,"counter":0,"disabled":true,"now":{NOW}}}}}"#
        )
    );
    let answer = server.send(Kind::Sign, &signed(Kind::Sign, &mine(), 0), None);
    assert_eq!(
        serde_json::to_string(&answer.body).unwrap(),
        format!(
            r#"{{"success":false,"version":"1.2.3","error":"CELO_ODIS_WARN_03 QUOTA Requester exceeded service query quota","status":{{"timer":0,"counter":0,"disabled":true,"now":{NOW}}}}}"#
        )
    );
    let answer = server.send(Kind::Sign, &json!({}), None);
    assert_eq!(
        serde_json::to_string(&answer.body).unwrap(),
        r#"{"success":false,"version":"1.2.3","error":"CELO_ODIS_WARN_01 BAD_INPUT Invalid input parameters"}"#
    );
}

#[test]
fn what_is_refused_first() {
    let mut server = Server::new(rules(Compat::Odis));
    // Everything is wrong at first, and is corrected one thing at a time.
    let mut body = unsigned(Kind::Sign, &mine(), 0);
    body["options"]["nonce"] = none(0);
    body["blindedMessage"] = "".into();
    server.state = Some(State {
        timer: NOW,
        counter: 3,
        disabled: true,
    });
    let refusal = |answer: Answer| (answer.code, answer.body.error.unwrap()[10..17].to_owned());
    let expect = |code: u16, word: &str| (code, word.to_owned());

    let answer = server.send(Kind::Sign, &body, Some("x"));
    assert_eq!(refusal(answer), expect(400, "WARN_01"));
    body["blindedMessage"] = "m".into();
    let answer = server.send(Kind::Sign, &body, Some("x"));
    assert_eq!(refusal(answer), expect(400, "WARN_12"));
    let answer = server.send(Kind::Sign, &body, Some("7"));
    assert!(
        answer.body.status.is_none(),
        "a stranger learns nothing of the state"
    );
    assert_eq!(refusal(answer), expect(401, "WARN_02"));
    let body = sign(Kind::Sign, body, &key(0xdead_beef));
    let answer = server.send(Kind::Sign, &body, Some("7"));
    assert!(answer.body.status.is_some());
    assert_eq!(refusal(answer), expect(401, "WARN_16"));
    let body = signed(Kind::Sign, &mine(), 3);
    let answer = server.send(Kind::Sign, &body, Some("7"));
    assert_eq!(refusal(answer), expect(429, "WARN_03"));
    assert_eq!(server.state.unwrap().counter, 3);
}

#[test]
fn only_the_holder_of_the_key_is_served() {
    for kind in [Kind::Sign, Kind::QuotaStatus, Kind::Disable] {
        let stranger = sign(kind, unsigned(kind, &mine(), 0), &key(0xbad5_16e9));
        let mut wider = signed(kind, &mine(), 0);
        wider["domain"]["stages"][0]["batchSize"] = some(100);
        let nobody = sign(
            kind,
            {
                let mut body = unsigned(kind, &mine(), 0);
                body["domain"]["address"] = none(ADDRESS);
                body
            },
            &key(0xdead_beef),
        );
        let mut garbage = signed(kind, &mine(), 0);
        garbage["options"]["signature"] = some("<signature>");
        for body in [unsigned(kind, &mine(), 0), stranger, wider, nobody, garbage] {
            let mut server = Server::new(rules(Compat::Odis));
            assert_eq!(server.outcome(kind, &body), refused(401, "WARN_02", None));
            assert_eq!(server.state, None);
        }
    }
}

#[test]
fn every_field_is_covered_by_the_signature() {
    let good = signed(Kind::Sign, &mine(), 0);
    for (path, value) in [
        ("/blindedMessage", json!("other")),
        ("/sessionID", some("s")),
        ("/sessionID/value", json!("s")),
        ("/options/nonce/value", json!(1)),
        ("/options/nonce/defined", json!(false)),
        ("/domain/salt/value", json!("s")),
        ("/domain/salt/defined", json!(true)),
        ("/domain/stages", json!([])),
        ("/domain/stages/0/delay", json!(1)),
        ("/domain/stages/0/resetTimer/defined", json!(true)),
        ("/domain/stages/0/resetTimer/value", json!(true)),
        ("/domain/stages/0/batchSize/value", json!(3)),
        ("/domain/stages/0/batchSize/defined", json!(false)),
        ("/domain/stages/1/repetitions/value", json!(3)),
        ("/domain/stages/1/repetitions/defined", json!(false)),
        (
            "/domain/address/value",
            json!("0x6482280b5fA5F8B3Ba58D8C1a9D90c04f3d9D30C"),
        ),
    ] {
        let mut body = good.clone();
        *body.pointer_mut(path).unwrap() = value;
        let mut server = Server::new(rules(Compat::Odis));
        assert_eq!(
            server.outcome(Kind::Sign, &body),
            refused(401, "WARN_02", None),
            "{path}"
        );
    }
    // Upper and lower case of an address are the same, so the hash does not cover them.
    let mut body = good;
    body["domain"]["address"]["value"] = ADDRESS.to_lowercase().into();
    assert_eq!(
        Server::new(rules(Compat::Odis)).outcome(Kind::Sign, &body),
        served()
    );
}

#[test]
fn a_signature_is_good_for_one_kind_of_request() {
    let mut body = signed(Kind::QuotaStatus, &mine(), 0);
    body["type"] = Kind::Disable.tag().into();
    let mut server = Server::new(rules(Compat::Odis));
    assert_eq!(
        server.outcome(Kind::Disable, &body),
        refused(401, "WARN_02", None)
    );
}

#[test]
fn by_the_text_of_cip_40() {
    let mut server = Server::new(rules(Compat::Cip40));
    let mut domain = mine();
    let odis = signed(Kind::Sign, &domain, 0);
    assert_eq!(
        server.outcome(Kind::Sign, &odis),
        refused(400, "WARN_01", None)
    );

    domain["name"] = "Sequential Delay Domain".into();
    let first = signed(Kind::Sign, &domain, 1);
    assert_eq!(server.outcome(Kind::Sign, &first), served());
    assert_eq!(
        server.state.unwrap().counter,
        2,
        "the counter follows the nonce"
    );
    assert_eq!(
        server.outcome(Kind::Sign, &first),
        refused(401, "WARN_16", None),
        "a replay"
    );

    let disable = signed(Kind::Disable, &domain, 0);
    assert_eq!(server.outcome(Kind::Disable, &disable), served());
    let next = signed(Kind::Sign, &domain, 2);
    assert_eq!(
        server.outcome(Kind::Sign, &next),
        refused(403, "WARN_11", None)
    );
}

fn poprf() -> Rules {
    let key = |info: &[u8]| SecretKey::derive(&[7; 32], info).unwrap();
    let keys = vec![(3, key(b"new")), (1, key(b"old"))];
    Rules {
        evaluator: Box::new(Poprf::new(keys).unwrap()),
        ..rules(Compat::Odis)
    }
}

/// The base point of the group, which is as good an element as any.
const ELEMENT: &str = "4vKuCmq8TnGohKlhxQBRX1jjC2qlgt2NtqZZReCNLXY=";

fn attempt(message: &str) -> Value {
    let mut body = unsigned(Kind::Sign, &mine(), 0);
    body["blindedMessage"] = message.into();
    sign(Kind::Sign, body, &key(0xdead_beef))
}

#[test]
fn an_attempt_buys_an_evaluation() {
    let mut answers = Vec::new();
    for (version, used) in [
        (None, 3),
        (Some("3"), 3),
        (Some(" 1 "), 1),
        (Some("undefined"), 3),
        (Some(""), 3),
    ] {
        let answer = Server::new(poprf()).send(Kind::Sign, &attempt(ELEMENT), version);
        assert_eq!(
            (answer.code, answer.key_version),
            (200, Some(used)),
            "{version:?}"
        );
        let signature = answer.body.signature.unwrap();
        assert_eq!(signature.len(), 128, "96 bytes in base64");
        answers.push((used, signature));
    }
    for (used, signature) in &answers {
        for (other, evaluated) in &answers {
            assert_eq!(used == other, signature == evaluated);
        }
    }
    let keys = poprf().evaluator.keys();
    assert_eq!(
        keys.iter().map(|key| key.version).collect::<Vec<_>>(),
        [1, 3]
    );
}

#[test]
fn what_cannot_be_evaluated_costs_no_attempt() {
    for version in ["2", "-1", "1.5", "x", "99999999999999999999"] {
        let mut server = Server::new(poprf());
        let answer = server.send(Kind::Sign, &attempt(ELEMENT), Some(version));
        assert_eq!((answer.code, server.state), (400, None), "{version}");
    }
    let identity = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let not_canonical = "/////////////////////////////////////////38=";
    for message in [
        "",
        "x",
        "AAAA",
        identity,
        not_canonical,
        ELEMENT.trim_end_matches('='),
    ] {
        let mut server = Server::new(poprf());
        assert_eq!(
            server.outcome(Kind::Sign, &attempt(message)),
            refused(400, "WARN_01", None)
        );
        assert_eq!(server.state, None);
    }
}

#[test]
fn a_poprf_has_keys_and_one_of_each_version() {
    let key = SecretKey::derive(&[7; 32], b"").unwrap();
    assert!(Poprf::new(Vec::new()).is_none());
    assert!(Poprf::new(vec![(1, key.clone()), (1, key)]).is_none());
}
