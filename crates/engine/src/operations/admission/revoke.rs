//! Revokes a subject.

use asyncgate_api::{Code, Revoke, RevokeOutput};
use asyncgate_core::{admission::Revocation, identity::audit};
use serde_json::json;

use super::{Execute, Executed, host_fault, subject, unix};
use crate::{Caller, Engine, Event, Fault, input};

impl Execute for Revoke {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let subject = subject::read(&input.subject)?;
        let reason = input::text("reason", input.reason)?;
        if engine.host.settings().protected.covers(&subject) {
            return Err(engine.refuse_to_revoke(caller, subject));
        }
        let revocation = Revocation {
            subject,
            reason,
            revoked_at: engine.now(),
        };
        let (revocation, created) = engine
            .host
            .revoke(caller.tenant, revocation)
            .await
            .map_err(host_fault)?;
        let output = RevokeOutput {
            subject: subject::show(subject),
            reason: revocation.reason,
            revoked_at: unix(revocation.revoked_at),
            created,
        };
        if created {
            engine.log_revocation(audit::Event::RevocationAdded, caller, subject);
        }
        Ok(output)
    }

    fn created(output: &RevokeOutput) -> bool {
        output.created
    }
}

impl Engine {
    /// Refuses to revoke a key that everything rests on, and warns the operator of the attempt.
    fn refuse_to_revoke(
        &self,
        caller: &Caller,
        subject: asyncgate_core::admission::Subject,
    ) -> Fault {
        self.metrics.admission.protected_keys.inc();
        tracing::error!(
            event = "protected_key_refused",
            severity = "critical",
            tenant = %caller.tenant,
            %subject,
            "somebody tried to revoke a protected key"
        );
        self.publish_revocation(audit::Event::ProtectedKeyRefused, caller, subject);
        let message = "the settings say that this key cannot be revoked";
        Fault::new(Code::ProtectedKey, message)
    }

    /// Records, logs and publishes for operators what was done about a subject, and by whom.
    pub(super) fn log_revocation(
        &self,
        event: audit::Event,
        caller: &Caller,
        subject: asyncgate_core::admission::Subject,
    ) {
        tracing::info!(
            event = event.as_str(),
            tenant = %caller.tenant,
            principal = %caller.principal.key(),
            %subject,
            "the list of revoked subjects changed"
        );
        self.publish_revocation(event, caller, subject);
    }

    fn publish_revocation(
        &self,
        event: audit::Event,
        caller: &Caller,
        subject: asyncgate_core::admission::Subject,
    ) {
        let draft = self.draft(caller, event);
        self.audit(draft.with(&[("subject", &subject.to_string())]));
        let body = json!({
            "event": event.as_str(),
            "tenant_id": caller.tenant.to_string(),
            "principal_kind": caller.principal.kind.as_str(),
            "principal_id": &*caller.principal.id,
            "subject": subject.to_string(),
        });
        self.events.publish(Event {
            tenant: Some(caller.tenant),
            topic: "admission.revocation",
            body,
        });
    }
}
