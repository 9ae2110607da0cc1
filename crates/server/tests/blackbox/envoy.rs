//! Envoy's rate limit service on the port of everything else, by a generated client.

use asyncgate_grpc::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, rate_limit::Unit},
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::grpc::{channel, keyed};
use crate::harness::{Launch, Server};

pub const SETTINGS: &str = r#"
[limits.policies.login]
kind = "fixed_window"
limit = 2
window_secs = 86400
[limits.policies.tried]
kind = "fixed_window"
limit = 1
window_secs = 86400
shadow = true
[limits.envoy.edge]
"remote_address" = "client"
"generic_key=login,remote_address" = "login"
"generic_key=tried" = "tried"
"#;

fn start() -> Server {
    Launch::new().file("s.toml", SETTINGS).start()
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        hits_addend: None,
    }
}

pub fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

pub fn login(from: &str) -> RateLimitDescriptor {
    descriptor(&[("generic_key", "login"), ("remote_address", from)])
}

pub async fn ask(server: &Server, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let mut client: RateLimitServiceClient<Channel> = RateLimitServiceClient::new(channel(server));
    let answer = client.should_rate_limit(keyed(request)).await?;
    Ok(answer.into_inner())
}

fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut headers = response.response_headers_to_add.iter();
    let found = headers.find(|header| header.key == name);
    found.map(|header| header.value.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_is_limited_until_it_is_over() {
    let server = start();
    for left in [1, 0] {
        let response = ask(&server, request(vec![login("10.0.0.1")]))
            .await
            .unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        let status = &response.statuses[0];
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, left));
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!(limit.name, "login");
        assert_eq!((limit.requests_per_unit, limit.unit()), (2, Unit::Day));
        let reset = status.duration_until_reset.as_ref().unwrap().seconds;
        assert!((0..=86_400).contains(&reset), "{reset}");
        assert_eq!(header(&response, "retry-after"), None);
    }
    let over = ask(&server, request(vec![login("10.0.0.1")]))
        .await
        .unwrap();
    assert_eq!(over.overall_code(), Code::OverLimit);
    assert_eq!(over.statuses[0].code(), Code::OverLimit);
    assert_eq!(header(&over, "x-ratelimit-limit"), Some("2"));
    assert_eq!(header(&over, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(header(&over, "x-ratelimit-bucket"), Some("login:10.0.0.1"));
    assert_eq!(
        header(&over, "ratelimit-policy"),
        Some("\"login\";q=2;w=86400")
    );
    let wait: u64 = header(&over, "retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    let other = ask(&server, request(vec![login("10.0.0.2")]))
        .await
        .unwrap();
    assert_eq!(other.overall_code(), Code::Ok);
    // Who asks over REST by the same policy and key meets the same limit.
    let asked = json!({ "policy": "login", "key": "10.0.0.1" });
    let rest = server.post("/v1/limits/check", &asked).expect(200);
    assert_eq!(rest["allowed"], false);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_are_charged_all_or_none() {
    let server = start();
    let client = descriptor(&[("remote_address", "10.0.0.1")]);
    let unknown = descriptor(&[("nobody", "limits this")]);
    let all = || request(vec![unknown.clone(), login("10.0.0.1"), client.clone()]);
    let heavy = RateLimitRequest {
        hits_addend: 2,
        ..all()
    };
    let first = ask(&server, heavy).await.unwrap();
    let codes = |response: &RateLimitResponse| -> Vec<Code> {
        response
            .statuses
            .iter()
            .map(|status| status.code())
            .collect()
    };
    assert_eq!(codes(&first), [Code::Ok; 3]);
    assert_eq!(first.statuses[0].current_limit, None);
    assert_eq!(first.statuses[1].limit_remaining, 0);
    assert_eq!(first.statuses[2].limit_remaining, 98);
    let second = ask(&server, all()).await.unwrap();
    assert_eq!(second.overall_code(), Code::OverLimit);
    assert_eq!(codes(&second), [Code::Ok, Code::OverLimit, Code::Ok]);
    assert_eq!(
        header(&second, "x-ratelimit-bucket"),
        Some("login:10.0.0.1")
    );
    let look = RateLimitDescriptor {
        hits_addend: Some(0),
        ..client.clone()
    };
    let looked = ask(&server, request(vec![look])).await.unwrap();
    assert_eq!(looked.overall_code(), Code::Ok);
    assert_eq!(looked.statuses[0].limit_remaining, 98);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_limits_is_allowed_and_what_is_tried_out_too() {
    let server = start();
    for _ in 0..3 {
        let tried = descriptor(&[("generic_key", "tried")]);
        let response = ask(&server, request(vec![tried])).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        let elsewhere = RateLimitRequest {
            domain: "elsewhere".to_owned(),
            ..request(vec![login("10.0.0.1")])
        };
        let response = ask(&server, elsewhere).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        assert!(response.response_headers_to_add.is_empty());
    }
    // A domain without a table is the name of a policy.
    let named = RateLimitRequest {
        domain: "throttled".to_owned(),
        hits_addend: 11,
        ..request(vec![descriptor(&[("user", "7")])])
    };
    let response = ask(&server, named).await.unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_decided_is_an_error() {
    let server = start();
    let no_domain = RateLimitRequest {
        domain: String::new(),
        ..request(vec![login("10.0.0.1")])
    };
    let many = vec![login("10.0.0.1"); 33];
    for request in [no_domain, request(Vec::new()), request(many)] {
        let refused = ask(&server, request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    }
    let mut client = RateLimitServiceClient::new(channel(&server));
    let unknown = Request::new(request(vec![login("10.0.0.1")]));
    let refused = client.should_rate_limit(unknown).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    server.stop();
}
