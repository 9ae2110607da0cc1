//! Uses nonces.

use asyncgate_api::{
    self as api, CheckNonces, CheckNoncesInput, CheckNoncesOutput, NonceVerdict,
    bounds::{MAX_BATCH, MAX_NONCE_BYTES},
};
use asyncgate_core::admission::{self, Asks, NonceCheck, NonceResult};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

use super::{Execute, Executed, at, hex64, host_fault, needed, one_or_many, provenance, seconds};
use crate::{Caller, Engine, Fault, Settings};

const _: () = assert!(
    MAX_NONCE_BYTES == admission::MAX_NONCE_BYTES,
    "the rule's own bound"
);
/// The most bytes that a check takes in JSON.
const CHECK_BYTES: usize = 512;

impl Execute for CheckNonces {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let (nonces, single) = read(input)?;
        let asks = Asks {
            nonces,
            ..Asks::default()
        };
        let answered = engine.host.admit(caller.tenant, engine.now(), asks).await;
        let answered = answered.map_err(host_fault)?;
        let provenance = provenance(answered.provenance);
        let verdict = |result: NonceResult| {
            let (result, first_seen) = match result {
                NonceResult::Accepted => ("accepted", None),
                NonceResult::Replay { first_seen } => ("replay", first_seen),
            };
            NonceVerdict {
                result: result.to_owned(),
                first_seen,
                provenance: provenance.clone(),
            }
        };
        let mut results: Vec<NonceVerdict> =
            answered.answer.nonces.into_iter().map(verdict).collect();
        Ok(match results.pop() {
            Some(one) if single => CheckNoncesOutput {
                result: Some(one.result),
                first_seen: one.first_seen,
                provenance: Some(one.provenance),
                results: None,
            },
            last => {
                results.extend(last);
                CheckNoncesOutput {
                    results: Some(results),
                    ..CheckNoncesOutput::default()
                }
            }
        })
    }

    fn max_input_bytes(_: &Settings) -> Option<usize> {
        Some(MAX_BATCH * CHECK_BYTES)
    }
}

fn read(input: CheckNoncesInput) -> Result<(Vec<NonceCheck>, bool), Fault> {
    let CheckNoncesInput {
        namespace,
        nonce,
        ttl_secs,
        checks,
    } = input;
    let is_one = namespace.is_some() || nonce.is_some() || ttl_secs.is_some();
    let one = || {
        Ok(api::NonceCheck {
            namespace: needed("namespace", namespace)?,
            nonce: needed("nonce", nonce)?,
            ttl_secs: needed("ttl_secs", ttl_secs)?,
        })
    };
    let (checks, single) = one_or_many((one, is_one), ("checks", checks), MAX_BATCH)?;
    let nonces = checks.into_iter().enumerate();
    let nonces = nonces.map(|(index, check)| check_one(&check).map_err(at(index, single)));
    Ok((nonces.collect::<Result<_, _>>()?, single))
}

fn check_one(check: &api::NonceCheck) -> Result<NonceCheck, Fault> {
    let nonce = BASE64_URL_SAFE_NO_PAD.decode(&check.nonce).ok();
    let nonce = nonce.filter(|nonce| (1..=MAX_NONCE_BYTES).contains(&nonce.len()));
    let nonce = nonce.ok_or_else(|| {
        let message =
            format!("nonce must be 1 to {MAX_NONCE_BYTES} bytes in base64url without padding");
        Fault::bad_request(message).with("field", "nonce")
    })?;
    Ok(NonceCheck {
        namespace: hex64("namespace", &check.namespace)?,
        nonce,
        ttl_secs: seconds("ttl_secs", check.ttl_secs)?,
    })
}
