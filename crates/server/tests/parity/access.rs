//! Who may do what: every operation by every role and by every scope, and the things of others.
//!
//! The table is demanded by the registry: an operation that is not in it fails the suite.

use std::sync::Arc;

use asyncgate_api::{Code, Effect, Method};
use asyncgate_core::identity::{Scope, Scopes};
use asyncgate_engine::{
    Authenticator, Caller, Entry, Fault, Principal, PrincipalKind, RequestContext, Role, TenantId,
    registry,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::{
    facades::{Outcome, Twin},
    script::script,
};

/// Every operation that needs a right: whether agents (`a`) and workers (`w`) have it by default, and the scopes of which
/// an admin's key needs one. Admins have all of them.
const TABLE: &[(&str, &str, &[&str])] = &[
    ("create_task", "a-", &["tasks:write"]),
    ("create_tasks", "a-", &["tasks:write"]),
    ("get_task", "aw", &["tasks:read", "tasks:lease"]),
    ("list_tasks", "a-", &["tasks:read"]),
    ("cancel_task", "a-", &["tasks:write"]),
    ("list_open_obligations", "aw", &["receipts:read"]),
    ("bootstrap", "aw", &["receipts:read"]),
    ("list_receipts", "aw", &["receipts:read"]),
    ("list_ledger", "aw", &["receipts:read"]),
    ("read_ledger", "--", &["admin:read"]),
    ("get_ledger_head", "aw", &["receipts:read"]),
    ("get_receipt", "aw", &["receipts:read"]),
    ("ack_receipt", "aw", &["receipts:ack", "tasks:lease"]),
    ("lease_next", "-w", &["tasks:lease"]),
    ("renew_lease", "-w", &["tasks:lease"]),
    ("renew_leases", "-w", &["tasks:lease"]),
    ("release_lease", "-w", &["tasks:lease"]),
    ("start_task", "-w", &["tasks:lease"]),
    ("report_progress", "-w", &["tasks:lease"]),
    ("complete", "-w", &["tasks:lease"]),
    ("fail", "-w", &["tasks:lease"]),
    ("finish_tasks", "-w", &["tasks:lease"]),
    ("mailbox_send", "aw", &["mailbox:send"]),
    ("mailbox_send_batch", "aw", &["mailbox:send"]),
    ("mailbox_recv", "aw", &["mailbox:recv"]),
    ("mailbox_ack", "aw", &["mailbox:recv"]),
    ("mailbox_ack_batch", "aw", &["mailbox:recv"]),
    ("mailbox_nack", "aw", &["mailbox:recv"]),
    ("mailbox_extend", "aw", &["mailbox:recv"]),
    ("mailbox_peek", "aw", &["mailbox:recv", "mailbox:admin"]),
    (
        "mailbox_get_message",
        "aw",
        &["mailbox:recv", "mailbox:admin"],
    ),
    ("mailbox_delete_message", "--", &["mailbox:admin"]),
    ("mailbox_redrive_message", "--", &["mailbox:admin"]),
    ("mailbox_purge", "--", &["mailbox:admin"]),
    ("mailbox_topics", "aw", &["mailbox:recv", "mailbox:admin"]),
    ("mailbox_dlq", "aw", &["mailbox:recv", "mailbox:admin"]),
    ("mailbox_dlq_reprocess", "--", &["mailbox:admin"]),
    ("mailbox_heads", "aw", &["mailbox:recv", "mailbox:admin"]),
    ("host_check_nonces", "--", &["host:use"]),
    ("host_increment_counter", "--", &["host:use"]),
    ("host_check_revocations", "--", &["host:use"]),
    ("host_revoke", "--", &["host:admin"]),
    ("host_revocations", "--", &["host:admin"]),
    ("host_unrevoke", "--", &["host:admin"]),
    ("host_health", "--", &["host:use"]),
    ("host_verify", "--", &["host:use"]),
    ("limits_check", "--", &["host:use"]),
    ("limits_policies", "--", &["host:use"]),
    ("set_tier", "--", &["admin:write"]),
    ("get_tier", "--", &["admin:read"]),
    ("list_tiers", "--", &["admin:read"]),
    ("clear_tier", "--", &["admin:write"]),
    ("create_key", "--", &["admin:write", "platform:admin"]),
    ("list_keys", "--", &["admin:read", "platform:admin"]),
    ("rotate_key", "--", &["admin:write", "platform:admin"]),
    ("revoke_key", "--", &["admin:write", "platform:admin"]),
    ("rotate_all_keys", "--", &["admin:write", "platform:admin"]),
    (
        "revoke_all_credentials",
        "--",
        &["admin:write", "platform:admin"],
    ),
    ("rotate_token_key", "--", &["platform:admin"]),
    ("create_tenant", "--", &["platform:admin"]),
    ("list_tenants", "--", &["platform:admin"]),
    ("get_tenant", "--", &["admin:read", "platform:admin"]),
    ("change_tenant", "--", &["platform:admin"]),
    ("create_macaroon", "--", &["admin:write", "platform:admin"]),
    ("revoke_macaroon", "--", &["admin:write", "platform:admin"]),
    ("add_identity", "--", &["admin:write", "platform:admin"]),
    ("list_identities", "--", &["admin:read", "platform:admin"]),
    ("get_identity", "--", &["admin:read", "platform:admin"]),
    ("remove_identity", "--", &["admin:write", "platform:admin"]),
    ("list_audit", "--", &["admin:read", "platform:admin"]),
    (
        "create_oauth_client",
        "--",
        &["admin:write", "platform:admin"],
    ),
    (
        "list_oauth_clients",
        "--",
        &["admin:read", "platform:admin"],
    ),
    ("get_oauth_client", "--", &["admin:read", "platform:admin"]),
    (
        "remove_oauth_client",
        "--",
        &["admin:write", "platform:admin"],
    ),
    ("get_usage", "--", &["admin:read", "platform:admin"]),
    ("list_usage_events", "--", &["admin:read", "platform:admin"]),
    ("grant_bypass", "--", &["platform:admin"]),
    ("end_bypass", "--", &["platform:admin"]),
    ("throttle_tenant", "--", &["platform:admin"]),
    ("end_throttle", "--", &["platform:admin"]),
];

/// The operations that any credential may call, or nobody needs one for.
const FREE: &[&str] = &["get_config", "health", "whoami"];

/// Wide scopes, and what they cover beside themselves.
fn covers(held: Scope, needed: &str) -> bool {
    held.as_str() == needed
        || match held {
            Scope::AdminWrite => needed != "platform:admin",
            Scope::AdminRead => matches!(needed, "tasks:read" | "receipts:read"),
            Scope::HostAdmin => needed == "host:use",
            Scope::TasksRead
            | Scope::TasksWrite
            | Scope::TasksLease
            | Scope::ReceiptsRead
            | Scope::ReceiptsAck
            | Scope::MailboxSend
            | Scope::MailboxRecv
            | Scope::MailboxAdmin
            | Scope::HostUse
            | Scope::PlatformAdmin => false,
        }
}

/// Credentials that say whose they are: `role/name`, perhaps with `@tenant` and with `!scope`.
#[derive(Debug)]
struct Cast;

fn cast(credential: &str) -> Caller {
    let (credential, scope) = credential.split_once('!').unzip_or(credential);
    let (credential, tenant) = credential.split_once('@').unzip_or(credential);
    let (role, name) = credential.split_once('/').expect("role/name");
    let role: Role = role.parse().expect("a role");
    let kind = match role {
        Role::Agent => PrincipalKind::Agent,
        Role::Worker => PrincipalKind::Worker,
        Role::Admin | Role::System => PrincipalKind::Service,
    };
    let tenant = tenant.map_or(7, |tenant| tenant.parse().expect("a number"));
    let tenant = TenantId::from_bytes([tenant; 16]);
    let caller = Caller::new(tenant, Principal::new(kind, name), role);
    let scope = scope.map(|scope| scope.parse::<Scope>().expect("a scope"));
    let scopes = scope.map(|scope| Scopes::of(&[scope]));
    Caller {
        scopes: role.effective_scopes(scopes),
        ..caller
    }
}

trait UnzipOr<'a> {
    /// Returns both halves, or the whole and nothing.
    fn unzip_or(self, whole: &'a str) -> (&'a str, Option<&'a str>);
}

impl<'a> UnzipOr<'a> for Option<(&'a str, &'a str)> {
    fn unzip_or(self, whole: &'a str) -> (&'a str, Option<&'a str>) {
        self.map_or((whole, None), |(left, right)| (left, Some(right)))
    }
}

impl Authenticator for Cast {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        let caller = request.credential.map(cast);
        let missing = || Fault::new(Code::Unauthorized, "no credential");
        Box::pin(std::future::ready(caller.ok_or_else(missing)))
    }

    fn until_ended(&self, _: &RequestContext<'_>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn twins() -> [Twin; 3] {
    let auth: Arc<dyn Authenticator> = Arc::new(Cast);
    Twin::all_with(&auth)
}

/// Returns an input that every facade can express and that names no principal. What it names need not exist.
fn sample(entry: &Entry) -> Value {
    let name = entry.spec.name;
    let steps = script();
    let step = steps
        .iter()
        .find(|step| step.operation == name && step.code.is_none());
    let mut input = step.map_or_else(|| json!({}), |step| nowhere(&step.input));
    if let Some(fields) = input.as_object_mut() {
        fields.retain(|field, _| !field.starts_with("principal_") && !field.starts_with("worker_"));
        for field in entry.spec.path_fields() {
            // Another tenant may be named by few.
            let id = match field {
                "tenant_id" => OWN_TENANT,
                _ => UNKNOWN,
            };
            fields.entry(field).or_insert_with(|| id.into());
        }
    }
    input
}

const OWN_TENANT: &str = "07070707-0707-0707-0707-070707070707";
const UNKNOWN: &str = "0190a0b0-0000-7000-8000-000000000000";
const UNKNOWN_MESSAGE: &str = "01JAE6ZQX50000000000000000";

/// Puts ids of nothing in the place of what earlier steps would have kept.
fn nowhere(input: &Value) -> Value {
    match input {
        Value::String(text) if text == "$msg" => UNKNOWN_MESSAGE.into(),
        Value::String(text) if text == "$hash" => "00".repeat(32).into(),
        Value::String(text) if text.starts_with('$') => UNKNOWN.into(),
        Value::Object(object) => {
            let fields = object.iter();
            fields
                .map(|(key, value)| (key.clone(), nowhere(value)))
                .collect()
        }
        Value::Array(values) => values.iter().map(nowhere).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => input.clone(),
    }
}

fn is_forbidden(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(code) if code == "FORBIDDEN" || code == "E_CAP_SCOPE")
}

#[test]
fn every_operation_has_its_row() {
    for entry in registry() {
        let name = entry.spec.name;
        let listed = TABLE.iter().filter(|row| row.0 == name).count();
        let free = FREE.iter().filter(|free| **free == name).count();
        assert_eq!(listed + free, 1, "{name}");
    }
}

#[tokio::test]
async fn roles_and_scopes_decide_in_every_facade() {
    for mut twin in twins() {
        let offered: Vec<&Entry> = registry().iter().filter(|it| twin.offers(it)).collect();
        for entry in offered {
            let name = entry.spec.name;
            let Some((_, letters, scopes)) = TABLE.iter().find(|row| row.0 == name) else {
                continue;
            };
            let input = sample(entry);
            let mut rows = vec![
                ("agent/alice".to_owned(), letters.contains('a')),
                ("worker/bob".to_owned(), letters.contains('w')),
                ("admin/root".to_owned(), *scopes != ["platform:admin"]),
            ];
            for held in Scope::ALL {
                let may = scopes.iter().any(|needed| covers(held, needed));
                rows.push((format!("admin/root!{held}"), may));
            }
            for (credential, may) in rows {
                let outcome = twin.show(&credential).call(name, &input).await;
                assert_eq!(
                    !is_forbidden(&outcome),
                    may,
                    "{name} {credential}: {outcome:?}"
                );
            }
        }
    }
}

/// The ids of what one tenant has.
struct Things {
    task: String,
    lease: String,
    receipt: String,
    message: String,
}

async fn done(twin: &Twin, operation: &str, input: Value) -> Value {
    match twin.call(operation, &input).await {
        Outcome::Answer(answer) => answer,
        Outcome::Refused(code) => panic!("{operation}: {code}"),
    }
}

fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found
        .unwrap_or_else(|| panic!("no {pointer} in {value}"))
        .to_owned()
}

/// A task of alice's that bob has leased, its assignment, and a message.
async fn furnish(twin: &mut Twin) -> Things {
    let sent = json!({ "topic": "private-topic", "idem_key": "k", "payload_b64": "aGk=" });
    let sent = done(twin.show("agent/alice"), "mailbox_send", sent).await;
    let created = done(twin, "create_task", json!({ "type": "private-type" })).await;
    let inbox = done(twin, "list_receipts", json!({})).await;
    let leased = done(twin.show("worker/bob"), "lease_next", json!({})).await;
    Things {
        task: text(&created, "/task_id"),
        lease: text(&leased, "/tasks/0/lease_id"),
        receipt: text(&inbox, "/receipts/0/receipt_id"),
        message: text(&sent, "/msg_id"),
    }
}

#[tokio::test]
async fn the_things_of_others_are_refused_and_those_of_other_tenants_are_not_there() {
    for mut twin in twins().into_iter().take(2) {
        let things = furnish(&mut twin).await;
        let task = || json!({ "task_id": things.task });
        let held = || json!({ "task_id": things.task, "lease_id": things.lease });
        let receipt = || json!({ "receipt_id": things.receipt });
        let stale = "LEASE_INVALID_OR_EXPIRED";
        // Of the own tenant: another agent's or worker's. Of another tenant: even its admin.
        let rows = [
            (
                "get_task",
                task(),
                "agent/mallory",
                "FORBIDDEN",
                "TASK_NOT_FOUND",
            ),
            (
                "get_task",
                task(),
                "worker/eve",
                "FORBIDDEN",
                "TASK_NOT_FOUND",
            ),
            (
                "cancel_task",
                task(),
                "agent/mallory",
                "FORBIDDEN",
                "TASK_NOT_FOUND",
            ),
            (
                "get_receipt",
                receipt(),
                "agent/mallory",
                "FORBIDDEN",
                "RECEIPT_NOT_FOUND",
            ),
            (
                "ack_receipt",
                receipt(),
                "agent/mallory",
                "FORBIDDEN",
                "RECEIPT_NOT_FOUND",
            ),
            ("list_ledger", task(), "agent/mallory", "FORBIDDEN", ""),
            ("renew_lease", held(), "worker/eve", stale, "TASK_NOT_FOUND"),
            ("start_task", held(), "worker/eve", stale, "TASK_NOT_FOUND"),
            ("complete", held(), "worker/eve", stale, "TASK_NOT_FOUND"),
            (
                "release_lease",
                held(),
                "worker/eve",
                stale,
                "TASK_NOT_FOUND",
            ),
        ];
        let before = twin.ledger().await;
        for (operation, input, other, code, elsewhere) in rows {
            let outcome = twin.show(other).call(operation, &input).await;
            assert_eq!(
                outcome,
                Outcome::Refused(code.to_owned()),
                "{operation} {other}"
            );
            let outcome = twin.show("admin/root@8").call(operation, &input).await;
            match elsewhere {
                "" => assert_eq!(outcome_list(&outcome), 0, "{operation}"),
                code => assert_eq!(outcome, Outcome::Refused(code.to_owned()), "{operation}"),
            }
        }
        assert_eq!(twin.ledger().await, before, "nothing was changed");
        // Their own may, and so may the admin of the tenant.
        for who in ["agent/alice", "worker/bob", "admin/root"] {
            done(twin.show(who), "get_task", task()).await;
        }
        done(twin.show("admin/root"), "get_receipt", receipt()).await;
        done(twin.show("worker/bob"), "renew_lease", held()).await;
        done(twin.show("admin/root"), "cancel_task", task()).await;
    }
}

fn outcome_list(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Answer(answer) => answer["receipts"].as_array().map_or(usize::MAX, Vec::len),
        Outcome::Refused(_) => usize::MAX,
    }
}

/// An answer about another tenant's thing is byte for byte that about a thing that does not exist.
#[tokio::test]
async fn another_tenants_thing_looks_like_none() {
    let [mut rest, ..] = twins();
    let things = furnish(&mut rest).await;
    rest.show("admin/root@8");
    for (there, nowhere) in [
        (
            format!("/v1/tasks/{}/cancel", things.task),
            format!("/v1/tasks/{UNKNOWN}/cancel"),
        ),
        (
            format!("/v1/receipts/{}/ack", things.receipt),
            format!("/v1/receipts/{UNKNOWN}/ack"),
        ),
        (
            format!("/v1/ack/{}", things.message),
            format!("/v1/ack/{UNKNOWN_MESSAGE}"),
        ),
    ] {
        let corr_id = [("x-corr-id", "same")];
        let one = rest.post(&there, &corr_id, &json!({})).await;
        let other = rest.post(&nowhere, &corr_id, &json!({})).await;
        assert_eq!(one.status.as_u16(), 404, "{there}");
        assert_eq!(
            (one.status, one.body),
            (other.status, other.body),
            "{there}"
        );
    }
}

/// Whatever can be read without naming anything shows a tenant nothing of another one.
#[tokio::test]
async fn reads_of_one_tenant_show_nothing_of_another() {
    for mut twin in twins() {
        let things = furnish(&mut twin).await;
        let secrets = [
            things.task.as_str(),
            &things.lease,
            &things.receipt,
            &things.message,
            "private-topic",
            "private-type",
            "alice",
        ];
        twin.show("admin/root@8");
        let reads = registry().iter().filter(|entry| {
            let spec = entry.spec;
            spec.effect == Effect::Read
                && spec.method == Method::Get
                && spec.path_fields().next().is_none()
        });
        for entry in reads.filter(|entry| twin.offers(entry)) {
            let name = entry.spec.name;
            let outcome = twin.call(name, &json!({})).await;
            let shown = format!("{outcome:?}");
            for secret in secrets {
                assert!(!shown.contains(secret), "{name} shows {secret}: {shown}");
            }
        }
    }
}
