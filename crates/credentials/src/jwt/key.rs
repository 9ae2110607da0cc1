//! The RSA keys behind tokens, and the document by which others learn the public ones.

use std::{collections::BTreeMap, fmt};

use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der},
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
        RsaPublicKeyComponents,
    },
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The error for bytes that are no RSA key, or one of less than 2048 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an RSA key of at least 2048 bits in PKCS #8 or PKCS #1")]
pub struct BadKey;

/// The error for a key that could not be made or could not sign. Only a failing machine causes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cryptographic library failed")]
pub struct NoKey;

/// A private key. It never shows in `Debug`.
pub struct SigningKey {
    pair: RsaKeyPair,
    public: VerifyingKey,
}

impl SigningKey {
    /// Makes a new key of 3072 bits, which takes up to some seconds. Returns it in PKCS #8, to be kept. The
    /// random bits are drawn by the library, so only the server may call this.
    pub fn generate() -> Result<Vec<u8>, NoKey> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the library does not take random bytes for this; callers are limited to the server"
        )]
        let pair = RsaKeyPair::generate(KeySize::Rsa3072).map_err(|_| NoKey)?;
        let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| NoKey)?;
        Ok(der.as_ref().to_vec())
    }

    /// Reads a key in DER, as PKCS #8 or as PKCS #1.
    pub fn from_der(der: &[u8]) -> Result<Self, BadKey> {
        let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der));
        let pair = pair.map_err(|_| BadKey)?;
        let public = pair.public_key();
        let modulus = public.modulus().big_endian_without_leading_zero().to_vec();
        let exponent = public.exponent().big_endian_without_leading_zero().to_vec();
        Ok(Self {
            public: VerifyingKey::new(modulus, exponent),
            pair,
        })
    }

    /// Returns the public half.
    pub const fn verifying_key(&self) -> &VerifyingKey {
        &self.public
    }

    /// Makes an RS256 signature of a message.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, NoKey> {
        let mut signature = vec![0; self.pair.public_modulus_len()];
        // The padding of RS256 is not random, and the library ignores the source that it is given.
        let source = SystemRandom::new();
        let signed = self
            .pair
            .sign(&RSA_PKCS1_SHA256, &source, message, &mut signature);
        signed.map_err(|_| NoKey)?;
        Ok(signature)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.kid)
    }
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    kid: String,
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

impl VerifyingKey {
    /// Takes a modulus and an exponent, the highest byte first and without zeros in front.
    pub fn new(modulus: Vec<u8>, exponent: Vec<u8>) -> Self {
        // RFC 7638: the required members alone, in alphabetical order, without white space.
        let (e, n) = (
            BASE64_URL_SAFE_NO_PAD.encode(&exponent),
            BASE64_URL_SAFE_NO_PAD.encode(&modulus),
        );
        let members = format!(r#"{{"e":"{e}","kty":"RSA","n":"{n}"}}"#);
        let kid = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(members));
        Self {
            kid,
            modulus,
            exponent,
        }
    }

    /// Returns the key's name: its thumbprint.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Returns the modulus, the highest byte first and without zeros in front.
    pub fn modulus(&self) -> &[u8] {
        &self.modulus
    }

    /// Returns the exponent, in the same form.
    pub fn exponent(&self) -> &[u8] {
        &self.exponent
    }

    /// Returns true if this key made an RS256 signature of a message.
    pub(super) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = RsaPublicKeyComponents {
            n: &self.modulus,
            e: &self.exponent,
        };
        let verified = key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature);
        verified.is_ok()
    }

    fn to_jwk(&self) -> Value {
        json!({
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.kid,
            "n": BASE64_URL_SAFE_NO_PAD.encode(&self.modulus),
            "e": BASE64_URL_SAFE_NO_PAD.encode(&self.exponent),
        })
    }
}

/// The keys whose tokens are accepted, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet(BTreeMap<String, VerifyingKey>);

impl KeySet {
    /// Returns the document that publishes the keys (RFC 7517).
    pub fn to_jwks(&self) -> Value {
        let keys: Vec<Value> = self.0.values().map(VerifyingKey::to_jwk).collect();
        json!({ "keys": keys })
    }

    pub(super) fn get(&self, kid: &str) -> Option<&VerifyingKey> {
        self.0.get(kid)
    }
}

impl FromIterator<VerifyingKey> for KeySet {
    fn from_iter<I: IntoIterator<Item = VerifyingKey>>(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (key.kid.clone(), key)).collect())
    }
}
