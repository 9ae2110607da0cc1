//! The public keys of a provider, as it publishes them (RFC 7517).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::Value;

/// The most keys that are looked at.
const MAX_KEYS: usize = 64;
/// The bytes of a coordinate on the curve P-256.
const COORDINATE_BYTES: usize = 32;

/// The error for bytes that are no set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON Web Key Set")]
pub struct BadKeySet;

/// The algorithms of ID tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Es256,
}

impl Algorithm {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

/// The keys with which a provider signs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderKeys(Vec<ProviderKey>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderKey {
    kid: Option<String>,
    material: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point on P-256, not compressed.
    P256(Vec<u8>),
}

impl ProviderKeys {
    /// Reads a set of keys. Keys of other kinds and for other uses are left out.
    pub fn from_json(text: &[u8]) -> Result<Self, BadKeySet> {
        let document: Value = serde_json::from_slice(text).map_err(|_| BadKeySet)?;
        let keys = document.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or(BadKeySet)?.iter().take(MAX_KEYS);
        Ok(Self(keys.filter_map(ProviderKey::read).collect()))
    }

    /// Returns the key of a token: the one with its name, or the only one of its kind if the token names none.
    pub(super) fn find(&self, algorithm: Algorithm, kid: Option<&str>) -> Option<&ProviderKey> {
        let mut fitting = self.0.iter().filter(|key| key.serves(algorithm));
        match kid {
            Some(kid) => fitting.find(|key| key.kid.as_deref() == Some(kid)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}

impl ProviderKey {
    fn read(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let coordinate = |name| bytes(name).filter(|bytes| bytes.len() == COORDINATE_BYTES);
        if text("use").is_some_and(|used_for| used_for != "sig") {
            return None;
        }
        let (material, algorithm) = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let material = Material::Rsa {
                    modulus: bytes("n")?,
                    exponent: bytes("e")?,
                };
                (material, "RS256")
            }
            ("EC", Some("P-256")) => {
                let point = [vec![4], coordinate("x")?, coordinate("y")?].concat();
                (Material::P256(point), "ES256")
            }
            _ => return None,
        };
        let fits = text("alg").is_none_or(|named| named == algorithm);
        let kid = text("kid").map(str::to_owned);
        fits.then_some(Self { kid, material })
    }

    const fn serves(&self, algorithm: Algorithm) -> bool {
        match (&self.material, algorithm) {
            (Material::Rsa { .. }, Algorithm::Rs256) | (Material::P256(_), Algorithm::Es256) => {
                true
            }
            (Material::Rsa { .. }, Algorithm::Es256) | (Material::P256(_), Algorithm::Rs256) => {
                false
            }
        }
    }

    /// Returns true if this key made a signature of a message, by the one algorithm of its kind.
    pub(super) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Material::P256(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature)
            }
        };
        verified.is_ok()
    }
}
