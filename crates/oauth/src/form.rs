//! What comes in: query strings, forms, and the way in which clients show who they are.

use asyncgate_core::identity::oauth::{ErrorCode, Params, Refusal};
use asyncgate_edge::{BodyLimits, coding, read_body};
use asyncgate_engine::{
    Engine, Fault, NewSecret,
    oauth::{ClientProof, oauth_fault},
};
use axum::{
    body::Body,
    http::{HeaderMap, Uri, header},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use percent_encoding::percent_decode_str;

/// The largest body.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Reads the parameters of a query string.
pub(crate) fn query(uri: &Uri) -> Result<Params, Fault> {
    pairs(uri.query().unwrap_or_default().as_bytes())
}

/// Reads a body that is a form.
pub(crate) async fn form(
    engine: &Engine,
    headers: &HeaderMap,
    body: Body,
) -> Result<Params, Fault> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let refusal = Refusal::request("the body must be application/x-www-form-urlencoded");
        return Err(refusal.into());
    }
    pairs(&read(engine, headers, body).await?)
}

/// Reads a body.
pub(crate) async fn read(engine: &Engine, headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
    let limits = BodyLimits::new(engine, MAX_BODY_BYTES);
    let body = read_body(body, coding(headers)?, limits).await?;
    Ok(body.bytes)
}

fn pairs(text: &[u8]) -> Result<Params, Fault> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_bytes(text)
        .map_err(|_| Fault::from(Refusal::request("the parameters cannot be read")))?;
    Ok(pairs.into_iter().collect())
}

/// Reads who a client says it is: by `Authorization: Basic`, or by `client_id` and `client_secret` in the form.
pub(crate) fn client_proof(headers: &HeaderMap, params: &Params) -> Result<ClientProof, Fault> {
    let (id, secret) = (params.get("client_id")?, params.get("client_secret")?);
    let Some(authorization) = headers.get(header::AUTHORIZATION) else {
        let missing = || oauth_fault(ErrorCode::InvalidClient, "client_id is missing");
        return Ok(ClientProof {
            client_id: id.ok_or_else(missing)?.to_owned(),
            secret: secret.map(|secret| NewSecret::new(secret.to_owned())),
        });
    };
    let unreadable = || {
        oauth_fault(
            ErrorCode::InvalidClient,
            "the client could not be authenticated",
        )
    };
    let proof = authorization.to_str().ok().and_then(basic);
    let proof = proof.ok_or_else(unreadable)?;
    if secret.is_some() || id.is_some_and(|id| id != proof.client_id) {
        let twice = Refusal::request("the client shows itself in two ways");
        return Err(twice.into());
    }
    Ok(proof)
}

/// Reads a client's id and secret from a header. Both are encoded as in a form before they are joined (RFC 6749,
/// section 2.3.1).
fn basic(header: &str) -> Option<ClientProof> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let joined = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let joined = String::from_utf8(joined).ok()?;
    let (id, secret) = joined.split_once(':')?;
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
        Some(decoded.into_owned())
    };
    let secret = decode(secret)?;
    Some(ClientProof {
        client_id: decode(id)?,
        secret: Some(secret)
            .filter(|secret| !secret.is_empty())
            .map(NewSecret::new),
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn shown(authorization: Option<&str>, form: &str) -> Result<(String, Option<String>), String> {
        let mut headers = HeaderMap::new();
        if let Some(line) = authorization {
            let line = HeaderValue::from_str(line).unwrap();
            headers.insert(header::AUTHORIZATION, line);
        }
        let proof = client_proof(&headers, &pairs(form.as_bytes()).unwrap());
        let proof = proof.map_err(|fault| fault.details["error"].as_str().unwrap().to_owned())?;
        let secret = proof.secret.map(|secret| secret.reveal().to_owned());
        Ok((proof.client_id, secret))
    }

    #[test]
    fn a_client_shows_itself_in_one_way() {
        let of = |id: &str, secret: Option<&str>| Ok((id.to_owned(), secret.map(str::to_owned)));
        let both = format!("Basic {}", BASE64_STANDARD.encode("id:s%3Acr+t"));
        let public = format!("basic {}", BASE64_STANDARD.encode("id:"));
        assert_eq!(shown(None, "client_id=id"), of("id", None));
        assert_eq!(
            shown(None, "client_id=id&client_secret=s"),
            of("id", Some("s"))
        );
        assert_eq!(shown(None, "client_id=id&client_secret="), of("id", None));
        assert_eq!(shown(Some(&both), ""), of("id", Some("s:cr t")));
        assert_eq!(shown(Some(&both), "client_id=id"), of("id", Some("s:cr t")));
        assert_eq!(shown(Some(&public), ""), of("id", None));
        for (authorization, form, error) in [
            (None, "", "invalid_client"),
            (None, "client_id=a&client_id=a", "invalid_request"),
            (Some(both.as_str()), "client_id=other", "invalid_request"),
            (Some(both.as_str()), "client_secret=s", "invalid_request"),
            (Some("Basic !"), "client_id=id", "invalid_client"),
            (Some("Basic aWQ="), "", "invalid_client"),
            (Some("Bearer abc"), "client_id=id", "invalid_client"),
        ] {
            let refused = shown(authorization, form).unwrap_err();
            assert_eq!(refused, error, "{authorization:?} {form}");
        }
    }
}
