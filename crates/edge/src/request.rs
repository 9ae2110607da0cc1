//! The head of a request as every facade reads it: its credential and its correlation id.

use std::sync::Arc;

use asyncgate_engine::{CorrId, Engine, Remote, RequestContext};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header},
    middleware::Next,
};

use crate::set_corr_id;

/// The header that names a request in its answer and in the log.
pub const CORR_ID: HeaderName = HeaderName::from_static("x-corr-id");

/// The longest correlation id that is taken over: it stands in every line of the log.
const MAX_CORR_ID_BYTES: usize = 128;

/// Returns the caller's correlation id if it can be repeated in a header and a log, or makes one.
pub fn correlate(headers: &HeaderMap, make: impl FnOnce() -> Arc<str>) -> CorrId {
    let given = text(headers, &CORR_ID)
        .filter(|id| !id.is_empty() && id.len() <= MAX_CORR_ID_BYTES)
        .filter(|id| id.bytes().all(|byte| byte.is_ascii_graphic()));
    CorrId {
        text: given.map_or_else(make, Arc::from),
        given: given.is_some(),
    }
}

/// Gives the answers of routes that know nothing of correlation ids one.
///
/// This is middleware, which boxes each request's work: routes that are called often use
/// [`answer`](crate::answer) instead.
pub async fn correlated(
    State(engine): State<Arc<Engine>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let corr_id = correlate(request.headers(), || engine.corr_id());
    let mut response = corr_id.scope(next.run(request)).await;
    set_corr_id(&mut response, &corr_id.text);
    response
}

/// Returns what the authenticator is told of the request that the current task answers.
pub fn request_context(headers: &HeaderMap) -> RequestContext<'_> {
    RequestContext {
        credential: bearer(headers),
        user_agent: text(headers, &header::USER_AGENT),
        remote: Remote::current(),
        corr_id: CorrId::current(),
    }
}

/// Returns the credential behind `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    bearer_of(headers.get(header::AUTHORIZATION)?)
}

/// Returns the credential in the value of `Authorization`. Other schemes are no credential.
pub(crate) fn bearer_of(value: &HeaderValue) -> Option<&str> {
    // A token has a thousand bytes. This check takes many of them at a time, that of `to_str` one by one.
    let (scheme, credential) = str::from_utf8(value.as_bytes()).ok()?.split_once(' ')?;
    // RFC 9110 lets the name of a scheme have any case.
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| credential.trim())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())])
    }

    #[test]
    fn only_a_bearer_credential_is_read() {
        for (value, credential) in [
            (&b"Bearer abc"[..], Some("abc")),
            (b"bearer abc", Some("abc")),
            (b"BEARER abc", Some("abc")),
            (b"Bearer   abc  ", Some("abc")),
            (b"Bearer a b", Some("a b")),
            (b"Bearer ", Some("")),
            (b"Bearer", None),
            (b"Bearerabc", None),
            (b"Basic abc", None),
            (b"Digest Bearer abc", None),
            (b" Bearer abc", None),
            (b"abc", None),
            (b"", None),
            (b"Bearer \xff", None),
        ] {
            let headers = headers(header::AUTHORIZATION, value);
            assert_eq!(bearer(&headers), credential, "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_given_correlation_id_is_kept_if_it_can_be_repeated() {
        let of = |value: &[u8]| correlate(&headers(CORR_ID, value), || "new".into());
        let longest = "x".repeat(MAX_CORR_ID_BYTES);
        for good in [
            "a",
            "018f1a2a-6b45-7c7c-b80e-9ef2a5b1f22a",
            "a\"b/+=",
            &longest,
        ] {
            let (text, given) = (good.into(), true);
            assert_eq!(of(good.as_bytes()), CorrId { text, given }, "{good}");
        }
        let too_long = "x".repeat(MAX_CORR_ID_BYTES + 1);
        for bad in [&b""[..], b"a b", b"a\tb", b"\xc3\xa4", too_long.as_bytes()] {
            let (text, given) = ("new".into(), false);
            assert_eq!(of(bad), CorrId { text, given }, "{bad:?}");
        }
        assert!(!correlate(&HeaderMap::new(), || "new".into()).given);
    }

    #[tokio::test]
    async fn a_context_knows_the_request_and_does_not_show_its_credential() {
        let mut headers = headers(header::AUTHORIZATION, b"Bearer secret");
        headers.insert(header::USER_AGENT, HeaderValue::from_static("agent/1"));
        let corr_id = correlate(&headers, || "new".into());
        let remote = Remote::Local { uid: 7 };
        let read = async { request_context(&headers) };
        let context = remote.scope(corr_id.scope(read)).await;
        assert_eq!(context.credential, Some("secret"));
        assert_eq!(context.user_agent, Some("agent/1"));
        assert_eq!(
            (context.remote, &context.corr_id),
            (Some(remote), &Some(corr_id))
        );
        let shown = format!("{context:?}");
        assert!(
            shown.contains("agent/1") && !shown.contains("secret"),
            "{shown}"
        );
    }
}
