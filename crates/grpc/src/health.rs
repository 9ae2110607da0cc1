//! The standard health service: the server's readiness, for the whole and for the mailbox.

use std::{pin::Pin, sync::Arc, time::Duration};

use asyncgate_engine::Engine;
use futures_util::{Stream, stream};
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{self, HealthServer},
};

/// The services whose health can be asked for; the empty name is the whole server.
const SERVICES: [&str; 2] = ["", "ron.mailbox.v1.Mailbox"];

/// The time between two looks of a watcher.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) type Serving = Arc<dyn Fn() -> bool + Send + Sync>;

pub(crate) struct Health {
    engine: Arc<Engine>,
    serving: Serving,
}

impl Health {
    pub(crate) fn server(engine: Arc<Engine>, serving: Serving) -> HealthServer<Self> {
        HealthServer::new(Self { engine, serving })
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("no such service"));
        }
        Ok(Response::new(answer(now(&self.serving))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// Sends the health now and whenever it changes. The stream ends when the server drains, after the
    /// watcher has seen that it does.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = SERVICES.contains(&request.get_ref().service.as_str());
        let (engine, serving) = (Arc::clone(&self.engine), Arc::clone(&self.serving));
        let look = move || {
            if known {
                now(&serving)
            } else {
                ServingStatus::ServiceUnknown
            }
        };
        let changes = stream::unfold((None, false), move |(told, ended)| {
            let (engine, look) = (Arc::clone(&engine), look.clone());
            async move {
                if ended {
                    return None;
                }
                let mut draining = false;
                loop {
                    let status = look();
                    if Some(status) != told {
                        return Some((Ok(answer(status)), (Some(status), draining)));
                    }
                    if draining {
                        return None;
                    }
                    tokio::select! {
                        () = engine.drained() => draining = true,
                        () = tokio::time::sleep(LOOK_EVERY) => {}
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}

fn now(serving: &Serving) -> ServingStatus {
    if serving() {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}
