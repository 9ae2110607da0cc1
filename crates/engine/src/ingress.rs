//! Signed ingress: a sender without a credential hands over a task, and shows by a signature over the
//! body that it may.
//!
//! The order of refusals is part of the contract, and it is not the order of other calls: nobody learns
//! anything about a message that is not signed, a replay costs no token, and a message that is refused for
//! its rate has not used its nonce.

mod provider;

use std::collections::BTreeMap;

use asyncgate_api::{Code, CreateTask, Operation as _};
use asyncgate_core::{
    Env, Json, Principal, TenantId, Timestamp,
    admission::{Asks, LimitCheck, NonceCheck, NonceResult, Tier, Verdicts, sha256},
    task::{Created, NewTask},
};
use asyncgate_store::{Decided, Error, ReadSet, Snapshot, Tasks, transact, transact_admitted};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    Engine, Fault, Remote, Touches,
    call::{NO_NEW_WORK, check_touches},
    input::json,
    operations::host_fault,
    rate_headers::{Header, ReportedLimit, headers},
    view,
};
use provider::wrong;
pub use provider::{Message, Provider, Secret};

const MAX_KEY_BYTES: usize = 256;
/// The memory that a task takes besides its payload, roughly.
const TASK_WEIGHT: usize = 1_024;
/// The most that is read of a body for an ingress that does not exist.
const UNKNOWN_MAX_BYTES: usize = 1 << 20;

/// The name of every ingress that the settings do not have, in metrics and the log.
const UNKNOWN_INGRESS: &str = "unknown";

/// Every ingress, by its name.
pub type Ingresses = BTreeMap<String, Ingress>;

/// A way in for one kind of sender.
#[derive(Debug, Clone)]
pub struct Ingress {
    /// The form of its messages.
    pub provider: Provider,
    /// The secrets that messages may be signed with.
    pub secrets: Vec<Secret>,
    /// The tenant of the tasks.
    pub tenant: TenantId,
    /// The owner of the tasks.
    pub principal: Principal,
    /// The type of the tasks.
    pub task_type: String,
    /// The policy that limits them.
    pub policy: String,
    /// The key that they are limited by.
    pub key: LimitBy,
    /// The most that the sender's clock may differ from ours.
    pub timestamp_window_secs: u64,
    /// The time for which a nonce is remembered.
    pub nonce_ttl_secs: u64,
    /// The largest body.
    pub max_body_bytes: usize,
}

/// The key that the messages of an ingress are limited by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitBy {
    /// The address of the client.
    Address,
    /// The value of a field of the body, by its path.
    Field(Vec<String>),
}

/// A message that became a task.
#[derive(Debug, Clone)]
pub struct Received {
    /// The task's id.
    pub task_id: String,
    /// The task's status.
    pub status: asyncgate_api::TaskStatus,
    /// The HTTP headers that tell of the limit.
    pub headers: Vec<Header>,
}

impl Engine {
    /// Returns the largest body of an ingress, in bytes.
    pub fn ingress_limit(&self, name: &str) -> usize {
        let settings = self.settings();
        let ingress = settings.ingress.get(name);
        ingress.map_or(UNKNOWN_MAX_BYTES, |ingress| ingress.max_body_bytes)
    }

    /// Makes a task of a message to an ingress.
    pub async fn receive(&self, name: &str, message: Message<'_>) -> Result<Received, Fault> {
        let received = self.receive_message(name, message).await;
        match &received {
            Ok(_) => self.metrics.admission.received(name),
            Err(fault) => self.note_refused_message(name, fault),
        }
        received
    }

    /// Counts and logs a message that an ingress refuses. Neither its name nor anything else that the sender
    /// wrote is repeated, unless the settings have such an ingress.
    pub fn note_refused_message(&self, name: &str, fault: &Fault) {
        let settings = self.settings();
        let known = settings.ingress.get_key_value(name);
        let ingress = known.map_or(UNKNOWN_INGRESS, |(name, _)| name.as_str());
        let reason = fault.code.as_str();
        self.metrics.admission.refused(ingress, reason);
        let Some(refused) = self.untold_refusals(reason) else {
            return;
        };
        tracing::info!(
            event = "ingress.refused",
            ingress,
            reason,
            retry_after = fault.retry_after_seconds,
            refused,
        );
    }

    async fn receive_message(&self, name: &str, message: Message<'_>) -> Result<Received, Fault> {
        let settings = self.settings();
        let unknown = || Fault::new(Code::UnknownIngress, "there is no ingress of this name");
        let ingress = settings.ingress.get(name).ok_or_else(unknown)?;
        ingress.provider.check(&ingress.secrets, &message)?;
        let (payload, sent) = Sent::read(&message, ingress)?;
        let now = self.now();
        sent.in_time(now, ingress.timestamp_window_secs)?;
        if !self.is_accepting() {
            return Err(Fault::new(Code::HostUnavailable, NO_NEW_WORK).retry_after(1));
        }
        let task = Touches::Task {
            task_type: &ingress.task_type,
            bytes: payload.len(),
        };
        check_touches(self, &CreateTask::SPEC, task)?;
        let check = self.ingress_limit_check(ingress, now, sent.key).await?;
        let asks = Asks {
            limits: vec![check.clone()],
            nonces: vec![NonceCheck {
                namespace: sha256(format!("asyncgate.ingress:{name}").as_bytes()),
                nonce: sha256(sent.nonce.as_bytes()).to_vec(),
                // Times of messages are whole seconds, so a message can be in time for up to a second
                // longer than twice the window.
                ttl_secs: ingress
                    .nonce_ttl_secs
                    .max(2 * ingress.timestamp_window_secs + 1),
            }],
            ..Asks::default()
        };
        let new = new_task(ingress, payload);
        let (verdicts, created) = self.create_within_quota(ingress, now, asks, new).await?;
        let limited = verdicts.limits.first().copied();
        if let Some(limited) = &limited {
            self.metrics.admission.limited(&check.policy, limited);
        }
        let reported = limited.map(|limited| {
            let bucket = format!("{}:{}", ingress.policy, check.key);
            ReportedLimit::new(&ingress.policy, &bucket, &check, &limited, now)
        });
        let headers = headers(reported.as_slice());
        match created {
            Some(created) => {
                self.metrics.created.inc();
                self.note_grown(ingress.tenant);
                Ok(Received {
                    task_id: created.task.id.to_string(),
                    status: view::status(created.task.status()),
                    headers,
                })
            }
            None => Err(refusal(&verdicts, headers)),
        }
    }

    /// Charges the hourly quota of the tenant's tasks, and creates the task. What is refused afterwards is given back: a
    /// replay costs nothing.
    async fn create_within_quota(
        &self,
        ingress: &Ingress,
        now: Timestamp,
        asks: Asks,
        new: NewTask,
    ) -> Result<(Verdicts, Option<Created>), Fault> {
        let (tenant, principal) = (ingress.tenant, &ingress.principal);
        self.charge_task(tenant, principal, 1).await?;
        let done = match self.own_host {
            false => self.create_admitted(tenant, now, asks, new).await,
            true => self.admit_and_create(tenant, now, asks, new).await,
        };
        if !matches!(done, Ok((_, Some(_)))) {
            // If it cannot be given back, it comes back with time.
            let _ = self.charge_task(tenant, principal, -1).await;
        }
        done
    }

    /// Returns the check of the limit for a message with this key.
    async fn ingress_limit_check(
        &self,
        ingress: &Ingress,
        now: Timestamp,
        key: String,
    ) -> Result<LimitCheck, Fault> {
        let limits = &self.settings().limits;
        let tier = match limits.is_tiered(&ingress.policy) {
            true => self.tiers.of(ingress.tenant, now, limits, &key).await,
            false => Tier::default(),
        };
        let resolved = limits.resolve(&ingress.policy, tier).map_err(|_| {
            let message = "the policy of this ingress is gone";
            Fault::new(Code::UnknownPolicy, message).with("policy", ingress.policy.as_str())
        })?;
        Ok(LimitCheck {
            policy: resolved.policy,
            key,
            rule: resolved.rule,
            cost: 1,
            shadow: resolved.shadow,
        })
    }

    /// Uses the nonce, charges the limit and creates the task, all in one commit.
    async fn create_admitted(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asks: Asks,
        new: NewTask,
    ) -> Result<(Verdicts, Option<Created>), Fault> {
        let weight = TASK_WEIGHT + new.payload.len();
        let (store, env) = (self.store.as_ref(), self.env(tenant, now));
        let decided = transact_admitted(store, tenant, env, weight, asks, creating(new)).await;
        let unchanged = |error| {
            let message = "storage does not answer; nothing was changed; send it again";
            store_fault(error, message)
        };
        let (verdicts, created) = decided.map_err(unchanged)?;
        let created = created.transpose()?;
        Ok((verdicts, created.map(|created| created.output)))
    }

    /// Does the same where another host than the store decides. The host is asked first, and its word
    /// stands even if the store fails afterwards. A used nonce lets nobody in, even if this store has no
    /// task for it: another server, with another store, may have made one.
    async fn admit_and_create(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asks: Asks,
        new: NewTask,
    ) -> Result<(Verdicts, Option<Created>), Fault> {
        let answered = self.host.admit(tenant, now, asks).await;
        let verdicts = answered.map_err(host_fault)?.answer;
        if !verdicts.passed() {
            return Ok((verdicts, None));
        }
        let weight = TASK_WEIGHT + new.payload.len();
        let (store, env, reads) = (
            self.store.as_ref(),
            self.env(tenant, now),
            ReadSet::default(),
        );
        let decided = transact(store, tenant, env, weight, reads, creating(new)).await;
        let used = |error| {
            let message =
                "storage does not answer, and the nonce is used; send it again with a new one";
            store_fault(error, message)
        };
        let created = decided.map_err(used)??;
        Ok((verdicts, Some(created.output)))
    }
}

/// The fields of a message that the ingress reads.
struct Sent {
    nonce: String,
    /// Seconds since 1970, if the provider tells them.
    timestamp: Option<i64>,
    key: String,
}

impl Sent {
    fn read(message: &Message<'_>, ingress: &Ingress) -> Result<(Json, Self), Fault> {
        let fields: Option<Map<String, Value>> = serde_json::from_slice(message.body).ok();
        let raw: Option<Box<RawValue>> = serde_json::from_slice(message.body).ok();
        let (Some(raw), Some(fields)) = (raw, fields) else {
            return Err(Fault::bad_request("the body must be a JSON object"));
        };
        let payload = json("the body", raw)?;
        let nonce = ingress.provider.nonce(message, &fields)?;
        let timestamp = ingress.provider.timestamp(message, &fields)?;
        let key = match &ingress.key {
            LimitBy::Address => Remote::client_key(),
            LimitBy::Field(path) => read_key(&fields, path)
                .ok_or_else(|| wrong(&path.join("."), "a string of 1 to 256 bytes, or a number"))?,
        };
        let sent = Self {
            nonce,
            timestamp,
            key,
        };
        Ok((payload, sent))
    }

    fn in_time(&self, now: Timestamp, window_secs: u64) -> Result<(), Fault> {
        let now = now.as_millis().div_euclid(1_000);
        let differs = self.timestamp.map(|timestamp| timestamp.abs_diff(now));
        if differs.is_none_or(|seconds| seconds <= window_secs) {
            return Ok(());
        }
        let message = format!("the time of a message must be within {window_secs} seconds of now");
        Err(Fault::new(Code::TimestampOutOfWindow, message).with("now", now))
    }
}

fn new_task(ingress: &Ingress, payload: Json) -> NewTask {
    NewTask::new(
        ingress.principal.clone(),
        ingress.task_type.clone(),
        payload,
    )
}

/// Returns the decision that creates a task. Its class is of the operator's choice, so it is not refused for it.
fn creating(new: NewTask) -> impl FnMut(Env, Snapshot) -> Decided<Tasks, Created> + Send + 'static {
    move |env, snapshot| snapshot.create(env, new.clone())
}

fn read_key(fields: &Map<String, Value>, path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let found = rest.iter().try_fold(fields.get(first)?, |value, name| {
        value.as_object().and_then(|table| table.get(name))
    })?;
    let key = match found {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (1..=MAX_KEY_BYTES).contains(&key.len()).then_some(key)
}

/// Makes the fault of a message that is refused. A replay comes first: it has cost nothing.
fn refusal(verdicts: &Verdicts, headers: Vec<Header>) -> Fault {
    let replay = verdicts
        .nonces
        .iter()
        .any(|result| *result != NonceResult::Accepted);
    if replay {
        let message = "this nonce was used before; use a new one for every message";
        return Fault::new(Code::NonceReuse, message);
    }
    let waits = verdicts.limits.iter().filter(|limited| !limited.allowed);
    let wait = waits.filter_map(|limited| limited.retry_after_secs).max();
    let message = match wait {
        Some(wait) => {
            format!("too many messages; send this one again in {wait} seconds, with the same nonce")
        }
        None => "too many messages; this sender may send no more".to_owned(),
    };
    let mut fault = Fault::new(Code::RateLimit, message);
    fault.headers = headers;
    match wait {
        Some(wait) => fault.retry_after(u32::try_from(wait).unwrap_or(u32::MAX)),
        None => fault,
    }
}

/// Makes the fault for a store that failed. `message` tells the sender what that means for its nonce.
fn store_fault(error: Error, message: &'static str) -> Fault {
    let cause = error.to_string();
    match error {
        Error::Corrupt(_) | Error::Unknown(_) => error.into(),
        Error::Busy | Error::Conflict | Error::Unavailable(_) => {
            Fault::new(Code::HostUnavailable, message)
                .retry_after(1)
                .because(cause)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_within_the_body() {
        let fields = serde_json::json!({"a": {"b": "x", "n": 7, "o": {}}, "s": "y", "e": ""});
        let fields = fields.as_object().unwrap();
        for (path, key) in [
            ("s", Some("y")),
            ("a.b", Some("x")),
            ("a.n", Some("7")),
            ("a.o", None),
            ("a.c", None),
            ("s.b", None),
            ("e", None),
        ] {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            assert_eq!(read_key(fields, &path).as_deref(), key, "{path:?}");
        }
    }
}
