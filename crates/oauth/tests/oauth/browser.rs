//! A browser that keeps cookies, goes where forms and redirects lead when it is told to, and runs no script.

use std::collections::BTreeMap;

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, Response, StatusCode, header},
};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// The address of the server in the tests.
pub const BASE: &str = "http://gate.test:8080";

pub struct Browser {
    router: Router,
    pub cookies: BTreeMap<String, String>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Returns where the browser is sent, and with which parameters.
    pub fn redirect(&self) -> (String, BTreeMap<String, String>) {
        assert!(self.status.is_redirection(), "{self:?}");
        let location = self.header("location");
        let (address, query) = location.split_once('?').unwrap_or((location, ""));
        (address.to_owned(), parse(query))
    }

    /// Returns the error of OAuth, as the body tells it.
    pub fn error(&self) -> String {
        let body = self.json();
        assert_eq!(body["message"], body["error_description"], "{body}");
        assert!(body["code"].is_string() && body["corr_id"].is_string());
        body["error"].as_str().unwrap().to_owned()
    }

    /// Returns the value of a hidden field of the page.
    pub fn hidden(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let from = self.body.find(&start).unwrap() + start.len();
        let rest = &self.body[from..];
        rest[..rest.find('"').unwrap()].to_owned()
    }
}

pub fn parse(query: &str) -> BTreeMap<String, String> {
    serde_urlencoded::from_str(query).unwrap()
}

pub fn encode(pairs: &[(&str, &str)]) -> String {
    serde_urlencoded::to_string(pairs).unwrap()
}

impl Browser {
    pub fn new(router: &Router) -> Self {
        Self {
            router: router.clone(),
            cookies: BTreeMap::new(),
        }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        let request = Request::get(path);
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Answer {
        let request =
            Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(encode(form).into()).unwrap()).await
    }

    /// Sends a request with the cookies, and keeps those that come back.
    pub async fn send(&mut self, mut request: Request<Body>) -> Answer {
        let jar: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let headers = request.headers_mut();
        headers.insert(header::HOST, "gate.test:8080".parse().unwrap());
        if !jar.is_empty() {
            headers.insert(header::COOKIE, jar.join("; ").parse().unwrap());
        }
        let response = self.router.clone().oneshot(request).await.unwrap();
        let answer = read(response).await;
        for line in answer.headers.get_all(header::SET_COOKIE) {
            let line = line.to_str().unwrap();
            assert!(
                line.contains("HttpOnly") && line.contains("SameSite=Lax"),
                "{line}"
            );
            let (pair, attributes) = line.split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            match attributes.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        answer
    }
}

async fn read(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}
