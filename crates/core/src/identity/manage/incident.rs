//! Incidents: everything that lets somebody into a tenant, or act as a principal, is ended at once or given an
//! end.
//!
//! A tenant may have any number of credentials, so this is done in steps. Each step is given some records and
//! says how far it came.

use super::{Actor, Managed, decided, keys::others};
use crate::{
    Env, RecordId, Timestamp,
    identity::{
        ApiKey, KeyStanding, Macaroon, Record, Rejection, TokenFamily,
        audit::{Draft, Event},
        key::after,
    },
};

/// How credentials end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Keys, macaroons and tokens are revoked.
    Now,
    /// Keys are valid for so many seconds more, so that their bearers have time to get others.
    After {
        /// The seconds.
        overlap_secs: u64,
    },
}

impl End {
    /// Returns the first moment at which credentials are not valid any more.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::After { overlap_secs } => after(now, overlap_secs),
        }
    }
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// How many of the given records it has dealt with, from the first on.
    pub seen: usize,
    /// The records that it changed, as they are now.
    pub ended: Vec<Record>,
    /// The keys that it left alone, and why.
    pub kept: Vec<(RecordId, Kept)>,
}

/// Why a key was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is the one that the actor uses. Without it the actor could not go on.
    Own,
    /// It is the last one of a platform admin.
    LastPlatformAdmin,
    /// It has rights that the actor does not have.
    Beyond,
}

impl Kept {
    /// Returns the reason's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::LastPlatformAdmin => "last_platform_admin",
            Self::Beyond => "beyond_your_rights",
        }
    }
}

/// The surroundings of a step.
#[derive(Debug, Clone, Copy)]
pub struct Incident<'a> {
    /// Who acts.
    pub actor: &'a Actor,
    /// The credential that the actor uses, if it has a record.
    pub own: Option<RecordId>,
    /// How credentials end.
    pub end: End,
    /// The two keys of platform admins that are valid the longest.
    pub platform_keys: &'a [ApiKey],
}

impl Incident<'_> {
    /// Ends credentials. What has ended already, or is no credential, is passed over.
    ///
    /// Two keys of platform admins do not tell whether a third is left, so a step ends before it would touch a
    /// second one.
    pub fn step(&self, env: &mut Env, records: &[Option<Record>]) -> Managed<Step> {
        let mut step = Step::default();
        let mut audit = Vec::new();
        let mut platform_keys = 0;
        for record in records {
            if let Some(record) = record {
                platform_keys += usize::from(record.platform_until().is_some());
                if platform_keys > 1 {
                    break;
                }
                self.actor
                    .sees(Some(record))
                    .map_err(|_| Rejection::AnotherTenant)?;
                match self.ended(env.now, record) {
                    Ok(Some((record, event))) => {
                        audit.extend(self.tell(env, &record, event));
                        step.ended.push(record);
                    }
                    Ok(None) => {}
                    Err(kept) => step.kept.push((record.key().id, kept)),
                }
            }
            step.seen += 1;
        }
        let put = step.ended.clone();
        Ok(decided(step, put, audit))
    }

    /// Returns a record as it is once it has its end, with the event that tells of it; nothing if it has an end
    /// that is as early.
    fn ended(&self, now: Timestamp, record: &Record) -> Result<Option<(Record, Event)>, Kept> {
        let revoked_at = Some(now);
        Ok(match (record, self.end) {
            (Record::ApiKey(key), _) => self.ended_key(now, key)?,
            (Record::Macaroon(macaroon), End::Now) if macaroon.revoked_at.is_none() => {
                let macaroon = Macaroon {
                    revoked_at,
                    ..macaroon.clone()
                };
                Some((Record::Macaroon(macaroon), Event::MacaroonRevoked))
            }
            (Record::TokenFamily(family), End::Now) if family.revoked_at.is_none() => {
                let family = TokenFamily {
                    revoked_at,
                    ..family.clone()
                };
                Some((Record::TokenFamily(family), Event::TokenRevoked))
            }
            (
                Record::Macaroon(_)
                | Record::TokenFamily(_)
                | Record::Tenant(_)
                | Record::OauthClient(_)
                | Record::IdentityLink(_)
                | Record::AuthorizationCode(_)
                | Record::RefreshToken(_),
                _,
            ) => None,
        })
    }

    fn ended_key(&self, now: Timestamp, key: &ApiKey) -> Result<Option<(Record, Event)>, Kept> {
        let until = self.end.at(now);
        // It may have ended, or end before that by itself.
        if key.life().standing(until) != KeyStanding::Valid {
            return Ok(None);
        }
        if self.own == Some(key.id) && self.end == End::Now {
            return Err(Kept::Own);
        }
        if self.actor.must_have(key.role, key.scopes).is_err() {
            return Err(Kept::Beyond);
        }
        if key.is_platform_admin() && others(self.platform_keys, key, until) == 0 {
            return Err(Kept::LastPlatformAdmin);
        }
        let (revoked_at, expires_at, event) = match self.end {
            End::Now => (Some(now), key.expires_at, Event::KeyRevoked),
            End::After { .. } => (None, Some(until), Event::KeyRotated),
        };
        let ended = ApiKey {
            revoked_at,
            expires_at,
            ..key.clone()
        };
        Ok(Some((Record::ApiKey(ended), event)))
    }

    fn tell(&self, env: &mut Env, record: &Record, event: Event) -> Vec<Draft> {
        let id = record.key().id.to_string();
        let name = match record {
            Record::Macaroon(_) => "macaroon_id",
            Record::TokenFamily(_) => "family",
            Record::ApiKey(_)
            | Record::Tenant(_)
            | Record::OauthClient(_)
            | Record::IdentityLink(_)
            | Record::AuthorizationCode(_)
            | Record::RefreshToken(_) => "key_id",
        };
        let principal = record.principal().map(ToString::to_string);
        let details = [
            (name, id.as_str()),
            ("for", principal.as_deref().unwrap_or_default()),
            ("of_all", "true"),
        ];
        self.actor.tell(env, record.tenant(), event, &details)
    }
}
