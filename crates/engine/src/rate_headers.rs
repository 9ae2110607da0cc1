//! HTTP headers about limits, under the names in use today and those of the coming standard.

use std::{cell::RefCell, cmp::Ordering};

use asyncgate_api::LimitVerdict;
use asyncgate_core::{
    Timestamp,
    admission::{LimitCheck, Limited, Rule},
};

use crate::operations::unix;

/// A header's name and text.
pub type Header = (&'static str, String);

tokio::task_local! {
    /// The headers of the calls that the current request has made so far.
    static NOTED: RefCell<Vec<Header>>;
}

/// Runs the work of a request. Returns with its result the headers about limits that its last call should be answered
/// with, for facades whose answers hold several calls or are not made of an [`Answer`](crate::Answer).
pub async fn with_rate_headers<F: Future>(work: F) -> (F::Output, Vec<Header>) {
    let noting = async {
        let output = work.await;
        (output, NOTED.with(RefCell::take))
    };
    NOTED.scope(RefCell::default(), noting).await
}

/// Notes headers about limits for the facade that asked for them, if it did.
pub(crate) fn note(headers: &[Header]) {
    // Whoever does not limit calls pays nothing for this.
    if !headers.is_empty() {
        let _ = NOTED.try_with(|noted| *noted.borrow_mut() = headers.to_vec());
    }
}

/// Returns true if somebody waits for headers and has none yet.
pub(crate) fn is_wanted() -> bool {
    NOTED.try_with(|noted| noted.borrow().is_empty()) == Ok(true)
}

/// The figures of a limit that headers report.
#[derive(Debug, Clone)]
pub(crate) struct ReportedLimit {
    /// The name of the policy, without quotes.
    pub(crate) policy: String,
    pub(crate) bucket: String,
    pub(crate) allowed: bool,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_at: i64,
    /// The seconds from now to `reset_at`.
    pub(crate) reset_in_secs: u64,
    pub(crate) retry_after_secs: Option<u64>,
    pub(crate) window_secs: Option<u64>,
}

impl ReportedLimit {
    /// Takes the figures of a check's result. `policy` and `bucket` are the names that the caller knows.
    pub(crate) fn new(
        policy: &str,
        bucket: &str,
        check: &LimitCheck,
        limited: &Limited,
        now: Timestamp,
    ) -> Self {
        let reset_in = limited.reset_at.saturating_sub(unix(now));
        Self {
            policy: policy.to_owned(),
            bucket: fit(bucket),
            allowed: limited.allowed,
            limit: limited.limit,
            remaining: limited.remaining,
            reset_at: limited.reset_at,
            reset_in_secs: u64::try_from(reset_in).unwrap_or(0),
            retry_after_secs: limited.retry_after_secs,
            window_secs: window_secs(&check.rule),
        }
    }
}

impl From<&LimitVerdict> for ReportedLimit {
    fn from(verdict: &LimitVerdict) -> Self {
        Self {
            policy: verdict.policy.clone(),
            bucket: bucket_name(&verdict.policy, &verdict.key),
            allowed: verdict.allowed,
            limit: verdict.limit,
            remaining: verdict.remaining,
            reset_at: verdict.reset_at,
            reset_in_secs: verdict.reset_in_secs,
            retry_after_secs: verdict.retry_after_secs,
            window_secs: verdict.window_secs,
        }
    }
}

/// Returns the headers about limits that were asked together.
pub fn rate_headers<'a>(verdicts: impl IntoIterator<Item = &'a LimitVerdict>) -> Vec<Header> {
    let limits: Vec<ReportedLimit> = verdicts.into_iter().map(ReportedLimit::from).collect();
    headers(&limits)
}

/// Returns headers with the figures of the tightest of these limits, and the policies of all.
pub(crate) fn headers(limits: &[ReportedLimit]) -> Vec<Header> {
    let Some(tightest) = limits.iter().min_by(|one, other| tighter(one, other)) else {
        return Vec::new();
    };
    let policies: Vec<String> = limits.iter().map(policy).collect();
    let ReportedLimit {
        remaining,
        reset_in_secs,
        ..
    } = tightest;
    let mut headers = vec![
        ("x-ratelimit-limit", tightest.limit.to_string()),
        ("x-ratelimit-remaining", remaining.to_string()),
        ("x-ratelimit-reset", tightest.reset_at.to_string()),
        ("x-ratelimit-bucket", tightest.bucket.clone()),
        ("ratelimit-policy", policies.join(", ")),
        (
            "ratelimit",
            format!("\"{}\";r={remaining};t={reset_in_secs}", tightest.policy),
        ),
    ];
    if let (false, Some(wait)) = (tightest.allowed, tightest.retry_after_secs) {
        headers.push(("retry-after", wait.to_string()));
    }
    headers
}

fn policy(limit: &ReportedLimit) -> String {
    let window = limit.window_secs.map(|secs| format!(";w={secs}"));
    let window = window.unwrap_or_default();
    format!("\"{}\";q={}{window}", limit.policy, limit.limit)
}

/// Orders limits by how tight they are. A limit that refuses comes before one that allows, the longer
/// wait before the shorter, and then the smaller share that is left.
pub(crate) fn tighter(one: &ReportedLimit, other: &ReportedLimit) -> Ordering {
    let wait = |limit: &ReportedLimit| match (limit.allowed, limit.retry_after_secs) {
        (true, _) => 0,
        // Without a time to wait for, the limit refuses for ever.
        (false, None) => u64::MAX,
        (false, Some(secs)) => secs.max(1),
    };
    let left = |of: &ReportedLimit, at: &ReportedLimit| {
        u128::from(of.remaining) * u128::from(at.limit.max(1))
    };
    wait(other)
        .cmp(&wait(one))
        .then_with(|| left(one, other).cmp(&left(other, one)))
}

/// Returns the seconds after which a rule allows its full limit again.
pub(crate) fn window_secs(rule: &Rule) -> Option<u64> {
    match rule {
        Rule::Bucket(bucket) => Some(bucket.fill_secs()),
        Rule::Window(window) => Some(window.window_secs),
        Rule::Delay(_) => None,
    }
}

/// Returns `<policy>:<key>`, fit for a header.
fn bucket_name(policy: &str, key: &str) -> String {
    format!("{policy}:{}", fit(key))
}

/// Percent-encodes the bytes that a header cannot hold.
pub(crate) fn fit(text: &str) -> String {
    let mut fit = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' => fit.push(char::from(byte)),
            _ => fit.push_str(&format!("%{byte:02X}")),
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_are_fit_for_a_header() {
        for (key, name) in [
            ("10.0.0.1", "client:10.0.0.1"),
            ("a b:c", "client:a b:c"),
            ("ä\r\n\0", "client:%C3%A4%0D%0A%00"),
        ] {
            assert_eq!(bucket_name("client", key), name);
        }
    }

    fn reported(
        policy: &str,
        remaining: u64,
        limit: u64,
        wait: Option<Option<u64>>,
    ) -> ReportedLimit {
        ReportedLimit {
            policy: policy.to_owned(),
            bucket: format!("{policy}:k"),
            allowed: wait.is_none(),
            limit,
            remaining,
            reset_at: 1_000,
            reset_in_secs: 30,
            retry_after_secs: wait.flatten(),
            window_secs: (policy != "delay").then_some(60),
        }
    }

    #[test]
    fn the_tightest_limit_is_told_and_all_policies() {
        let open = reported("open", 9, 10, None);
        let low = reported("low", 80, 100, None);
        let short = reported("short", 0, 10, Some(Some(1)));
        let long = reported("long", 0, 10, Some(Some(60)));
        let never = reported("delay", 0, 3, Some(None));
        let bucket = |limits: &[ReportedLimit]| {
            let headers = headers(limits);
            headers[3].1.clone()
        };
        for (limits, tightest) in [
            (vec![&open], "open:k"),
            (vec![&open, &low], "low:k"),
            (vec![&open, &short, &low], "short:k"),
            (vec![&short, &long], "long:k"),
            (vec![&long, &never, &short], "delay:k"),
        ] {
            let limits: Vec<ReportedLimit> = limits.into_iter().cloned().collect();
            assert_eq!(bucket(&limits), tightest);
        }
        let all = headers(&[open, long]);
        let value = |name| all.iter().find(|(known, _)| *known == name);
        let value = |name| value(name).map(|(_, text)| text.as_str());
        assert_eq!(
            value("ratelimit-policy"),
            Some("\"open\";q=10;w=60, \"long\";q=10;w=60")
        );
        assert_eq!(value("ratelimit"), Some("\"long\";r=0;t=30"));
        assert_eq!(value("retry-after"), Some("60"));
        assert_eq!(headers(&[]), []);
    }
}
