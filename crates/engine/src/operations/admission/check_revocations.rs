//! Looks up which subjects are revoked.

use asyncgate_admission::{Answered, Registered};
use asyncgate_api::{
    CheckRevocations, CheckRevocationsOutput, RevocationVerdict, bounds::MAX_BATCH,
};
use asyncgate_core::admission::{RevocationCache, Subject};

use super::{Execute, Executed, at, host_fault, needed, one_or_many, provenance, subject, unix};
use crate::{Caller, Engine, Settings};

/// The most bytes that a subject takes in JSON.
const SUBJECT_BYTES: usize = 256;

impl Execute for CheckRevocations {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let is_one = input.subject.is_some();
        let one = || needed("subject", input.subject);
        let many = ("subjects", input.subjects);
        let (subjects, single) = one_or_many((one, is_one), many, MAX_BATCH)?;
        let subjects = subjects.iter().enumerate();
        let subjects =
            subjects.map(|(index, given)| subject::read(given).map_err(at(index, single)));
        let subjects: Vec<Subject> = subjects.collect::<Result<_, _>>()?;
        let host = &engine.host;
        let answers = host
            .is_revoked(caller.tenant, engine.now(), &subjects)
            .await
            .map_err(host_fault)?;
        let cache = host.settings().cache;
        let mut results: Vec<RevocationVerdict> = answers
            .into_iter()
            .map(|answered| verdict(answered, cache))
            .collect();
        Ok(match results.pop() {
            Some(one) if single => CheckRevocationsOutput {
                result: Some(one.result),
                reason: one.reason,
                revoked_at: one.revoked_at,
                cache_age_secs: one.cache_age_secs,
                provenance: Some(one.provenance),
                cache_ttl_secs: Some(one.cache_ttl_secs),
                max_staleness_secs: Some(one.max_staleness_secs),
                results: None,
            },
            last => {
                results.extend(last);
                CheckRevocationsOutput {
                    results: Some(results),
                    ..CheckRevocationsOutput::default()
                }
            }
        })
    }

    fn max_input_bytes(_: &Settings) -> Option<usize> {
        Some(MAX_BATCH * SUBJECT_BYTES)
    }
}

fn verdict(answered: Answered<Registered>, cache: RevocationCache) -> RevocationVerdict {
    let (result, revocation) = match answered.answer {
        Registered::Valid => ("valid", None),
        Registered::ValidCached => ("valid_cached", None),
        Registered::Revoked(revocation) => ("revoked", Some(revocation)),
    };
    RevocationVerdict {
        result: result.to_owned(),
        revoked_at: revocation.as_ref().map(|found| unix(found.revoked_at)),
        reason: revocation.and_then(|found| found.reason),
        cache_age_secs: answered.provenance.cache_age_secs,
        provenance: provenance(answered.provenance),
        cache_ttl_secs: cache.ttl_ms.unsigned_abs() / 1_000,
        max_staleness_secs: cache.max_staleness_ms.unsigned_abs() / 1_000,
    }
}
