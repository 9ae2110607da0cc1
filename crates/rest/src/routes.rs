//! Routes, mounted from the registry.

use std::sync::{Arc, LazyLock};

use asyncgate_api::{Access, Code, Method, Plane, Spec};
use asyncgate_edge::{
    BodyLimits, add_headers, answer, correlate, error_response, json_response, keep_grant,
    request_context, set_corr_id,
};
use asyncgate_engine::{
    Answer, Authenticator, Caller, CorrId, Engine, Entry, Fault, Principal, Role, Scopes, TenantId,
    UserAgent, registry,
};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    routing::{MethodFilter, MethodRouter, get, on, post},
};
use bytes::Bytes;

use futures_util::future::BoxFuture;

use crate::{
    input::{self, Input},
    openapi::openapi,
    stream,
};

/// The path of the document.
pub(crate) const DOCUMENT: &str = "/openapi.json";
/// The document is the same for every router, and takes some time to make.
static DOCUMENT_TEXT: LazyLock<Bytes> = LazyLock::new(|| openapi().to_string().into());
/// The document changes only when the server is replaced, so clients may keep it for some minutes.
const DOCUMENT_CACHING: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The routes that stand beside those of the registry.
pub const PATHS: [&str; 2] = [stream::PATH, DOCUMENT];

/// The settings of the facade.
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

/// The facade. Cloning shares it.
#[derive(Clone)]
pub struct Rest(Arc<App>);

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rest").field(&self.0.options).finish()
    }
}

impl Rest {
    /// Sets up the facade of an engine.
    pub fn new(engine: Arc<Engine>, auth: Arc<dyn Authenticator>, options: Options) -> Self {
        Self(Arc::new(App {
            engine,
            auth,
            options,
        }))
    }

    /// Answers a request for an operation. A listener that knows the operation calls this instead of the router,
    /// which would look for it again.
    pub fn answer<'a>(
        &'a self,
        entry: &'static Entry,
        request: Request<Body>,
    ) -> BoxFuture<'a, Response<Body>> {
        // Boxed, because whoever moves the future of a connection would copy kilobytes, and because it would be compiled
        // where it is awaited.
        Box::pin(self.0.serve(entry, request))
    }

    /// Returns every operation as a route, and the OpenAPI document.
    pub fn router(&self) -> Router {
        let app = &self.0;
        let mut router = Router::new();
        for entry in registry() {
            router = router.route(entry.spec.path, route(app, entry));
        }
        let streaming = Arc::clone(app);
        router = router.route(
            stream::PATH,
            post(move |request| stream::serve(Arc::clone(&streaming), request)),
        );
        let describing = Arc::clone(app);
        let document = move |request: Request<Body>| {
            let mut response = json_response(StatusCode::OK, DOCUMENT_TEXT.clone());
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, DOCUMENT_CACHING);
            set_corr_id(&mut response, &describing.corr_id(request.headers()).text);
            std::future::ready(response)
        };
        let router = router.route(DOCUMENT, get(document));
        let not_found = Arc::clone(&app.engine);
        refuse_methods(router, Arc::clone(&app.engine)).fallback(move |request: Request<Body>| {
            let fault = Fault::new(Code::NotFound, "no such route");
            std::future::ready(refused(&not_found, &request, &fault))
        })
    }
}

/// Makes the routes of `router` answer with 405 to methods that they do not take.
pub fn refuse_methods(router: Router, engine: Arc<Engine>) -> Router {
    router.method_not_allowed_fallback(move |request: Request<Body>| {
        let message = "this route does not take this method; see Allow";
        let fault = Fault::new(Code::MethodNotAllowed, message);
        std::future::ready(refused(&engine, &request, &fault))
    })
}

fn refused(engine: &Engine, request: &Request<Body>, fault: &Fault) -> Response<Body> {
    let corr_id = correlate(request.headers(), || engine.corr_id());
    error_response(fault, &corr_id.text)
}

fn route(app: &Arc<App>, entry: &'static Entry) -> MethodRouter {
    let method = match entry.spec.method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    };
    let rest = Rest(Arc::clone(app));
    on(method, move |request: Request<Body>| {
        let rest = rest.clone();
        async move { rest.answer(entry, request).await }
    })
}

impl App {
    async fn serve(&self, entry: &Entry, request: Request<Body>) -> Response<Body> {
        let corr_id = self.corr_id(request.headers());
        if entry.spec.plane != Plane::Identity {
            return answer(&corr_id, self.call(entry, request)).await;
        }
        // The audit log tells of these. They are rare, so the box costs nothing.
        let agent = UserAgent::new(request_context(request.headers()).user_agent);
        let work = Box::pin(agent.scope(self.call(entry, request)));
        answer(&corr_id, work).await
    }

    async fn call(&self, entry: &Entry, request: Request<Body>) -> Result<Response<Body>, Fault> {
        let limit = entry.input_limit(&self.engine, self.options.max_body_bytes);
        let (caller, mut input) = self.receive(entry.spec, request, limit).await?;
        let answer = (entry.call)(&self.engine, &caller, input.source()).await?;
        Ok(success(entry.spec, answer))
    }

    /// Reads the caller and the input of a request, whose body may have `limit` bytes. A fault in
    /// either has the code that the operation's plane gives it.
    pub(crate) async fn receive(
        &self,
        spec: &Spec,
        request: Request<Body>,
        limit: usize,
    ) -> Result<(Caller, Input), Fault> {
        let (parts, body) = request.into_parts();
        let received = async {
            // The credential comes first: a stranger's body is not read.
            let caller = self.caller(spec, &parts.headers).await?;
            let limits = BodyLimits::new(&self.engine, limit).of(caller.tenant);
            match input::gather(spec, &parts, body, limits).await {
                Ok(input) => Ok((caller, input)),
                Err(mut fault) => {
                    let mut headers = self.engine.limit_headers(&caller).await;
                    headers.append(&mut fault.headers);
                    Err(Fault { headers, ..fault })
                }
            }
        };
        received
            .await
            .map_err(|fault| self.engine.refuse(spec, fault))
    }

    async fn caller(&self, spec: &Spec, headers: &HeaderMap) -> Result<Caller, Fault> {
        if spec.access == Access::Open {
            return Ok(nobody());
        }
        self.auth.authenticate(&request_context(headers)).await
    }

    /// Waits for the end of the credential in these headers.
    pub(crate) fn until_ended(&self, headers: &HeaderMap) -> BoxFuture<'static, ()> {
        self.auth.until_ended(&request_context(headers))
    }

    pub(crate) fn corr_id(&self, headers: &HeaderMap) -> CorrId {
        correlate(headers, || self.engine.corr_id())
    }
}

/// The caller of an operation that is open to everyone. It has no rights.
fn nobody() -> Caller {
    Caller {
        scopes: Scopes::NONE,
        ..Caller::new(
            TenantId::from_bytes([0; 16]),
            Principal::system(),
            Role::Worker,
        )
    }
}

fn success(spec: &Spec, answer: Answer) -> Response<Body> {
    let status = if answer.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let body = match answer.grant {
        Some(grant) => keep_grant(answer.json, grant).into(),
        None => Body::from(answer.json),
    };
    let mut response = json_response(status, body);
    let headers = response.headers_mut();
    add_headers(headers, &answer.headers);
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
