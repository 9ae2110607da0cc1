//! Verifies a call by its warrants.
//!
//! Checks that need no memory come first, and cost no I/O. Then the host is asked, in the order in which
//! attempts must be charged: revocations, which change nothing; rates, which count every attempt that gets
//! there; and nonces, which are used only if all else passed. Rates and nonces are one question, so that
//! they are one commit.

use asyncgate_admission::{Registered, Unavailable};
use asyncgate_api::{self as api, VerifyWarrant, VerifyWarrantOutput, WarrantCheck, Warrants};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, Increment, MAX_SECS, NonceCheck, NonceResult, Subject, SubjectKind, Together,
    },
    hex,
};
use asyncgate_store::Stopwatch;
use asyncgate_warrants::{
    self as warrants, Call, CheckName, HostCheck, MAX_NONCE_SECS, Pop, Reason, Verification,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

use super::{Execute, Executed, provenance, unix};
use crate::{Caller, CryptoWork, Engine, Fault, Signature};

// A chain that would need a longer memory is refused before the host is asked.
const _: () = assert!(MAX_NONCE_SECS == MAX_SECS);

impl Execute for VerifyWarrant {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let chain = match input.warrant {
            Warrants::One(one) => vec![one],
            Warrants::Chain(chain) => chain,
        };
        let chain = chain.iter().map(|text| decode("warrant", text));
        let chain: Vec<Vec<u8>> = chain.collect::<Result<_, _>>()?;
        let pop = input.pop.as_deref().map(proof).transpose()?;
        let args = input.args.unwrap_or_default();
        let now = engine.now();
        let call = Call {
            warrants: &chain,
            tool: &input.tool,
            args: &args,
            pop: pop.as_ref(),
            now: unix(now),
        };
        let found = engine.verify_warrants(&call);
        let mut report = Report::new(&found);
        if !found.host.is_empty() {
            report.output.path = "slow".to_owned();
            engine
                .ask_host(caller.tenant, now, &found.host, &mut report)
                .await;
        }
        Ok(report.output)
    }
}

fn decode(field: &str, text: &str) -> Result<Vec<u8>, Fault> {
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| {
        let message = format!("{field} must be base64url without padding");
        Fault::bad_request(message).with("field", field)
    })
}

fn proof(text: &str) -> Result<[u8; 64], Fault> {
    decode("pop", text)?
        .try_into()
        .map_err(|_| Fault::bad_request("pop must have 64 bytes").with("field", "pop"))
}

impl Engine {
    /// Verifies what needs no memory, and counts the signatures.
    fn verify_warrants(&self, call: &Call<'_>) -> Verification {
        let watch = Stopwatch::start();
        let found = warrants::verify(&self.settings().warrants, call);
        let metrics = self.crypto_metrics();
        metrics.took(CryptoWork::Verify(Signature::Ed25519), watch.elapsed());
        for check in &found.checks {
            if check.name == CheckName::Signature {
                metrics.verified(Signature::Ed25519, check.passed);
            }
        }
        found
    }

    /// Asks the host what a chain wants to know, up to the first refusal.
    async fn ask_host(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asked: &[HostCheck],
        report: &mut Report,
    ) {
        if self.ask_registry(tenant, now, asked, report).await {
            self.ask_memory(tenant, now, asked, report).await;
        }
    }

    /// Checks that nothing of the chain is revoked.
    async fn ask_registry(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asked: &[HostCheck],
        report: &mut Report,
    ) -> bool {
        let (checks, subjects): (Vec<&HostCheck>, Vec<Subject>) =
            asked.iter().filter_map(revocation).unzip();
        let Some(first) = checks.first() else {
            return true;
        };
        let answers = match self.host.is_revoked(tenant, now, &subjects).await {
            Ok(answers) => answers,
            Err(failure) => {
                report.unavailable(first, &failure);
                return false;
            }
        };
        let mut valid = true;
        for (check, answered) in checks.into_iter().zip(answers) {
            let revoked = matches!(answered.answer, Registered::Revoked(_));
            let detail = revoked.then_some("it is revoked");
            report.note(check, detail, Some(provenance(answered.provenance)), None);
            valid &= !revoked;
        }
        valid
    }

    /// Counts the attempt, and uses its nonces if every rate allows it.
    async fn ask_memory(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asked: &[HostCheck],
        report: &mut Report,
    ) {
        let (rates, counters): (Vec<&HostCheck>, Vec<Increment>) =
            asked.iter().filter_map(increment).unzip();
        let (uses, nonces): (Vec<&HostCheck>, Vec<NonceCheck>) =
            asked.iter().filter_map(nonce).unzip();
        let Some(first) = rates.first().or(uses.first()) else {
            return;
        };
        let asks = Asks {
            counters,
            nonces,
            together: Together::All,
            ..Asks::default()
        };
        let answered = match self.host.admit(tenant, now, asks).await {
            Ok(answered) => answered,
            Err(failure) => return report.unavailable(first, &failure),
        };
        let from = provenance(answered.provenance);
        let verdicts = answered.answer;
        let mut within = true;
        for (check, counted) in rates.into_iter().zip(&verdicts.counters) {
            let detail = (!counted.allowed).then_some("there were too many calls in this window");
            report.note(
                check,
                detail,
                Some(from.clone()),
                Some(counted.retry_after_secs),
            );
            within &= counted.allowed;
        }
        if !within {
            return;
        }
        for (check, result) in uses.into_iter().zip(&verdicts.nonces) {
            let detail = (*result != NonceResult::Accepted).then_some("it was used before");
            report.note(check, detail, Some(from.clone()), None);
        }
    }
}

fn revocation(check: &HostCheck) -> Option<(&HostCheck, Subject)> {
    let HostCheck::Revocation { subject, .. } = check else {
        return None;
    };
    let kind = match subject.kind {
        warrants::SubjectKind::WarrantId => SubjectKind::WarrantId,
        warrants::SubjectKind::IssuerKey => SubjectKind::IssuerKey,
        warrants::SubjectKind::HolderKey => SubjectKind::HolderKey,
    };
    let hash = subject.hash;
    Some((check, Subject { kind, hash }))
}

fn increment(check: &HostCheck) -> Option<(&HostCheck, Increment)> {
    let HostCheck::Rate {
        namespace,
        limit,
        window_secs,
        ..
    } = check
    else {
        return None;
    };
    let increment = Increment {
        namespace: *namespace,
        window_secs: *window_secs,
        limit: *limit,
        by: 1,
    };
    Some((check, increment))
}

fn nonce(check: &HostCheck) -> Option<(&HostCheck, NonceCheck)> {
    let HostCheck::Nonce {
        namespace,
        nonce,
        ttl_secs,
        ..
    } = check
    else {
        return None;
    };
    let nonce = NonceCheck {
        namespace: *namespace,
        nonce: nonce.clone(),
        ttl_secs: *ttl_secs,
    };
    Some((check, nonce))
}

/// The answer while it is being made.
struct Report {
    output: VerifyWarrantOutput,
}

impl Report {
    /// Starts with the checks that need no host.
    fn new(found: &Verification) -> Self {
        let checks = found.checks.iter().map(|check| WarrantCheck {
            check: check.name.as_str().to_owned(),
            warrant_id: check.warrant.to_string(),
            result: result(check.passed),
            detail: check.detail.clone(),
            provenance: None,
        });
        let refusal = found.refusal.as_ref();
        Self {
            output: VerifyWarrantOutput {
                decision: match refusal {
                    Some(_) => "reject".to_owned(),
                    None => "accept".to_owned(),
                },
                path: "fast".to_owned(),
                reason: refusal.map(|refusal| refusal.reason.as_str().to_owned()),
                message: refusal.map(|refusal| refusal.message.clone()),
                retry_after_secs: None,
                warrant_id: found.chain.last().map(ToString::to_string),
                chain: found.chain.iter().map(ToString::to_string).collect(),
                holder: found.holder.as_ref().map(|key| hex::encode(key)),
                expires_at: found.expires_at,
                pop: match found.pop {
                    Pop::Verified => "verified".to_owned(),
                    Pop::Absent => "absent".to_owned(),
                },
                checks: checks.collect(),
            },
        }
    }

    /// Notes the host's checks. The first refusal is the reason; of several of one kind, the longest wait
    /// counts.
    fn note(
        &mut self,
        check: &HostCheck,
        failed: Option<&str>,
        from: Option<api::Provenance>,
        wait: Option<u64>,
    ) {
        self.output.checks.push(WarrantCheck {
            check: check.name().as_str().to_owned(),
            warrant_id: check.warrant().to_string(),
            result: result(failed.is_none()),
            detail: failed.map(str::to_owned),
            provenance: from,
        });
        if let Some(detail) = failed {
            self.reject(check.refusal(), check, detail, wait);
        }
    }

    /// Rejects because the host could not be asked. Without it nobody passes.
    fn unavailable(&mut self, check: &HostCheck, failure: &Unavailable) {
        tracing::warn!(
            cause = failure.cause,
            "a call was rejected because the host does not answer"
        );
        let detail = "the backend of admission does not answer";
        self.output.checks.push(WarrantCheck {
            check: check.name().as_str().to_owned(),
            warrant_id: check.warrant().to_string(),
            result: result(false),
            detail: Some(detail.to_owned()),
            provenance: None,
        });
        let wait = Some(failure.retry_after_secs.max(1));
        self.reject(Reason::HostUnavailable, check, detail, wait);
    }

    fn reject(&mut self, reason: Reason, check: &HostCheck, detail: &str, wait: Option<u64>) {
        let output = &mut self.output;
        output.retry_after_secs = output.retry_after_secs.max(wait);
        if output.reason.is_none() {
            output.decision = "reject".to_owned();
            output.reason = Some(reason.as_str().to_owned());
            let (name, warrant) = (check.name().as_str(), check.warrant());
            output.message = Some(format!("{warrant}: {name}: {detail}"));
        }
    }
}

fn result(passed: bool) -> String {
    match passed {
        true => "pass".to_owned(),
        false => "fail".to_owned(),
    }
}
