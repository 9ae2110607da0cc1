//! The audit log: who was let in, who was not, and who changed what. One for each tenant, and one for the server.
//!
//! Invariants: entries are only appended, and forgotten from the oldest on; each has a link over the one before it, so
//! that nothing can be changed, left out or reordered unseen; times never run back within a log. An entry is one
//! line: whatever a caller sent is escaped and cut.
//!
//! ```text
//! link = BLAKE3("asyncgate.audit.v1", previous link, tenant id, seq, audit id, timestamp, event, severity,
//!               principal kind, principal id, ip, user agent, reason, corr id, canonical details)
//! ```

use std::{net::IpAddr, str::FromStr};

use crate::{
    AuditId, Ids, Json, Link, PrincipalKey, PrincipalKind, Seq, TenantId, Timestamp,
    line::one_line, preimage::Preimage,
};

/// The most details of an entry.
const MAX_DETAILS: usize = 16;

/// The events that are recorded. Stores keep their numbers, so a new event goes to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "the names say it, and they are those of the wire"
)]
pub enum Event {
    AuthSuccess,
    AuthFailure,
    AuthzFailure,
    RateLimitExceeded,
    QuotaExceeded,
    KeyCreated,
    KeyRotated,
    KeyRevoked,
    TokenIssued,
    TokenRefreshed,
    TokenRevoked,
    TokenReuseDetected,
    MacaroonMinted,
    MacaroonRevoked,
    TenantCreated,
    TenantChanged,
    ClientRegistered,
    IdentityAdded,
    TierChanged,
    RateLimitBypassGranted,
    RevocationAdded,
    RevocationRemoved,
    ProtectedKeyRefused,
    DataExported,
    DataErased,
    IdentityRemoved,
    ClientRemoved,
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 27] = [
        Self::AuthSuccess,
        Self::AuthFailure,
        Self::AuthzFailure,
        Self::RateLimitExceeded,
        Self::QuotaExceeded,
        Self::KeyCreated,
        Self::KeyRotated,
        Self::KeyRevoked,
        Self::TokenIssued,
        Self::TokenRefreshed,
        Self::TokenRevoked,
        Self::TokenReuseDetected,
        Self::MacaroonMinted,
        Self::MacaroonRevoked,
        Self::TenantCreated,
        Self::TenantChanged,
        Self::ClientRegistered,
        Self::IdentityAdded,
        Self::TierChanged,
        Self::RateLimitBypassGranted,
        Self::RevocationAdded,
        Self::RevocationRemoved,
        Self::ProtectedKeyRefused,
        Self::DataExported,
        Self::DataErased,
        Self::IdentityRemoved,
        Self::ClientRemoved,
    ];

    /// Returns the event's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AuthSuccess => "auth_success",
            Self::AuthFailure => "auth_failure",
            Self::AuthzFailure => "authz_failure",
            Self::RateLimitExceeded => "rate_limit_exceeded",
            Self::QuotaExceeded => "quota_exceeded",
            Self::KeyCreated => "key_created",
            Self::KeyRotated => "key_rotated",
            Self::KeyRevoked => "key_revoked",
            Self::TokenIssued => "token_issued",
            Self::TokenRefreshed => "token_refreshed",
            Self::TokenRevoked => "token_revoked",
            Self::TokenReuseDetected => "token_reuse_detected",
            Self::MacaroonMinted => "macaroon_minted",
            Self::MacaroonRevoked => "macaroon_revoked",
            Self::TenantCreated => "tenant_created",
            Self::TenantChanged => "tenant_changed",
            Self::ClientRegistered => "client_registered",
            Self::IdentityAdded => "identity_added",
            Self::TierChanged => "tier_changed",
            Self::RateLimitBypassGranted => "rate_limit_bypass_granted",
            Self::RevocationAdded => "revocation_added",
            Self::RevocationRemoved => "revocation_removed",
            Self::ProtectedKeyRefused => "protected_key_refused",
            Self::DataExported => "data_exported",
            Self::DataErased => "data_erased",
            Self::IdentityRemoved => "identity_removed",
            Self::ClientRemoved => "client_removed",
        }
    }

    /// Returns how much the event matters, unless whoever records it knows better.
    pub const fn severity(self) -> Severity {
        match self {
            Self::AuthFailure
            | Self::AuthzFailure
            | Self::RateLimitExceeded
            | Self::QuotaExceeded
            | Self::DataErased => Severity::Warning,
            Self::TokenReuseDetected | Self::ProtectedKeyRefused => Severity::Critical,
            Self::AuthSuccess
            | Self::KeyCreated
            | Self::KeyRotated
            | Self::KeyRevoked
            | Self::TokenIssued
            | Self::TokenRefreshed
            | Self::TokenRevoked
            | Self::MacaroonMinted
            | Self::MacaroonRevoked
            | Self::TenantCreated
            | Self::TenantChanged
            | Self::ClientRegistered
            | Self::IdentityAdded
            | Self::TierChanged
            | Self::RateLimitBypassGranted
            | Self::RevocationAdded
            | Self::RevocationRemoved
            | Self::DataExported
            | Self::IdentityRemoved
            | Self::ClientRemoved => Severity::Info,
        }
    }
}

/// The error for a text that is no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown event")]
pub struct UnknownEvent;

impl FromStr for Event {
    type Err = UnknownEvent;

    fn from_str(text: &str) -> Result<Self, UnknownEvent> {
        let mut all = Self::ALL.into_iter();
        all.find(|event| event.as_str() == text).ok_or(UnknownEvent)
    }
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// All is well.
    Info,
    /// Somebody was refused, or something was destroyed.
    Warning,
    /// Somebody should look at it now.
    Critical,
}

impl Severity {
    /// Every severity.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// Returns the severity's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The error for a text that is no severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown severity")]
pub struct UnknownSeverity;

impl FromStr for Severity {
    type Err = UnknownSeverity;

    fn from_str(text: &str) -> Result<Self, UnknownSeverity> {
        let mut all = Self::ALL.into_iter();
        all.find(|severity| severity.as_str() == text)
            .ok_or(UnknownSeverity)
    }
}

/// An entry that has no place yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The id.
    pub id: AuditId,
    /// The log that it belongs to: a tenant's, or the server's own.
    pub tenant: Option<TenantId>,
    /// The time of the event.
    pub at: Timestamp,
    /// The event.
    pub event: Event,
    /// How much it matters.
    pub severity: Severity,
    /// The principal that acted, if it is known.
    pub principal: Option<PrincipalKey>,
    /// The address from which it acted.
    pub ip: Option<IpAddr>,
    /// The program that says it sent the request.
    pub user_agent: Option<String>,
    /// The reason, in a word or a sentence.
    pub reason: Option<String>,
    /// The name of the request.
    pub corr_id: Option<String>,
    /// More facts: an object whose values are texts.
    pub details: Json,
}

impl Draft {
    /// Begins an entry.
    pub fn new(ids: &mut Ids, at: Timestamp, tenant: Option<TenantId>, event: Event) -> Self {
        Self {
            id: ids.audit(),
            tenant,
            at,
            event,
            severity: event.severity(),
            principal: None,
            ip: None,
            user_agent: None,
            reason: None,
            corr_id: None,
            details: object(&[]),
        }
    }

    /// Says who acted.
    #[must_use]
    pub fn by(mut self, principal: &PrincipalKey) -> Self {
        self.principal = Some(PrincipalKey {
            kind: principal.kind,
            id: one_line(&principal.id).into(),
        });
        self
    }

    /// Says from where, with which program and under which name the request came.
    #[must_use]
    pub fn from_request(
        mut self,
        ip: Option<IpAddr>,
        user_agent: Option<&str>,
        corr_id: Option<&str>,
    ) -> Self {
        self.ip = ip;
        self.user_agent = user_agent.map(one_line);
        self.corr_id = corr_id.map(one_line);
        self
    }

    /// Says why.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        self.reason = Some(one_line(reason));
        self
    }

    /// Says how much it matters, where that does not follow from the event.
    #[must_use]
    pub const fn of_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Adds facts. Names are the server's own, values may be a caller's. Those beyond the bound are left out.
    #[must_use]
    pub fn with(mut self, details: &[(&str, &str)]) -> Self {
        self.details = object(details);
        self
    }
}

/// Returns the name of a principal as entries have it, by which they are found.
pub fn recorded(principal_id: &str) -> String {
    one_line(principal_id)
}

/// Returns a JSON object of texts.
fn object(details: &[(&str, &str)]) -> Json {
    let details = details.iter().take(MAX_DETAILS);
    let members: serde_json::Map<_, _> = details
        .map(|(name, value)| ((*name).to_owned(), one_line(value).into()))
        .collect();
    Json::from_text(serde_json::Value::from(members).to_string()).unwrap_or_else(Json::null)
}

/// An entry in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The entry. Its time is that of the entry before it, if that was later.
    pub said: Draft,
    /// Its place, counted from 1.
    pub seq: Seq,
    /// The hash of the log up to and including it.
    pub link: Link,
}

impl Entry {
    /// Returns its place.
    pub const fn place(&self) -> Place {
        Place {
            seq: self.seq,
            link: self.link,
            at: self.said.at,
        }
    }
}

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The number of the entry there, 0 before the first.
    pub seq: Seq,
    /// Its link.
    pub link: Link,
    /// Its time.
    pub at: Timestamp,
}

impl Place {
    /// Returns the entry that follows here.
    #[must_use]
    pub fn then(&self, draft: &Draft) -> Entry {
        let said = Draft {
            // Entries may be recorded a moment after the event and out of order.
            at: draft.at.max(self.at),
            ..draft.clone()
        };
        let seq = self.seq + 1;
        let link = self.link_of(seq, &said);
        Entry { said, seq, link }
    }

    fn link_of(&self, seq: Seq, said: &Draft) -> Link {
        let mut parts = Preimage::new("asyncgate.audit.v1");
        let mut add = |part: Option<&[u8]>| parts.add(part.unwrap_or_default());
        let ip = said.ip.map(|ip| ip.to_string());
        let principal = said.principal.as_ref();
        add(Some(self.link.as_bytes()));
        add(said.tenant.as_ref().map(|tenant| &tenant.as_bytes()[..]));
        add(Some(&seq.to_be_bytes()));
        add(Some(said.id.as_bytes()));
        add(Some(&said.at.as_millis().to_be_bytes()));
        add(Some(said.event.as_str().as_bytes()));
        add(Some(said.severity.as_str().as_bytes()));
        add(principal.map(|principal| PrincipalKind::as_str(principal.kind).as_bytes()));
        add(principal.map(|principal| principal.id.as_bytes()));
        add(ip.as_ref().map(|ip| ip.as_bytes()));
        add(said.user_agent.as_ref().map(|text| text.as_bytes()));
        add(said.reason.as_ref().map(|text| text.as_bytes()));
        add(said.corr_id.as_ref().map(|text| text.as_bytes()));
        parts.add_json(&said.details);
        Link::from_bytes(*parts.hash().as_bytes())
    }
}

/// A log: where it ends, and where what is kept of it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Log {
    /// The last entry.
    pub head: Place,
    /// The last entry that was forgotten. The first that is kept follows here.
    pub cut: Place,
}

impl Log {
    /// Appends an entry.
    pub fn append(&mut self, draft: &Draft) -> Entry {
        let entry = self.head.then(draft);
        self.head = entry.place();
        entry
    }
}

/// The decision to forget the oldest entries of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The log.
    pub tenant: Option<TenantId>,
    /// The last entry to be forgotten.
    pub through: Place,
}

/// Decides which of the oldest entries of a log can go: those from before a time. Returns nothing if all stay.
pub fn cut(tenant: Option<TenantId>, oldest: &[Entry], before: Timestamp) -> Option<Cut> {
    // Times never run back in a log, so the first that stays ends the search.
    let gone = oldest.iter().take_while(|entry| entry.said.at < before);
    let through = gone.last()?.place();
    Some(Cut { tenant, through })
}

/// Checks a log entry by entry, from the first that is kept.
#[derive(Debug, Clone, Copy)]
pub struct LogCheck {
    log: Log,
    at: Place,
}

impl LogCheck {
    /// Begins the check of a log.
    pub const fn new(log: Log) -> Self {
        Self { log, at: log.cut }
    }

    /// Checks the next entry. The error says what is wrong with it.
    pub fn push(&mut self, entry: &Entry) -> Result<(), &'static str> {
        if entry.seq != self.at.seq + 1 {
            return Err("an entry before it is missing");
        }
        if entry.said.at < self.at.at {
            return Err("it is older than the entry before it");
        }
        if *entry != self.at.then(&entry.said) {
            return Err("its link does not follow from what it says and from the entry before it");
        }
        self.at = entry.place();
        Ok(())
    }

    /// Ends the check after the last entry.
    pub fn finish(&self) -> Result<(), &'static str> {
        if self.at == self.log.head {
            Ok(())
        } else {
            Err("the log does not end where its head says")
        }
    }
}
