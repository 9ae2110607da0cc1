//! The conditions of a macaroon, held against a call.
//!
//! They are looked at twice: before the input is read, as far as they do not speak of topics, so that a caller without
//! the right learns nothing about its input; and after it, with the topics and bytes that the call touches.

use asyncgate_admission::{Source, Unavailable};
use asyncgate_api::{Code, Plane, Spec};
use asyncgate_core::{
    MessageId, Timestamp,
    admission::{Asks, LimitCheck, Rule, SERVER_TENANT, Window},
    hex,
    identity::{Scope, Scopes},
};
use asyncgate_credentials::{
    Call, Caveat, Denial, DenialReason, MailboxOp, QuotaUnit, Topic, check,
};

use crate::{
    Caller, Caveats, CredentialKind, Engine, Fault, Touches, mailbox::message_id,
    operations::host_fault,
};

/// The name under which the uses of macaroons are counted.
const QUOTA_POLICY: &str = "macaroon";

/// Following events, as conditions name it. It is no operation, because it has no answer.
const FOLLOWING: Spec = Spec {
    name: "events",
    ..Spec::of(Plane::Tasks)
};

/// The things that a call touches, in a form that outlives its input.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    topics: Vec<String>,
    messages: Vec<MessageId>,
    bytes: usize,
}

impl Wanted {
    /// Keeps what a call touches. Messages that cannot be named are left out: nothing is done to them.
    pub(crate) fn of(touches: Touches<'_>) -> Self {
        let ids = touches.message_ids();
        Self {
            topics: touches.topics().map(str::to_owned).collect(),
            messages: ids.filter_map(|id| message_id(id).ok()).collect(),
            bytes: touches.bytes(),
        }
    }
}

impl Engine {
    /// Refuses a call that the conditions forbid whatever its input is. Callers without conditions pass.
    pub(crate) fn check_caveats(
        &self,
        caller: &Caller,
        spec: &Spec,
        scopes: Scopes,
    ) -> Result<(), Fault> {
        let Some(caveats) = &caller.credential.caveats else {
            return Ok(());
        };
        self.hold_against(caller, caveats, spec, scopes, None)
    }

    /// Refuses a call that touches what the conditions forbid, and counts it against their quotas.
    pub(crate) async fn check_wanted(
        &self,
        caller: &Caller,
        caveats: &Caveats,
        spec: &Spec,
        scopes: Scopes,
        wanted: Wanted,
    ) -> Result<(), Fault> {
        let topics = match caveats.list.iter().any(speaks_of_topics) {
            true => self.topics_of(caller, &wanted).await?,
            false => Vec::new(),
        };
        self.check_topics(caller, caveats, spec, scopes, &topics)?;
        self.charge_quotas(caveats, wanted.bytes).await
    }

    /// Refuses whoever may not follow the events of its tenant: everybody but its admins, and those whose conditions
    /// forbid it.
    ///
    /// # Errors
    /// The refusals of a call that reads everything of a tenant.
    pub async fn admit_to_events(&self, caller: &Caller) -> Result<(), Fault> {
        let admitted = async {
            if !caller.sees_all() {
                let fault = Fault::new(Code::Forbidden, "only an admin may read events");
                return Err(fault.with("required_role", "admin"));
            }
            let Some(caveats) = &caller.credential.caveats else {
                return Ok(());
            };
            let (scopes, nothing) = (Scopes::of(&[Scope::AdminRead]), Wanted::default());
            self.check_wanted(caller, caveats, &FOLLOWING, scopes, nothing)
                .await
        };
        admitted.await.map_err(|fault| named_for(caller, fault))
    }

    /// Returns the topics that a call touches: those that it names, and those of the messages that it names.
    async fn topics_of(&self, caller: &Caller, wanted: &Wanted) -> Result<Vec<String>, Fault> {
        let mut topics = wanted.topics.clone();
        for id in &wanted.messages {
            let message = self.store.mailbox().message(caller.tenant, *id).await?;
            topics.extend(message.map(|message| message.topic.to_string()));
        }
        Ok(topics)
    }

    fn check_topics(
        &self,
        caller: &Caller,
        caveats: &Caveats,
        spec: &Spec,
        scopes: Scopes,
        topics: &[String],
    ) -> Result<(), Fault> {
        let settings = self.settings();
        let classes: Vec<Vec<&str>> = topics
            .iter()
            .map(|topic| settings.topic_classes.all(topic).collect())
            .collect();
        let topics = topics.iter().zip(&classes);
        let topics: Vec<Topic<'_>> = topics
            .map(|(name, classes)| Topic { name, classes })
            .collect();
        self.hold_against(caller, caveats, spec, scopes, Some(&topics))
    }

    fn hold_against(
        &self,
        caller: &Caller,
        caveats: &Caveats,
        spec: &Spec,
        scopes: Scopes,
        topics: Option<&[Topic<'_>]>,
    ) -> Result<(), Fault> {
        let call = Call {
            operation: spec.name,
            mailbox_op: mailbox_op(spec),
            topics,
            scopes,
            tenant: caller.tenant,
            principal: &caller.principal.key(),
            now: self.now(),
        };
        check(&caveats.list, &call).map_err(|Denial { caveat, reason }| match reason {
            DenialReason::Expired => Fault::new(Code::ECapAuth, "the credential is not valid")
                .because("the time of the macaroon is over"),
            DenialReason::NotAllowed => refusal(caveat),
        })
    }

    /// Counts a call and its bytes against the quotas, all or none.
    async fn charge_quotas(&self, caveats: &Caveats, bytes: usize) -> Result<(), Fault> {
        if caveats.quotas.is_empty() {
            return Ok(());
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let charged = caveats.quotas.iter().map(|(unit, limit, name)| LimitCheck {
            policy: QUOTA_POLICY.into(),
            key: hex::encode(name),
            // One window from 1970 to the end of the macaroon: the count never begins again, and is forgotten with it.
            rule: Rule::Window(Window {
                limit: *limit,
                window_secs: seconds(caveats.counted_until),
            }),
            cost: match unit {
                QuotaUnit::Ops => 1,
                QuotaUnit::Bytes => bytes,
            },
            shadow: false,
        });
        let asks = Asks {
            limits: charged.collect(),
            ..Asks::default()
        };
        let answered = self.host.admit(SERVER_TENANT, self.now(), asks).await;
        let answered = answered.map_err(host_fault)?;
        // The failure mode is the operator's word on limits. A condition of a credential holds or it does not.
        if answered.provenance.source == Source::FailureMode {
            return Err(host_fault(Unavailable::of(
                "the uses of the macaroon cannot be counted",
            )));
        }
        let answered = answered.answer;
        let mut counted = caveats.quotas.iter().zip(&answered.limits);
        match counted.find(|(_, limited)| !limited.allowed) {
            None => Ok(()),
            Some(((unit, limit, _), _)) => {
                let (unit, limit) = (*unit, *limit);
                Err(refusal(&Caveat::Quota { unit, limit }))
            }
        }
    }
}

/// Gives the refusal of a macaroon the codes that macaroons have on every plane.
pub(crate) fn named_for(caller: &Caller, mut fault: Fault) -> Fault {
    if caller.credential.kind != CredentialKind::Macaroon {
        return fault;
    }
    if fault.code == Code::Unauthorized {
        fault.code = Code::ECapAuth;
    } else if fault.code == Code::Forbidden {
        fault.code = Code::ECapScope;
    }
    fault
}

fn refusal(caveat: &Caveat) -> Fault {
    let message = "a condition of your macaroon forbids this call";
    Fault::new(Code::ECapScope, message).with("caveat", caveat.to_string())
}

/// Returns true if a condition cannot be judged without the topics of the call.
const fn speaks_of_topics(caveat: &Caveat) -> bool {
    matches!(caveat, Caveat::Topic { .. } | Caveat::TopicClass(_))
}

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_millis() / 1_000).unwrap_or(0).max(1)
}

/// Returns the sort of an operation on messages, as conditions name it.
fn mailbox_op(spec: &Spec) -> Option<MailboxOp> {
    if spec.plane != Plane::Mailbox {
        return None;
    }
    Some(match spec.name {
        "mailbox_send" | "mailbox_send_batch" => MailboxOp::Send,
        "mailbox_recv" | "mailbox_extend" | "mailbox_peek" | "mailbox_get_message" => {
            MailboxOp::Recv
        }
        "mailbox_ack" | "mailbox_ack_batch" => MailboxOp::Ack,
        "mailbox_nack" => MailboxOp::Nack,
        // What is new is for those who look after topics, until somebody decides otherwise.
        _ => MailboxOp::Admin,
    })
}
