//! The one list of operations. Facades mount the operations of this list and no others.

use asyncgate_api::{self as api, Spec};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use schemars::Schema;

use crate::{
    Caller, Engine, Fault, Grant, Settings, call, operations::Execute, rate_headers::Header, schema,
};

/// Returns every operation, in the order in which documents list them.
pub fn registry() -> &'static [Entry] {
    // A constant would be copied into every crate that names it, and every operation would be compiled
    // again with each copy. A static is compiled here and nowhere else.
    static REGISTRY: &[Entry] = ENTRIES;
    REGISTRY
}

const ENTRIES: &[Entry] = &[
    entry::<api::CreateTask>(),
    entry::<api::CreateTasks>(),
    entry::<api::GetTask>(),
    entry::<api::ListTasks>(),
    entry::<api::CancelTask>(),
    entry::<api::ListOpenObligations>(),
    entry::<api::Bootstrap>(),
    entry::<api::ListReceipts>(),
    entry::<api::ListLedger>(),
    entry::<api::ReadLedger>(),
    entry::<api::GetLedgerHead>(),
    entry::<api::GetReceipt>(),
    entry::<api::AckReceipt>(),
    entry::<api::LeaseNext>(),
    entry::<api::RenewLease>(),
    entry::<api::RenewLeases>(),
    entry::<api::ReleaseLease>(),
    entry::<api::StartTask>(),
    entry::<api::ReportProgress>(),
    entry::<api::Complete>(),
    entry::<api::Fail>(),
    entry::<api::FinishTasks>(),
    entry::<api::SendMessage>(),
    entry::<api::SendMessages>(),
    entry::<api::ReceiveMessages>(),
    entry::<api::AckMessage>(),
    entry::<api::AckMessages>(),
    entry::<api::NackMessage>(),
    entry::<api::ExtendMessage>(),
    entry::<api::PeekMessages>(),
    entry::<api::GetMessage>(),
    entry::<api::DeleteMessage>(),
    entry::<api::RedriveMessage>(),
    entry::<api::PurgeTopic>(),
    entry::<api::ListTopics>(),
    entry::<api::ListDeadLetters>(),
    entry::<api::ReprocessDeadLetters>(),
    entry::<api::GetMailboxHeads>(),
    entry::<api::CheckNonces>(),
    entry::<api::IncrementCounter>(),
    entry::<api::CheckRevocations>(),
    entry::<api::Revoke>(),
    entry::<api::ListRevocations>(),
    entry::<api::Unrevoke>(),
    entry::<api::GetHostHealth>(),
    entry::<api::VerifyWarrant>(),
    entry::<api::CheckLimits>(),
    entry::<api::ListPolicies>(),
    entry::<api::SetTier>(),
    entry::<api::GetTier>(),
    entry::<api::ListTiers>(),
    entry::<api::ClearTier>(),
    entry::<api::CreateOauthClient>(),
    entry::<api::ListOauthClients>(),
    entry::<api::GetOauthClient>(),
    entry::<api::RemoveOauthClient>(),
    entry::<api::GetUsage>(),
    entry::<api::ListUsageEvents>(),
    entry::<api::GrantBypass>(),
    entry::<api::EndBypass>(),
    entry::<api::ThrottleTenant>(),
    entry::<api::EndThrottle>(),
    entry::<api::WhoAmI>(),
    entry::<api::CreateKey>(),
    entry::<api::ListKeys>(),
    entry::<api::RotateKey>(),
    entry::<api::RevokeKey>(),
    entry::<api::RotateAllKeys>(),
    entry::<api::RevokeAllCredentials>(),
    entry::<api::RotateTokenKey>(),
    entry::<api::CreateTenant>(),
    entry::<api::ListTenants>(),
    entry::<api::GetTenant>(),
    entry::<api::ChangeTenant>(),
    entry::<api::CreateMacaroon>(),
    entry::<api::RevokeMacaroon>(),
    entry::<api::AddIdentity>(),
    entry::<api::ListIdentities>(),
    entry::<api::GetIdentity>(),
    entry::<api::RemoveIdentity>(),
    entry::<api::ListAudit>(),
    entry::<api::GetConfig>(),
    entry::<api::GetHealth>(),
];

/// Returns an operation's index in the registry. It is known at compile time, so that counting a call
/// needs no search.
pub(crate) const fn place<O: Execute>() -> usize {
    let mut place = 0;
    while !is_same(ENTRIES[place].spec.name, O::SPEC.name) {
        place += 1;
    }
    place
}

const fn is_same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut same = left.len() == right.len();
    let mut at = 0;
    while same && at < left.len() {
        same = left[at] == right[at];
        at += 1;
    }
    same
}

/// An operation's input as a facade received it.
#[derive(Debug, Clone)]
pub enum Source<'a> {
    /// A JSON object.
    Json(&'a [u8]),
    /// A JSON object that nobody needs after it was read. Its memory is free while the call waits for the store.
    Body(Bytes),
    /// `name=value` pairs, percent-encoded, as in a query string.
    Form(&'a str),
}

impl Source<'_> {
    /// Returns its size in bytes.
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Json(bytes) => bytes.len(),
            Self::Body(bytes) => bytes.len(),
            Self::Form(text) => text.len(),
        }
    }
}

/// A success, with the output already encoded.
#[derive(Debug)]
pub struct Answer {
    /// The output as JSON.
    pub json: Vec<u8>,
    /// True when the call created something (HTTP 201).
    pub created: bool,
    /// HTTP headers of the answer.
    pub headers: Vec<Header>,
    /// The memory that it may take until it is read.
    pub grant: Option<Grant>,
}

/// Runs an operation from its encoded input to its encoded output.
pub type Call = for<'a> fn(&'a Engine, &'a Caller, Source<'a>) -> Answered<'a>;

/// The outcome of a [`Call`].
pub type Answered<'a> = BoxFuture<'a, Result<Answer, Fault>>;

/// One operation as facades see it.
#[derive(Debug)]
pub struct Entry {
    /// Name, place and promises.
    pub spec: &'static Spec,
    /// The JSON Schema of the input.
    pub input_schema: fn() -> Schema,
    /// The JSON Schema of the output.
    pub output_schema: fn() -> Schema,
    /// The largest input in bytes, for operations that may have more than the usual limit.
    pub max_input_bytes: fn(&Settings) -> Option<usize>,
    /// Runs the operation.
    pub call: Call,
}

impl Entry {
    /// Returns the largest input in bytes, where `usual` is the limit of most operations.
    pub fn input_limit(&self, engine: &Engine, usual: usize) -> usize {
        let special = (self.max_input_bytes)(&engine.settings());
        special.map_or(usual, |special| special.max(usual))
    }
}

const fn entry<O: Execute>() -> Entry {
    Entry {
        spec: &O::SPEC,
        input_schema: schema::input::<O::Input>,
        output_schema: schema::output::<O::Output>,
        max_input_bytes: O::max_input_bytes,
        call: call::answer::<O>,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use asyncgate_api::Toolset;

    use super::*;

    #[test]
    fn names_routes_and_tools_are_unique() {
        let (mut names, mut routes, mut tools) = (HashSet::new(), HashSet::new(), HashSet::new());
        for entry in registry() {
            let spec = entry.spec;
            assert!(names.insert(spec.name), "{}", spec.name);
            assert!(
                routes.insert((spec.method.as_str(), spec.path)),
                "{}",
                spec.path
            );
            assert!(
                spec.tool
                    .is_none_or(|tool| tools.insert(tool.replace('.', "_"))),
                "{:?}",
                spec.tool
            );
        }
    }

    #[test]
    fn documents_name_operations_by_their_names() {
        for entry in registry() {
            let Spec { summary, doc, .. } = entry.spec;
            for tool in registry().iter().filter_map(|entry| entry.spec.tool) {
                let names_the_tool = summary.contains(tool) || doc.contains(tool);
                assert!(!names_the_tool, "{}: {tool}", entry.spec.name);
            }
        }
    }

    #[test]
    fn toolsets_follow_from_the_operations() {
        let of = |name: &str| {
            let entry = registry().iter().find(|entry| entry.spec.name == name);
            entry.unwrap().spec.toolset()
        };
        for (toolset, names) in [
            (
                Toolset::Agent,
                &[
                    "create_task",
                    "get_task",
                    "list_open_obligations",
                    "ack_receipt",
                ][..],
            ),
            (Toolset::Worker, &["lease_next", "complete", "fail"]),
            (
                Toolset::Mailbox,
                &["mailbox_send", "mailbox_recv", "mailbox_dlq"],
            ),
            (
                Toolset::Admission,
                &["host_check_nonces", "limits_check", "limits_policies"],
            ),
            (
                Toolset::Ops,
                &[
                    "mailbox_purge",
                    "host_revoke",
                    "host_revocations",
                    "read_ledger",
                    "get_config",
                    "bootstrap",
                ],
            ),
        ] {
            for name in names {
                assert_eq!(of(name), toolset, "{name}");
            }
        }
    }

    #[test]
    fn path_fields_are_input_fields() {
        for entry in registry() {
            let schema = (entry.input_schema)();
            for field in entry.spec.path_fields() {
                assert!(
                    schema.pointer(&format!("/properties/{field}")).is_some(),
                    "{field}"
                );
            }
        }
    }
}
