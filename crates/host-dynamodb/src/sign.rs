//! Signatures of requests, as AWS asks for them (Signature Version 4).

use asyncgate_core::{Timestamp, hex};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A POST to the root of a service.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    /// The signed headers, with lower-case names and sorted by them; `x-amz-date` must be among them.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

/// Formats a time as AWS reads it: `20150830T123600Z`.
pub(crate) fn stamp(now: Timestamp) -> String {
    let shown = now.to_string();
    let seconds = shown.split('.').next().unwrap_or_default();
    let digits = seconds.chars().filter(|it| !matches!(it, '-' | ':'));
    digits.chain(['Z']).collect()
}

/// Returns the value of the header `authorization`.
pub(crate) fn authorization(
    credentials: &Credentials,
    stamp: &str,
    request: &Request<'_>,
) -> String {
    let date = stamp.split('T').next().unwrap_or_default();
    let Request {
        region, service, ..
    } = request;
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical = String::from("POST\n/\n\n");
    for (name, value) in request.headers {
        canonical.push_str(name);
        canonical.push(':');
        canonical.push_str(value.trim());
        canonical.push('\n');
    }
    canonical.push('\n');
    canonical.push_str(&names);
    canonical.push('\n');
    canonical.push_str(&hex::encode(&Sha256::digest(request.body)));
    let digest = hex::encode(&Sha256::digest(canonical));
    let to_sign = format!("{ALGORITHM}\n{stamp}\n{scope}\n{digest}");
    let first = format!("AWS4{}", credentials.secret);
    let parts = [date, region, service, "aws4_request", &to_sign];
    let signature = parts
        .iter()
        .fold(first.into_bytes(), |key, part| mac(&key, part));
    format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={}",
        credentials.key_id,
        hex::encode(&signature)
    )
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC accepts keys of every length, so this never fails.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Credentials {
        Credentials {
            key_id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        }
    }

    fn signature(headers: &[(&str, &str)], body: &[u8]) -> String {
        let request = Request {
            region: "us-east-1",
            service: "service",
            headers,
            body,
        };
        let header = authorization(&example(), "20150830T123600Z", &request);
        header.rsplit_once('=').unwrap().1.to_owned()
    }

    /// From AWS's test suite of Signature Version 4: `post-vanilla`, `post-header-value-case` and
    /// `post-x-www-form-urlencoded`.
    #[test]
    fn the_published_vectors_are_met() {
        let host = ("host", "example.amazonaws.com");
        let date = ("x-amz-date", "20150830T123600Z");
        let form = ("content-type", "application/x-www-form-urlencoded");
        for (headers, body, expected) in [
            (
                &[host, date][..],
                "",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                &[host, ("my-header1", "VALUE1"), date],
                "",
                "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
            ),
            (
                &[form, host, date],
                "Param1=value1",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            assert_eq!(signature(headers, body.as_bytes()), expected);
        }
    }

    #[test]
    fn times_are_written_as_aws_reads_them() {
        for millis in [1_440_938_160_000, 1_440_938_160_999] {
            let stamp = stamp(Timestamp::from_millis(millis));
            assert_eq!(stamp, "20150830T123600Z");
        }
    }
}
