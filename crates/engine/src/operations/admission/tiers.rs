//! Tiers of clients, for operators.

use std::collections::BTreeMap;

use asyncgate_api::{ClearTier, GetTier, ListTiers, ListTiersOutput, SetTier, TierRecord};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{ClientTier, Tier},
    identity::audit,
};
use serde_json::json;

use super::{Execute, Executed};
use crate::{Caller, Engine, Event, Fault, input};

impl Execute for SetTier {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let now = engine.now();
        let tier = ClientTier {
            client: input::name("client", input.client)?,
            tier: tier(&input.tier)?,
            reason: input::text("reason", input.reason)?,
            until: input
                .until
                .as_deref()
                .map(|text| until(text, now))
                .transpose()?,
        };
        engine.tiers.set(caller.tenant, now, tier.clone()).await?;
        engine.note_tier(caller, &tier.client, tier.tier, tier.reason.as_deref());
        Ok(record(tier))
    }
}

impl Execute for GetTier {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let client = input::name("client", input.client)?;
        let found = engine.tiers.get(caller.tenant, engine.now(), &client);
        Ok(match found.await? {
            Some(set) => record(set),
            None => engine.configured(client),
        })
    }
}

impl Execute for ClearTier {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let client = input::name("client", input.client)?;
        let now = engine.now();
        let gone = engine.tiers.clear(caller.tenant, now, &client).await?;
        let configured = engine.configured(client);
        if gone {
            let tier = Tier::named(&configured.tier).unwrap_or_default();
            engine.note_tier(caller, &configured.client, tier, None);
        }
        Ok(configured)
    }
}

impl Execute for ListTiers {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let limit = engine.page_size(input.limit)?;
        let listed = engine.list_tiers(caller.tenant, input.cursor, limit + 1);
        let mut tiers = listed.await?;
        let more = tiers.len() > limit;
        tiers.truncate(limit);
        let last = tiers.last().map(|record| record.client.clone());
        Ok(ListTiersOutput {
            tiers,
            next_cursor: last.filter(|_| more),
        })
    }
}

impl Engine {
    /// Returns the tier that the settings give a client.
    fn configured(&self, client: String) -> TierRecord {
        let tier = self.settings().limits.tier(&client);
        record(ClientTier {
            client,
            tier,
            reason: None,
            until: None,
        })
    }

    /// Lists clients by name: those of the settings, and those whose tier was set at run time, which
    /// counts more.
    async fn list_tiers(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<TierRecord>, Fault> {
        let now = self.now();
        let set = self.tiers.list(tenant, after.clone(), limit).await?;
        // A full page of the store may not be all, so names behind its last one must wait for the next
        // page.
        let end = (set.len() == limit).then(|| set.last().map(|set| set.client.clone()));
        let end = end.flatten();
        let settings = self.settings();
        let configured = settings.limits.clients().filter(|(client, _)| {
            after.as_deref().is_none_or(|after| *client > after)
                && end.as_deref().is_none_or(|end| *client <= end)
        });
        let mut listed: BTreeMap<String, TierRecord> = configured
            .map(|(client, _)| (client.to_owned(), self.configured(client.to_owned())))
            .collect();
        for set in set.into_iter().filter(|set| set.holds(now)) {
            listed.insert(set.client.clone(), record(set));
        }
        Ok(listed.into_values().take(limit).collect())
    }

    /// Records, logs and publishes for operators that a client's tier changed.
    fn note_tier(&self, caller: &Caller, client: &str, tier: Tier, reason: Option<&str>) {
        let tier = tier.as_str();
        let draft = self.draft(caller, audit::Event::TierChanged);
        let draft = draft.with(&[("client", client), ("tier", tier)]);
        self.audit(match reason {
            Some(reason) => draft.because(reason),
            None => draft,
        });
        tracing::info!(event = "tier_changed", tenant = %caller.tenant, tier, "a client's tier changed");
        let body = json!({
            "event": "tier_changed",
            "tenant_id": caller.tenant.to_string(),
            "principal_kind": caller.principal.kind.as_str(),
            "principal_id": &*caller.principal.id,
            "client": client,
            "tier": tier,
            "reason": reason,
        });
        self.events.publish(Event {
            tenant: Some(caller.tenant),
            topic: "admission.tier",
            body,
        });
    }
}

fn tier(text: &str) -> Result<Tier, Fault> {
    let wrong = || {
        let message = "tier must be standard, trusted, batch or throttled";
        Fault::bad_request(message).with("field", "tier")
    };
    Tier::named(text).ok_or_else(wrong)
}

fn until(text: &str, now: Timestamp) -> Result<Timestamp, Fault> {
    let wrong = |message: String| Fault::bad_request(message).with("field", "until");
    let until: Timestamp = text
        .parse()
        .map_err(|error| wrong(format!("until is {error}")))?;
    match until > now {
        true => Ok(until),
        false => Err(wrong("until is over already".to_owned())),
    }
}

fn record(tier: ClientTier) -> TierRecord {
    TierRecord {
        client: tier.client,
        tier: tier.tier.as_str().to_owned(),
        reason: tier.reason,
        until: tier.until.map(|until| until.to_string()),
    }
}
