//! The forms of fields: what a schema says of a value beyond its type.
//!
//! A word means one thing in every operation, so a field has its form by its name ([`Forms`]). A field whose
//! form is another says so itself, in attributes, which count more. The numbers are those of
//! [`bounds`](crate::bounds), which the engine checks.

use schemars::{
    JsonSchema, Schema, json_schema,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

use crate::bounds::{
    MAX_ADMISSION_SECS, MAX_HOURLY_QUOTA, MAX_NAME_BYTES, MAX_NAMES, MAX_NONCE_BYTES, MAX_QUOTA,
    MAX_TEXT_BYTES, MAX_VISIBILITY_MS, MAX_WAIT_SECONDS, MIN_VISIBILITY_MS,
};

/// The pattern of a text without control characters.
pub(crate) const VISIBLE: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// The pattern of a task's id or of its short form.
pub(crate) const TASK: &str = "^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[4-9a-fA-F][0-9a-fA-F]{4}|[1-9a-fA-F][0-9a-fA-F]{5,11})$";
/// The pattern of a message's id.
pub(crate) const ULID: &str = "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$";
/// The pattern of thirty-two bytes in hexadecimal digits.
pub(crate) const HEX64: &str = "^[0-9a-f]{64}$";
/// The pattern of bytes in base64url without padding.
pub(crate) const BASE64URL: &str =
    "^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw]|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048])?$";
/// The pattern of 64 bytes in base64url without padding.
pub(crate) const BASE64URL_64_BYTES: &str = "^[A-Za-z0-9_-]{85}[AQgw]$";
/// The pattern of the id of a warrant.
pub(crate) const WARRANT_ID: &str =
    "^((tnu_wrt_)?[0-9a-f]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$";
/// The pattern of the place where a page of revocations ended.
pub(crate) const REVOCATION: &str = "^(warrant_id|issuer_key|holder_key)/[0-9a-f]{64}$";
/// The pattern of most addresses to which codes of OAuth may be sent; those with an IPv6 address and https are left out.
pub(crate) const REDIRECT_URI: &str = concat!(
    r"^(https://[A-Za-z0-9.-]+|http://(localhost|127\.0\.0\.1|\[::1\]))",
    r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?",
    r"([/?][A-Za-z0-9!$%&'()*+,./:;=?@_~-]*)?$",
);
/// The pattern of a tenant's id, or of the word for the server's own log.
pub(crate) const TENANT_OR_NONE: &str =
    "^(none|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$";
/// The pattern of an e-mail address, as far as it is looked at.
pub(crate) const EMAIL: &str = r"^[^\x00-\x20\x7f-\x9f@]+@[^\x00-\x20\x7f-\x9f@]+$";
/// The pattern of a place in an audit log.
pub(crate) const PLACE: &str = "^[1-9][0-9]{0,15}$";
/// The characters that the longest nonce takes in base64url.
pub(crate) const MAX_NONCE_CHARS: usize = (MAX_NONCE_BYTES * 4).div_ceil(3);

/// The value of `not` for the kind of a principal that may even be the server itself: nothing is excluded.
pub(crate) const NOBODY: bool = false;

/// Gives every field of a schema the form of its name.
#[derive(Debug, Clone, Copy)]
pub enum Forms {
    /// Of an input: formats and bounds.
    Input,
    /// Of an output: formats only, because a client need not check the server.
    Output,
}

impl Transform for Forms {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for (name, property) in properties.iter_mut() {
                if let (Some(form), Value::Object(property)) = (form(name), property) {
                    self.apply(form, property);
                }
            }
            let needed = kinds_that_need_an_id(properties);
            if matches!(self, Self::Input) && !needed.is_empty() {
                schema.insert("dependentRequired".to_owned(), needed.into());
            }
        }
        transform_subschemas(self, schema);
    }
}

impl Forms {
    fn apply(self, form: Form, property: &mut Map<String, Value>) {
        if let Some(Value::Object(items)) = property.get_mut("items") {
            self.apply(form, items);
            if let (Self::Input, Form::Name) = (self, form) {
                property.entry("maxItems").or_insert(MAX_NAMES.into());
            }
            return;
        }
        // The size of a page is a `u32`; limits of another type limit something else.
        if matches!(form, Form::Page) && property.get("format") != Some(&json!("uint32")) {
            return;
        }
        let (kind, keywords) = form.keywords();
        if kind.is_some_and(|kind| !is_of(property, kind)) {
            return;
        }
        // A pattern of its own says all of a text.
        if property.contains_key("pattern") {
            return;
        }
        for (keyword, value) in keywords {
            // An own bound stands; the lower bound of unsigned numbers is only that of their type.
            let is_own = property.get(keyword).is_some_and(|own| *own != json!(0));
            if !is_own && (keyword == "format" || matches!(self, Self::Input)) {
                property.insert(keyword.to_owned(), value);
            }
        }
    }
}

/// The forms that names stand for.
#[derive(Debug, Clone, Copy)]
enum Form {
    Uuid,
    Ulid,
    Time,
    Name,
    Text,
    Hex64,
    Wait,
    Page,
    Visibility,
    Life,
    Actor,
}

/// Returns the form of a field by its name.
fn form(name: &str) -> Option<Form> {
    let form = match name {
        "task_id" | "lease_id" | "receipt_id" | "since_receipt_id" | "latest_receipt_id"
        | "tenant_id" | "lease" | "parents" | "key_id" | "macaroon_id" | "identity_id"
        | "audit_id" | "replaces" | "replaced_by" => Form::Uuid,
        "msg_id" => Form::Ulid,
        "ts" | "since" | "until" | "timestamp" => Form::Time,
        "topic"
        | "idem_key"
        | "partition_key"
        | "type"
        | "idempotency_key"
        | "principal_id"
        | "principal_instance_id"
        | "worker_id"
        | "worker_instance_id"
        | "capabilities"
        | "tags"
        | "accept_types"
        | "client" => Form::Name,
        "payload_pointer" | "expected_outcome_kind" | "expected_artifact_mime" | "reason" => {
            Form::Text
        }
        "namespace" | "hash" => Form::Hex64,
        "wait_seconds" => Form::Wait,
        "limit" | "max_items" | "max_messages" => Form::Page,
        "visibility_ms" => Form::Visibility,
        "ttl_secs" | "window_secs" => Form::Life,
        "principal_kind" | "worker_kind" => Form::Actor,
        name if name.ends_with("_at") => Form::Time,
        _ => return None,
    };
    Some(form)
}

impl Form {
    /// Returns the type of value that has the form, if it is a plain one, and what a schema says of it.
    fn keywords(self) -> (Option<&'static str>, Vec<(&'static str, Value)>) {
        let (string, integer) = (Some("string"), Some("integer"));
        match self {
            // Nobody can act as the server itself.
            Self::Actor => (None, vec![("not", json!({ "const": "system" }))]),
            Self::Uuid => (string, vec![("format", "uuid".into())]),
            Self::Ulid => (string, vec![("pattern", ULID.into())]),
            Self::Time => (string, vec![("format", "date-time".into())]),
            Self::Name => (
                string,
                vec![
                    ("minLength", 1.into()),
                    ("maxLength", MAX_NAME_BYTES.into()),
                    ("pattern", VISIBLE.into()),
                ],
            ),
            Self::Text => (string, vec![("maxLength", MAX_TEXT_BYTES.into())]),
            Self::Hex64 => (string, vec![("pattern", HEX64.into())]),
            Self::Wait => (integer, vec![("maximum", MAX_WAIT_SECONDS.into())]),
            Self::Page => (integer, vec![("minimum", 1.into())]),
            Self::Visibility => (
                integer,
                vec![
                    ("minimum", MIN_VISIBILITY_MS.into()),
                    ("maximum", MAX_VISIBILITY_MS.into()),
                ],
            ),
            Self::Life => (
                integer,
                vec![
                    ("minimum", 1.into()),
                    ("maximum", MAX_ADMISSION_SECS.into()),
                ],
            ),
        }
    }
}

fn is_of(property: &Map<String, Value>, kind: &str) -> bool {
    match property.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    }
}

/// Finds the fields that name the kind of a principal: they mean nothing without its id.
fn kinds_that_need_an_id(properties: &Map<String, Value>) -> Map<String, Value> {
    let pairs = ["principal", "worker"].map(|who| (format!("{who}_kind"), format!("{who}_id")));
    let there = |(kind, id): &(String, String)| {
        properties.contains_key(kind) && properties.contains_key(id)
    };
    let pairs = pairs.into_iter().filter(there);
    pairs.map(|(kind, id)| (kind, json!([id]))).collect()
}

/// One of the ways to fill in an input: the fields it must have, those that may not be there, and what is
/// special about others.
pub(crate) fn way(title: &str, required: &[&str], without: &[&str], special: &Value) -> Value {
    let mut properties = special.as_object().cloned().unwrap_or_default();
    for field in without {
        properties.insert((*field).to_owned(), false.into());
    }
    json!({ "title": title, "required": required, "properties": properties })
}

/// A number, or `null` where the field is there and there is no number.
pub(crate) enum NumberOrNull {}

impl JsonSchema for NumberOrNull {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NumberOrNull".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> Schema {
        let number = generator.subschema_for::<u64>();
        json_schema!({ "oneOf": [number, { "type": "null" }] })
    }
}

/// The names of what can be revoked.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only the schema is used")]
pub(crate) enum SubjectKind {
    WarrantId,
    IssuerKey,
    HolderKey,
}

/// The names of tiers.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only the schema is used")]
pub(crate) enum TierName {
    Standard,
    Trusted,
    Batch,
    Throttled,
}

/// The roles that a credential can give.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only the schema is used")]
pub(crate) enum RoleName {
    Agent,
    Worker,
    Admin,
}

/// The tiers of tenants.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only the schema is used")]
pub(crate) enum TenantTierName {
    Free,
    Paid,
    Enterprise,
}

/// The severities of entries of an audit log.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only the schema is used")]
pub(crate) enum SeverityName {
    Info,
    Warning,
    Critical,
}

/// The events of an audit log.
pub(crate) enum AuditEvent {}

impl JsonSchema for AuditEvent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AuditEvent".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": [
            "auth_success", "auth_failure", "authz_failure", "rate_limit_exceeded", "quota_exceeded",
            "key_created", "key_rotated", "key_revoked", "token_issued", "token_refreshed", "token_revoked",
            "token_reuse_detected", "macaroon_minted", "macaroon_revoked", "tenant_created", "tenant_changed",
            "client_registered", "identity_added", "tier_changed", "rate_limit_bypass_granted",
            "revocation_added", "revocation_removed", "protected_key_refused", "data_exported", "data_erased",
            "identity_removed", "client_removed",
        ] })
    }
}

/// The value of a quota that may be `LEAST` and more, -1 for none, or null.
pub(crate) enum Bound<const LEAST: i64> {}

impl<const LEAST: i64> JsonSchema for Bound<LEAST> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Bound{LEAST}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
        bound(LEAST, MAX_QUOTA)
    }
}

/// The value of a quota of things in an hour.
pub(crate) enum HourlyBound {}

impl JsonSchema for HourlyBound {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HourlyBound".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
        bound(1, MAX_HOURLY_QUOTA)
    }
}

fn bound(least: i64, most: i64) -> Schema {
    let mut number = json!({ "type": "integer", "minimum": -1, "maximum": most });
    if least > 0 {
        number["not"] = json!({ "const": 0 });
    }
    json_schema!({ "oneOf": [number, { "type": "null" }] })
}

/// The types of receipts.
pub(crate) enum ReceiptType {}

impl JsonSchema for ReceiptType {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ReceiptType".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": [
            "task.assigned", "task.accepted", "task.started", "task.progress", "task.retry_scheduled",
            "task.completed", "task.failed", "task.canceled", "task.result_ready", "lease.expired",
            "lease.released", "system.anomaly", "receipt.acknowledged", "ledger.signed",
        ] })
    }
}
