//! The forms in which senders sign, date and name their messages. Pure.
//!
//! Invariant: everything that a form reads before the signature is known to hold is bounded by the size
//! of the request, and the time of a comparison does not depend on where two signatures differ.

use std::{fmt, sync::Arc};

use asyncgate_core::{Timestamp, hex};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Map, Value};
use sha2::Sha256;

use crate::Fault;

const MAX_NONCE_CHARS: usize = 128;
/// The bytes of a signature.
type Signature = [u8; 32];

/// The form of an ingress's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// `X-Signature-256` over the body; the body has `nonce` and `timestamp`.
    Own,
    /// `X-Hub-Signature-256` over the body; `X-GitHub-Delivery` is the nonce, and nothing tells the time.
    GitHub,
    /// `Stripe-Signature` over its time and the body; the id of the event is the nonce.
    Stripe,
    /// `webhook-signature` over `webhook-id`, `webhook-timestamp` and the body; the id is the nonce.
    StandardWebhooks,
}

/// A message as it came.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// Returns the value of a header. One that came twice counts as none: a proxy may have checked the other.
    pub header: &'a (dyn Fn(&'static str) -> Option<&'a [u8]> + Send + Sync),
    /// The bytes of the body.
    pub body: &'a [u8],
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Message<'a> {
    fn text(&self, name: &'static str) -> Option<&'a str> {
        std::str::from_utf8((self.header)(name)?).ok()
    }
}

/// The secret that a sender signs with. It appears in no rendering.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Makes a secret of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns true if one of the signatures is that of this secret over the parts.
    fn signed(&self, parts: &[&[u8]], signatures: &[Signature]) -> bool {
        // HMAC takes a key of any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            return false;
        };
        for part in parts {
            mac.update(part);
        }
        // The body is hashed once, however many signatures there are.
        let fits =
            |found, signature: &Signature| mac.clone().verify_slice(signature).is_ok() | found;
        signatures.iter().fold(false, fits)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Provider {
    /// Every form.
    pub const ALL: [Self; 4] = [
        Self::Own,
        Self::GitHub,
        Self::Stripe,
        Self::StandardWebhooks,
    ];

    /// Returns the form's name in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "asyncgate",
            Self::GitHub => "github",
            Self::Stripe => "stripe",
            Self::StandardWebhooks => "standard-webhooks",
        }
    }

    /// Reads a secret as the provider shows it.
    pub fn secret(self, text: &str) -> Option<Secret> {
        let bytes = match self {
            Self::Own | Self::GitHub | Self::Stripe => text.as_bytes().to_vec(),
            Self::StandardWebhooks => {
                let encoded = text.strip_prefix("whsec_").unwrap_or(text);
                BASE64_STANDARD.decode(encoded).ok()?
            }
        };
        (!bytes.is_empty()).then(|| Secret::new(&bytes))
    }

    /// Refuses a message that none of the secrets signed.
    pub(crate) fn check(self, secrets: &[Secret], message: &Message<'_>) -> Result<(), Fault> {
        let (parts, signatures) = self.signed(message).unwrap_or_default();
        // All secrets are tried, so that the time does not show which of them fits.
        let fits = |found, secret: &Secret| secret.signed(&parts, &signatures) | found;
        match secrets.iter().fold(false, fits) {
            true => Ok(()),
            false => Err(Fault::new(
                asyncgate_api::Code::InvalidSignature,
                self.signature_form(),
            )),
        }
    }

    /// Returns what is signed, in parts, and the signatures. Nothing if a part is missing or malformed.
    fn signed<'a>(self, message: &Message<'a>) -> Option<(Vec<&'a [u8]>, Vec<Signature>)> {
        let body = message.body;
        match self {
            Self::Own => Some((
                vec![body],
                vec![read_hex((message.header)(OWN_SIGNATURE)?)?],
            )),
            Self::GitHub => Some((
                vec![body],
                vec![read_hex((message.header)(GITHUB_SIGNATURE)?)?],
            )),
            Self::Stripe => {
                let (time, signatures) = read_stripe(message.text(STRIPE_SIGNATURE)?)?;
                Some((vec![time.as_bytes(), b".", body], signatures))
            }
            Self::StandardWebhooks => {
                let id = (message.header)(WEBHOOK_ID)?;
                let time = (message.header)(WEBHOOK_TIMESTAMP)?;
                let signatures = read_webhook(message.text(WEBHOOK_SIGNATURE)?);
                Some((vec![id, b".", time, b".", body], signatures))
            }
        }
    }

    const fn signature_form(self) -> &'static str {
        match self {
            Self::Own => "X-Signature-256 must be sha256= and the HMAC-SHA256 of the raw body",
            Self::GitHub => {
                "X-Hub-Signature-256 must be sha256= and the HMAC-SHA256 of the raw body"
            }
            Self::Stripe => {
                "Stripe-Signature must be t=, a time, v1= and the HMAC-SHA256 of the time, a dot and the raw body"
            }
            Self::StandardWebhooks => {
                "webhook-signature must be v1, and the HMAC-SHA256 of webhook-id, webhook-timestamp and the raw body, with dots between them, in base64"
            }
        }
    }

    /// Returns the text that names a message, once its signature is known to hold.
    pub(crate) fn nonce(
        self,
        message: &Message<'_>,
        fields: &Map<String, Value>,
    ) -> Result<String, Fault> {
        let (field, nonce) = match self {
            Self::Own => ("nonce", fields.get("nonce").and_then(Value::as_str)),
            Self::Stripe => ("id", fields.get("id").and_then(Value::as_str)),
            Self::GitHub => (GITHUB_DELIVERY, message.text(GITHUB_DELIVERY)),
            Self::StandardWebhooks => (WEBHOOK_ID, message.text(WEBHOOK_ID)),
        };
        let fits = |nonce: &&str| (1..=MAX_NONCE_CHARS).contains(&nonce.chars().count());
        let nonce = nonce.filter(fits).map(str::to_owned);
        nonce.ok_or_else(|| wrong(field, "a string of 1 to 128 characters"))
    }

    /// Returns the time of a message in seconds since 1970, once its signature is known to hold. Nothing if
    /// the form has no time.
    pub(crate) fn timestamp(
        self,
        message: &Message<'_>,
        fields: &Map<String, Value>,
    ) -> Result<Option<i64>, Fault> {
        let seconds = |text: &str| text.parse().ok();
        let (field, time) = match self {
            Self::GitHub => return Ok(None),
            Self::Own => ("timestamp", fields.get("timestamp").and_then(read_time)),
            Self::Stripe => {
                let header = message.text(STRIPE_SIGNATURE).and_then(read_stripe);
                (STRIPE_SIGNATURE, header.and_then(|(time, _)| seconds(time)))
            }
            Self::StandardWebhooks => (
                WEBHOOK_TIMESTAMP,
                message.text(WEBHOOK_TIMESTAMP).and_then(seconds),
            ),
        };
        let what = "seconds since 1970 or an RFC 3339 time";
        time.ok_or_else(|| wrong(field, what)).map(Some)
    }
}

const OWN_SIGNATURE: &str = "x-signature-256";
const GITHUB_SIGNATURE: &str = "x-hub-signature-256";
const GITHUB_DELIVERY: &str = "x-github-delivery";
const STRIPE_SIGNATURE: &str = "stripe-signature";
const WEBHOOK_ID: &str = "webhook-id";
const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
const WEBHOOK_SIGNATURE: &str = "webhook-signature";

/// Makes the fault of a part of a message that is missing or wrong.
pub(super) fn wrong(field: &str, what: &str) -> Fault {
    Fault::bad_request(format!("{field} must be {what}")).with("field", field)
}

/// Reads the bytes of a signature from `sha256=` and digits in either case.
fn read_hex(text: &[u8]) -> Option<Signature> {
    hex::decode_any_case(text.strip_prefix(b"sha256=")?)
}

/// Reads the time and the signatures of Stripe: `t=` once, and `v1=` for each secret while one replaces
/// another. Other schemes are passed over: they are for tests or from the past.
fn read_stripe(text: &str) -> Option<(&str, Vec<Signature>)> {
    let (mut time, mut signatures) = (None, Vec::new());
    for item in text.split(',') {
        match item.trim().split_once('=')? {
            ("t", value) if time.is_none() => time = Some(value),
            ("t", _) => return None,
            ("v1", value) => signatures.extend(hex::decode_any_case::<32>(value.as_bytes())),
            _ => {}
        }
    }
    Some((time?, signatures))
}

/// Reads the signatures of Standard Webhooks: `v1,` and base64, with spaces between them. Other versions
/// are passed over: `v1a` is a signature with a private key.
fn read_webhook(text: &str) -> Vec<Signature> {
    let values = text.split(' ').filter_map(|item| item.strip_prefix("v1,"));
    let decoded = values.filter_map(|value| BASE64_STANDARD.decode(value).ok());
    decoded.filter_map(|bytes| bytes.try_into().ok()).collect()
}

/// Reads seconds since 1970 from a number or a text.
fn read_time(value: &Value) -> Option<i64> {
    match value.as_str() {
        Some(text) => {
            let time: Timestamp = text.parse().ok()?;
            Some(time.as_millis().div_euclid(1_000))
        }
        None => value.as_i64(),
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_api::Code;

    use super::*;

    /// The headers and the body of a message.
    struct Sent(Vec<(&'static str, String)>, Vec<u8>);

    impl Sent {
        fn read<T>(&self, read: impl FnOnce(&Message<'_>) -> T) -> T {
            let header = |name: &'static str| {
                let found = self.0.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.as_bytes())
            };
            read(&Message {
                header: &header,
                body: &self.1,
            })
        }

        fn passes(&self, provider: Provider, secret: &str) -> bool {
            let secret = provider.secret(secret).unwrap();
            let checked = self.read(|message| provider.check(&[secret], message));
            if let Err(fault) = &checked {
                assert_eq!(fault.code, Code::InvalidSignature);
            }
            checked.is_ok()
        }

        fn with(&self, name: &'static str, value: &str) -> Self {
            let others = self.0.iter().filter(|(known, _)| *known != name).cloned();
            let headers = others.chain([(name, value.to_owned())]).collect();
            Self(headers, self.1.clone())
        }

        fn without(&self, name: &'static str) -> Self {
            let others = self.0.iter().filter(|(known, _)| *known != name).cloned();
            Self(others.collect(), self.1.clone())
        }

        /// Checks that the message passes, and with any part changed or missing does not.
        #[track_caller]
        fn holds(&self, provider: Provider, secret: &str, parts: &[&'static str]) {
            assert!(self.passes(provider, secret));
            assert!(!self.passes(provider, "whsec_b3RoZXItc2VjcmV0"));
            for (at, bit) in (0..self.1.len()).zip((0..8).cycle()) {
                let mut changed = self.1.clone();
                changed[at] ^= 1 << bit;
                assert!(!Self(self.0.clone(), changed).passes(provider, secret));
            }
            for part in parts {
                assert!(!self.without(part).passes(provider, secret), "{part}");
                assert!(!self.with(part, "").passes(provider, secret), "{part}");
                let value = &self.0.iter().find(|(name, _)| name == part).unwrap().1;
                for wrong in [
                    format!("{value}0"),
                    value.to_uppercase() + "Z",
                    value[1..].to_owned(),
                ] {
                    assert!(!self.with(part, &wrong).passes(provider, secret), "{part}");
                }
            }
        }

        fn nonce(&self, provider: Provider) -> Result<String, Code> {
            let fields = serde_json::from_slice(&self.1).unwrap_or_default();
            let nonce = self.read(|message| provider.nonce(message, &fields));
            nonce.map_err(|fault| fault.code)
        }

        fn timestamp(&self, provider: Provider) -> Result<Option<i64>, Code> {
            let fields = serde_json::from_slice(&self.1).unwrap_or_default();
            let time = self.read(|message| provider.timestamp(message, &fields));
            time.map_err(|fault| fault.code)
        }
    }

    /// RFC 4231, the second test case.
    #[test]
    fn the_published_vector_of_the_mac_holds() {
        let told = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let body = b"what do ya want for nothing?".to_vec();
        let sent = Sent(vec![(OWN_SIGNATURE, format!("sha256={told}"))], body);
        sent.holds(Provider::Own, "Jefe", &[OWN_SIGNATURE]);
    }

    #[test]
    fn hexadecimal_signatures_are_read_and_anything_else_is_not() {
        let digits = "0aF1".repeat(16);
        let read = read_hex(format!("sha256={digits}").as_bytes()).unwrap();
        assert_eq!(read[..2], [0x0a, 0xf1]);
        for text in [
            String::new(),
            digits.clone(),
            format!("sha1={digits}"),
            format!("sha256={}", &digits[1..]),
            format!("sha256={digits}0"),
            format!("sha256=+{}", &digits[1..]),
            format!("sha256={}ä", &digits[2..]),
        ] {
            assert_eq!(read_hex(text.as_bytes()), None, "{text}");
        }
    }

    /// The example of GitHub's page on validating webhook deliveries.
    #[test]
    fn the_published_example_of_github_holds() {
        let told = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let headers = vec![(GITHUB_SIGNATURE, told.to_owned())];
        let sent = Sent(headers, b"Hello, World!".to_vec());
        let secret = "It's a Secret to Everybody";
        sent.holds(Provider::GitHub, secret, &[GITHUB_SIGNATURE]);
        assert!(!sent.passes(Provider::Own, secret), "another header");
        let id = "72d3162e-cc78-11e3-81ab-4c9367dc0958";
        let named = sent.with(GITHUB_DELIVERY, id);
        assert_eq!(named.nonce(Provider::GitHub).as_deref(), Ok(id));
        assert_eq!(sent.nonce(Provider::GitHub), Err(Code::BadRequest));
        assert_eq!(named.timestamp(Provider::GitHub), Ok(None));
    }

    /// The event that the tests of Stripe's own libraries have.
    const STRIPE_EVENT: &str = r#"{
  "id": "evt_123",
  "object": "event",
  "account": "acct_123",
  "api_version": "2017-05-25",
  "created": 1533204620,
  "data": {
    "object": {
      "id": "ii_123",
      "object": "invoiceitem",
      "amount": 1000,
      "currency": "usd",
      "customer": "cus_123",
      "date": 1533204620,
      "description": "Test Invoice Item",
      "discountable": false,
      "invoice": "in_123",
      "livemode": false,
      "metadata": {},
      "period": {
        "start": 1533204620,
        "end": 1533204620
      },
      "proration": false,
      "quantity": 3
    }
  },
  "livemode": false,
  "pending_webhooks": 1,
  "request": {
    "id": "req_123",
    "idempotency_key": "idempotency-key-123"
  },
  "type": "invoiceitem.created"
}
"#;

    #[test]
    fn the_published_example_of_stripe_holds() {
        let good = "82216eca827bcb7b34b8055eb2d2d9e6bc13b9ac39ded14a61e69f70c565f53a";
        let old = "63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef";
        let header = format!("t=1533204620,v1={good},v0={old}");
        let sent = Sent(
            vec![(STRIPE_SIGNATURE, header.clone())],
            STRIPE_EVENT.into(),
        );
        assert!(sent.passes(Provider::Stripe, "webhook_secret"));
        assert_eq!(sent.nonce(Provider::Stripe).as_deref(), Ok("evt_123"));
        assert_eq!(sent.timestamp(Provider::Stripe), Ok(Some(1_533_204_620)));
        let short = sent.with(STRIPE_SIGNATURE, &format!("t=1533204620,v1={good}"));
        short.holds(Provider::Stripe, "webhook_secret", &[STRIPE_SIGNATURE]);
        // Two secrets sign while one replaces the other.
        for (header, passes) in [
            (format!("t=1533204620,v1={old},v1={good}"), true),
            (format!("v1={good}, t=1533204620"), true),
            (format!("t=1533204621,v1={good}"), false),
            (format!("t=1533204620,v0={good}"), false),
            (format!("t=1533204620,t=1533204620,v1={good}"), false),
            (format!("v1={good}"), false),
            (format!("t=1533204620,v1={good},x"), false),
        ] {
            let sent = sent.with(STRIPE_SIGNATURE, &header);
            assert_eq!(
                sent.passes(Provider::Stripe, "webhook_secret"),
                passes,
                "{header}"
            );
        }
    }

    /// The examples of the Standard Webhooks libraries and of the page on verifying by hand.
    #[test]
    fn the_published_examples_of_standard_webhooks_hold() {
        for (secret, id, time, body, told) in [
            (
                "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                "msg_p5jXN8AQM9LWM0D4loKWxJek",
                "1614265330",
                r#"{"test": 2432232314}"#,
                "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
            (
                "whsec_plJ3nmyCDGBKInavdOK15jsl",
                "msg_loFOjxBNrRLzqYUf",
                "1731705121",
                r#"{"event_type":"ping","data":{"success":true}}"#,
                "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
            ),
        ] {
            let headers = [
                (WEBHOOK_ID, id),
                (WEBHOOK_TIMESTAMP, time),
                (WEBHOOK_SIGNATURE, told),
            ];
            let headers = headers.map(|(name, value)| (name, value.to_owned()));
            let sent = Sent(headers.to_vec(), body.into());
            let provider = Provider::StandardWebhooks;
            let parts = [WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE];
            sent.holds(provider, secret, &parts);
            assert!(sent.passes(provider, secret.strip_prefix("whsec_").unwrap()));
            assert_eq!(sent.nonce(provider).as_deref(), Ok(id));
            assert_eq!(sent.timestamp(provider), Ok(time.parse().ok()));
            let several = format!("v1a,AAAA v1,{} {told}", BASE64_STANDARD.encode([7; 32]));
            assert!(
                sent.with(WEBHOOK_SIGNATURE, &several)
                    .passes(provider, secret)
            );
            let other = told.replace("v1,", "v1a,");
            assert!(
                !sent
                    .with(WEBHOOK_SIGNATURE, &other)
                    .passes(provider, secret)
            );
        }
        for wrong in ["whsec_", "whsec_not base64", "whsec_a"] {
            assert!(
                Provider::StandardWebhooks.secret(wrong).is_none(),
                "{wrong}"
            );
        }
    }
}
