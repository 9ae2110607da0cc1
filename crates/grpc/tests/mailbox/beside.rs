//! The standard services: health and reflection.

use std::sync::atomic::Ordering;

use tonic::{Code, Request};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::{v1, v1alpha};

use crate::world::World;

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn health_follows_the_servers() {
    let world = World::new();
    let mut client = HealthClient::new(world.router.clone());
    for service in ["", "ron.mailbox.v1.Mailbox"] {
        world.serving.store(true, Ordering::Relaxed);
        let healthy = client.check(about(service)).await.unwrap().into_inner();
        assert_eq!(healthy.status(), ServingStatus::Serving);
        world.serving.store(false, Ordering::Relaxed);
        let ill = client.check(about(service)).await.unwrap().into_inner();
        assert_eq!(ill.status(), ServingStatus::NotServing);
    }
    let unknown = client.check(about("other")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_is_told_of_changes_and_let_go_by_a_drain() {
    let world = World::new();
    let mut client = HealthClient::new(world.router.clone());
    let mut watched = client.watch(about("")).await.unwrap().into_inner();
    let first = watched.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    world.serving.store(false, Ordering::Relaxed);
    let next = watched.message().await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::NotServing);
    world.engine.drain();
    assert_eq!(watched.message().await.unwrap(), None);
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    let world = World::new();
    let expected = [
        "grpc.health.v1.Health",
        "ron.mailbox.v1.Mailbox",
        "envoy.service.ratelimit.v3.RateLimitService",
    ];

    let mut client =
        v1::server_reflection_client::ServerReflectionClient::new(world.router.clone());
    let ask = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
    };
    let asked = futures_util::stream::iter([ask]);
    let answers = client
        .server_reflection_info(Request::new(asked))
        .await
        .unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    let Some(v1::server_reflection_response::MessageResponse::ListServicesResponse(list)) =
        answer.message_response
    else {
        panic!("a list")
    };
    let names: Vec<&str> = list.service.iter().map(|s| s.name.as_str()).collect();
    for name in expected {
        assert!(names.contains(&name), "{names:?}");
    }

    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(world.router.clone());
    let ask = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                "ron.mailbox.v1.Mailbox.Send".to_owned(),
            ),
        ),
    };
    let asked = futures_util::stream::iter([ask]);
    let answers = client
        .server_reflection_info(Request::new(asked))
        .await
        .unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    assert!(
        matches!(
            answer.message_response,
            Some(v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_))
        ),
        "{answer:?}"
    );
}
