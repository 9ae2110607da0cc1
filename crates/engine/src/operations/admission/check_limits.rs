//! Checks calls of others against limits.

use asyncgate_api::{
    self as api, CheckLimits, CheckLimitsOutput, Code, LimitVerdict,
    bounds::{MAX_LIMIT_CHECKS, MAX_LIMIT_KEY_BYTES},
};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, LimitCheck, Limited, Limits, Rule, Standing, Tier},
};

use super::{Execute, Executed, at, host_fault, needed, one_or_many, provenance, unix};
use crate::{
    Caller, Engine, Fault,
    rate_headers::{Header, rate_headers, window_secs},
};

/// A limit to ask, with the parts that the answer repeats.
struct Asked {
    policy: String,
    tier: Option<Tier>,
    check: LimitCheck,
}

impl Execute for CheckLimits {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let flag = |flag: Option<api::Flag>| flag.is_some_and(|flag| flag.0);
        let (peek, enforce) = (flag(input.peek), flag(input.enforce));
        let is_one = input.policy.is_some() || input.key.is_some() || input.cost.is_some();
        let one = || {
            Ok(api::LimitCheck {
                policy: needed("policy", input.policy)?,
                key: needed("key", input.key)?,
                cost: input.cost,
            })
        };
        let many = ("checks", input.checks);
        let (checks, single) = one_or_many((one, is_one), many, MAX_LIMIT_CHECKS)?;
        let now = engine.now();
        let limits = &engine.settings().limits;
        let mut asked = Vec::with_capacity(checks.len());
        for (index, check) in checks.into_iter().enumerate() {
            let read = engine.read_check(caller.tenant, now, limits, check).await;
            asked.push(read.map_err(at(index, single))?);
        }
        let output = match asked.pop() {
            Some(one) if single => engine.ask_one(caller.tenant, now, peek, one).await?,
            last => {
                asked.extend(last);
                engine.ask_many(caller.tenant, now, peek, asked).await?
            }
        };
        match output.allowed || !enforce {
            true => Ok(output),
            false => Err(refusal(output)),
        }
    }

    fn headers(output: &CheckLimitsOutput) -> Vec<Header> {
        output.rate_headers.clone()
    }
}

impl Engine {
    /// Finds the rule of a check for its key.
    async fn read_check(
        &self,
        tenant: TenantId,
        now: Timestamp,
        limits: &Limits,
        check: api::LimitCheck,
    ) -> Result<Asked, Fault> {
        if !(1..=MAX_LIMIT_KEY_BYTES).contains(&check.key.len()) {
            let message = format!("key must have 1 to {MAX_LIMIT_KEY_BYTES} bytes");
            return Err(Fault::bad_request(message).with("field", "key"));
        }
        let tier = match limits.is_tiered(&check.policy) {
            true => self.tiers.of(tenant, now, limits, &check.key).await,
            false => Tier::default(),
        };
        let resolved = limits.resolve(&check.policy, tier).map_err(|_| {
            Fault::new(Code::UnknownPolicy, "there is no policy of this name")
                .with("policy", check.policy.as_str())
        })?;
        let cost = check.cost.unwrap_or(1);
        if matches!(resolved.rule, Rule::Delay(_)) && !matches!(cost, 0 | 1) {
            let message = "cost must be 1: a sequential_delay takes one attempt at a time";
            return Err(Fault::bad_request(message).with("field", "cost"));
        }
        Ok(Asked {
            policy: check.policy,
            tier: resolved.tier,
            check: LimitCheck {
                policy: resolved.policy,
                key: check.key,
                rule: resolved.rule,
                cost,
                shadow: resolved.shadow,
            },
        })
    }

    async fn ask_one(
        &self,
        tenant: TenantId,
        now: Timestamp,
        peek: bool,
        asked: Asked,
    ) -> Result<CheckLimitsOutput, Fault> {
        if peek {
            let mut output = self.ask_many(tenant, now, peek, vec![asked]).await?;
            let verdict = output.results.as_mut().and_then(Vec::pop);
            let verdict =
                verdict.ok_or_else(|| Fault::new(Code::Internal, "the limit has no answer"))?;
            let headers = rate_headers([&verdict]);
            return Ok(CheckLimitsOutput::one(verdict, headers));
        }
        let answered = self.host.check_limit(tenant, now, &asked.check).await;
        let answered = answered.map_err(host_fault)?;
        let from = provenance(answered.provenance);
        let verdict = self.verdict(asked, now, answered.answer, from);
        let headers = rate_headers([&verdict]);
        Ok(CheckLimitsOutput::one(verdict, headers))
    }

    async fn ask_many(
        &self,
        tenant: TenantId,
        now: Timestamp,
        peek: bool,
        asked: Vec<Asked>,
    ) -> Result<CheckLimitsOutput, Fault> {
        let asks = Asks {
            limits: asked.iter().map(|asked| asked.check.clone()).collect(),
            peek,
            ..Asks::default()
        };
        let answered = self.host.admit(tenant, now, asks).await;
        let answered = answered.map_err(host_fault)?;
        let from = provenance(answered.provenance);
        let verdicts = asked.into_iter().zip(answered.answer.limits);
        let verdicts =
            verdicts.map(|(asked, limited)| self.verdict(asked, now, limited, from.clone()));
        Ok(CheckLimitsOutput::many(verdicts.collect()))
    }

    fn verdict(
        &self,
        asked: Asked,
        now: Timestamp,
        limited: Limited,
        from: api::Provenance,
    ) -> LimitVerdict {
        let policy = &asked.check.policy;
        self.metrics.admission.limited(policy, &limited);
        let (tokens, counter, timer) = match limited.standing {
            Standing::Bucket { level, unit } => (Some(level as f64 / unit as f64), None, None),
            Standing::Window => (None, None, None),
            Standing::Delay(progress) => (None, Some(progress.counter), Some(progress.timer)),
        };
        let reset_in = limited.reset_at.saturating_sub(unix(now));
        LimitVerdict {
            allowed: limited.allowed,
            policy: asked.policy,
            key: asked.check.key,
            limit: limited.limit,
            remaining: limited.remaining,
            reset_at: limited.reset_at,
            retry_after_secs: limited.retry_after_secs.filter(|_| !limited.allowed),
            tokens,
            tier: asked.tier.map(|tier| tier.as_str().to_owned()),
            counter,
            timer,
            shadowed: limited.shadowed,
            provenance: from,
            reset_in_secs: u64::try_from(reset_in).unwrap_or(0),
            window_secs: window_secs(&asked.check.rule),
        }
    }
}

/// Turns a refusal into an error, for proxies that only look at the status.
fn refusal(output: CheckLimitsOutput) -> Fault {
    let refused = output.results.iter().flatten();
    let waits = refused
        .filter(|verdict| !verdict.allowed)
        .map(|verdict| verdict.retry_after_secs);
    let wait = match output.retry_after_secs {
        Some(wait) => wait,
        // All limits must allow the call, so the longest wait counts.
        None => waits.reduce(|one, other| Some(one?.max(other?))).flatten(),
    };
    let mut fault = Fault::new(Code::RateLimit, "too many requests; try again later");
    fault.headers.clone_from(&output.rate_headers);
    if let Ok(serde_json::Value::Object(details)) = serde_json::to_value(output) {
        fault.details.extend(details);
    }
    match wait {
        Some(wait) => fault.retry_after(u32::try_from(wait).unwrap_or(u32::MAX)),
        None => fault,
    }
}
