//! Routes, mounted from the registry.

use std::sync::Arc;

use asyncgate_api::{Access, Code, Method, Spec};
use asyncgate_engine::{
    Answer, Authenticator, Caller, CorrId, Engine, Entry, Fault, Principal, Role, TenantId,
    registry,
};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header},
    routing::{MethodFilter, MethodRouter, get, on, post},
};

use crate::{
    error_response,
    errors::tell,
    input::{self, Input},
    openapi::openapi,
    stream,
};

/// The header that names a request in answers and in the log.
pub const CORR_ID: HeaderName = HeaderName::from_static("x-corr-id");

const DOCUMENT: &str = "/openapi.json";

/// The routes that stand beside those of the registry.
pub const PATHS: [&str; 2] = [stream::PATH, DOCUMENT];

/// How the facade is set up.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The largest body that is read.
    pub max_body_bytes: usize,
}

pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    auth: Arc<dyn Authenticator>,
    pub(crate) options: Options,
}

/// Every operation as a route, and the OpenAPI document.
pub fn router(engine: Arc<Engine>, auth: Arc<dyn Authenticator>, options: Options) -> Router {
    let app = Arc::new(App {
        engine,
        auth,
        options,
    });
    let mut router = Router::new();
    for entry in registry() {
        router = router.route(entry.spec.path, route(&app, entry));
    }
    let streaming = Arc::clone(&app);
    router = router.route(
        stream::PATH,
        post(move |request| stream::serve(Arc::clone(&streaming), request)),
    );
    let document: bytes::Bytes = openapi().to_string().into();
    let describing = Arc::clone(&app);
    let document = move |request: Request<Body>| {
        let mut response = json_response(StatusCode::OK, Body::from(document.clone()));
        stamp(&mut response, &describing.corr_id(request.headers()).text);
        std::future::ready(response)
    };
    let router = router.route(DOCUMENT, get(document));
    let not_found = Arc::clone(&app.engine);
    refuse_methods(router, Arc::clone(&app.engine)).fallback(move |request: Request<Body>| {
        let fault = Fault::new(Code::NotFound, "no such route");
        std::future::ready(refused(&not_found, &request, &fault))
    })
}

/// Gives the routes of `router` that have none an answer to methods that they do not take.
pub fn refuse_methods(router: Router, engine: Arc<Engine>) -> Router {
    router.method_not_allowed_fallback(move |request: Request<Body>| {
        let message = "this route does not take this method; see Allow";
        let fault = Fault::new(Code::MethodNotAllowed, message);
        std::future::ready(refused(&engine, &request, &fault))
    })
}

fn refused(engine: &Engine, request: &Request<Body>, fault: &Fault) -> Response<Body> {
    error_response(fault, &correlate(engine, request.headers()).text)
}

fn route(app: &Arc<App>, entry: &'static Entry) -> MethodRouter {
    let app = Arc::clone(app);
    let method = match entry.spec.method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Delete => MethodFilter::DELETE,
    };
    on(method, move |request: Request<Body>| {
        let app = Arc::clone(&app);
        async move { app.serve(entry, request).await }
    })
}

impl App {
    async fn serve(&self, entry: &Entry, request: Request<Body>) -> Response<Body> {
        let corr_id = self.corr_id(request.headers());
        let answering = async {
            match self.call(entry, request).await {
                Ok(answer) => success(entry.spec, answer, &corr_id.text),
                Err(fault) => error_response(&fault, &corr_id.text),
            }
        };
        corr_id.scope(answering).await
    }

    async fn call(&self, entry: &Entry, request: Request<Body>) -> Result<Answer, Fault> {
        let limit = entry.input_limit(&self.engine, self.options.max_body_bytes);
        let (caller, input) = self.receive(entry.spec, request, limit).await?;
        (entry.call)(&self.engine, &caller, input.source()).await
    }

    /// Who calls, and with what. What is wrong with either is called as the plane calls it.
    pub(crate) async fn receive(
        &self,
        spec: &Spec,
        request: Request<Body>,
        limit: usize,
    ) -> Result<(Caller, Input), Fault> {
        let (parts, body) = request.into_parts();
        let received = async {
            let caller = self.caller(spec, &parts.headers).await?;
            let (path, query) = (parts.uri.path(), parts.uri.query());
            let bodies = self.engine.settings().bodies;
            let headers = &parts.headers;
            let input = input::gather(spec, path, query, headers, body, limit, bodies).await?;
            Ok((caller, input))
        };
        received
            .await
            .map_err(|fault| self.engine.refuse(spec, fault))
    }

    async fn caller(&self, spec: &Spec, headers: &HeaderMap) -> Result<Caller, Fault> {
        if spec.access == Access::Open {
            return Ok(nobody());
        }
        self.auth.authenticate(bearer(headers)).await
    }

    /// The caller's correlation id if it is fit to be repeated, or a new one.
    pub(crate) fn corr_id(&self, headers: &HeaderMap) -> CorrId {
        correlate(&self.engine, headers)
    }
}

pub(crate) fn correlate(engine: &Engine, headers: &HeaderMap) -> CorrId {
    let given = headers.get(CORR_ID).and_then(|value| value.to_str().ok());
    engine.correlate(given)
}

/// Who calls an operation that is open to everyone. It has no rights.
fn nobody() -> Caller {
    Caller {
        tenant: TenantId::from_bytes([0; 16]),
        principal: Principal::system(),
        role: Role::Worker,
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credential) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| credential.trim())
}

fn success(spec: &Spec, answer: Answer, corr_id: &str) -> Response<Body> {
    let status = if answer.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let mut response = json_response(status, Body::from(answer.json));
    stamp(&mut response, corr_id);
    let headers = response.headers_mut();
    tell(headers, &answer.headers);
    if let Some(successor) = spec.successor {
        let link = format!("<{successor}>; rel=\"successor-version\"");
        headers.insert("x-asyncgate-deprecated", HeaderValue::from_static("true"));
        headers.insert("deprecation", HeaderValue::from_static("true"));
        if let Ok(link) = HeaderValue::from_str(&link) {
            headers.insert(header::LINK, link);
        }
    }
    response
}

/// Puts a correlation id on an answer.
pub fn stamp(response: &mut Response<Body>, corr_id: &str) {
    if let Ok(corr_id) = HeaderValue::from_str(corr_id) {
        response.headers_mut().insert(CORR_ID, corr_id);
    }
}

pub(crate) fn json_response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
