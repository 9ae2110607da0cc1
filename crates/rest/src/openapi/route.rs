//! One route of the document, whichever list it comes from.

use asyncgate_api::Code;
use serde_json::{Map, Value, json};

use super::components::Components;

pub(super) const TASKS: &str = "tasks";
pub(super) const MAILBOX: &str = "mailbox";
pub(super) const ADMISSION: &str = "admission";
pub(super) const IDENTITY: &str = "identity";
pub(super) const INGRESS: &str = "ingress";
pub(super) const DOMAINS: &str = "domains";
pub(super) const SERVER: &str = "server";

/// The name of the usual credential.
pub(super) const BEARER: &str = "bearer";
/// The name of the credential of senders that sign.
const SIGNATURE: &str = "signature";

/// The credential that a route wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credential {
    Key,
    Signature,
    None,
}

/// A method and a path, and what they take and answer.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) path: &'static str,
    /// In lower case.
    pub(super) method: &'static str,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: String,
    pub(super) deprecated: bool,
    pub(super) credential: Credential,
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Body>,
    pub(super) answers: Vec<Answer>,
    /// The codes of its error answers.
    pub(super) codes: Vec<Code>,
}

/// A JSON body that a route takes.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) schema: Value,
    pub(super) required: bool,
    pub(super) example: Option<Value>,
}

/// An answer that is not described by a code.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) media: &'static str,
    pub(super) schema: Value,
}

pub(super) const JSON: &str = "application/json";

impl Answer {
    /// Builds a success in JSON.
    pub(super) const fn done(schema: Value) -> Self {
        Self {
            status: 200,
            description: "Done",
            media: JSON,
            schema,
        }
    }
}

impl Route {
    /// Returns the operation object of the document.
    pub(super) fn describe(self, components: &mut Components) -> Value {
        let mut responses = components.refusals(&self.codes);
        for answer in &self.answers {
            responses.insert(answer.status.to_string(), answer.describe());
        }
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "description": self.description,
            "responses": responses,
        });
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.into();
        }
        if let Some(body) = self.body {
            operation["requestBody"] = body.describe();
        }
        if self.deprecated {
            operation["deprecated"] = true.into();
        }
        match self.credential {
            Credential::Key => {}
            Credential::Signature => operation["security"] = json!([{ SIGNATURE: [] }]),
            Credential::None => operation["security"] = json!([]),
        }
        operation
    }
}

impl Body {
    fn describe(self) -> Value {
        let mut content = json!({ "schema": self.schema });
        if let Some(example) = self.example {
            content["example"] = example;
        }
        json!({ "required": self.required, "content": { JSON: content } })
    }
}

impl Answer {
    fn describe(&self) -> Value {
        json!({
            "description": self.description,
            "headers": { "X-Corr-Id": { "$ref": "#/components/headers/CorrId" } },
            "content": { self.media: { "schema": self.schema } },
        })
    }
}

/// Describes a field that travels in the path, the query or a header.
pub(super) fn parameter(place: &str, name: &str, required: bool, mut schema: Value) -> Value {
    let description = schema
        .as_object_mut()
        .and_then(|it| it.remove("description"));
    let mut parameter =
        json!({ "name": name, "in": place, "required": required, "schema": schema });
    if let Some(description) = description {
        parameter["description"] = description;
    }
    parameter
}

/// Returns the headers of answers that have names.
pub(super) fn headers() -> Value {
    json!({
        "CorrId": {
            "description": "The correlation id of the request.",
            "schema": { "type": "string" },
        },
        "RetryAfter": {
            "description": "Seconds after which to try again.",
            "schema": { "type": "integer", "format": "int64", "minimum": 0 },
        },
    })
}

/// Returns the ways to show who one is.
pub(super) fn security_schemes() -> Value {
    let mut schemes = Map::new();
    schemes.insert(
        BEARER.to_owned(),
        json!({ "type": "http", "scheme": "bearer", "description": "An API key." }),
    );
    schemes.insert(
        SIGNATURE.to_owned(),
        json!({
            "type": "apiKey",
            "in": "header",
            "name": "X-Signature-256",
            "description": "`sha256=` and the HMAC-SHA256 of the raw body, in hexadecimal digits.",
        }),
    );
    schemes.into()
}
