//! Macaroons: bearer credentials that their bearer can narrow without asking anybody.
//!
//! A macaroon is an identifier, a list of caveats, and a signature. Each caveat is signed with the signature
//! before it, so that caveats can be added by everybody and taken away by nobody.
//!
//! Invariants: a macaroon stays within the bounds below, however it came about; its signatures never show in
//! `Debug`, because whoever knows one can make every macaroon that continues from there.

mod packets;
mod v2;

use std::fmt;

use base64::{
    Engine as _,
    alphabet::{Alphabet, STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    prelude::BASE64_URL_SAFE_NO_PAD,
};
use hmac::{Hmac, KeyInit as _, Mac as _, digest::CtOutput};
use sha2::{Digest as _, Sha256};

/// The most bytes of a macaroon.
pub const MAX_BYTES: usize = 16 * 1024;
/// The most caveats of a macaroon.
pub const MAX_CAVEATS: usize = 64;
/// The most bytes of an identifier, a location or a caveat.
pub const MAX_FIELD_BYTES: usize = 2 * 1024;
/// The location that our macaroons name. It is a hint for people and is not signed.
pub const LOCATION: &str = "asyncgate";

/// The reason why something is no macaroon that we take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a macaroon: {0}")]
pub struct Malformed(pub(crate) &'static str);

type Result<T> = std::result::Result<T, Malformed>;

const TOO_LONG: Malformed = Malformed("a field is too long");
const CUT_OFF: Malformed = Malformed("the bytes end too early");
const TOO_MANY: Malformed = Malformed("there are too many caveats");
const ENDS_LATE: Malformed = Malformed("bytes follow the signature");
const BAD_SIGNATURE: Malformed = Malformed("the signature is not of 32 bytes");
const MISPLACED: Malformed =
    Malformed("a field is missing, stands twice or stands in the wrong place");

/// The key behind the macaroons of one issuer.
#[derive(Clone)]
pub struct RootKey([u8; 32]);

impl RootKey {
    /// Derives the key from a secret of any length, as the published vectors do.
    pub fn derive(secret: &[u8]) -> Self {
        let mut generator = [0; 32];
        let name = b"macaroons-key-generator";
        generator[..name.len()].copy_from_slice(name);
        Self(hmac(&generator, &[secret]))
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKey(..)")
    }
}

/// A link of the chain of signatures: after the identifier, or after a caveat.
#[derive(Clone, Copy)]
pub struct Signature([u8; 32]);

impl Signature {
    /// Returns the name under which uses of the caveat before this signature are counted. All macaroons that
    /// were derived from there share it.
    ///
    /// It is a hash, because the signature itself is a secret: with it, whoever reads the store could
    /// continue the macaroon without the caveats that came later.
    pub fn counter_name(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }
}

impl PartialEq for Signature {
    /// Takes the same time wherever the two differ.
    fn eq(&self, other: &Self) -> bool {
        let output = |signature: &Self| CtOutput::<Hmac<Sha256>>::new(signature.0.into());
        output(self) == output(other)
    }
}

impl Eq for Signature {}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(..)")
    }
}

/// A caveat as it is signed: bytes, whose meaning is not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCaveat {
    /// The condition; for a third party's caveat, what that party is asked for.
    pub identifier: Vec<u8>,
    /// The third party that must discharge the caveat, if there is one.
    pub third_party: Option<ThirdParty>,
}

/// The other half of a caveat that somebody else must discharge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThirdParty {
    /// The place where the discharge is to be had. It is not signed.
    pub location: Option<Vec<u8>>,
    /// The key of the discharge, encrypted with the signature before the caveat.
    pub verification_id: Vec<u8>,
}

/// A well-formed macaroon. [`Macaroon::verify`] says if it is genuine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Macaroon {
    location: Option<Vec<u8>>,
    identifier: Vec<u8>,
    caveats: Vec<RawCaveat>,
    signature: Signature,
}

/// The error for a macaroon that was not made with the root key, or was changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature of the macaroon is wrong")]
pub struct Forged;

/// Makes a macaroon with first-party caveats.
pub fn mint(root: &RootKey, identifier: &str, caveats: &[String]) -> Result<Macaroon> {
    if identifier.is_empty() {
        return Err(MISPLACED);
    }
    let bare = Macaroon {
        location: Some(LOCATION.into()),
        identifier: identifier.into(),
        caveats: Vec::new(),
        signature: Signature(hmac(&root.0, &[identifier.as_bytes()])),
    };
    let bare = bare.bounded()?;
    let mut caveats = caveats.iter();
    caveats.try_fold(bare, |macaroon, caveat| macaroon.attenuate(caveat))
}

impl Macaroon {
    /// Reads the text form: base64 of either alphabet, with or without padding, of either binary form.
    pub fn decode(text: &str) -> Result<Self> {
        // Three bytes are four characters.
        if text.len() > MAX_BYTES.div_ceil(3) * 4 {
            return Err(Malformed("it is too large"));
        }
        let alphabet = if text.contains(['+', '/']) {
            &STANDARD
        } else {
            &URL_SAFE
        };
        let bytes = lenient(alphabet).decode(text);
        Self::from_bytes(&bytes.map_err(|_| Malformed("it is not base64"))?)
    }

    /// Reads the binary form of version 1 or 2.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            return Err(Malformed("it is too large"));
        }
        let macaroon = match bytes.first() {
            Some(2) => v2::read(bytes)?,
            Some(b'0'..=b'9' | b'a'..=b'f') => packets::read(bytes)?,
            Some(b'{') => return Err(Malformed("the JSON form is not taken")),
            _ => return Err(Malformed("its version is unknown")),
        };
        macaroon.bounded()
    }

    /// Writes the binary form of version 2.
    pub fn to_bytes(&self) -> Vec<u8> {
        v2::write(self)
    }

    /// Writes the text form of version 2: base64url without padding.
    pub fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.to_bytes())
    }

    /// Returns the name by which the issuer knows the macaroon.
    pub fn identifier(&self) -> &[u8] {
        &self.identifier
    }

    /// Returns the location, which is not signed.
    pub fn location(&self) -> Option<&[u8]> {
        self.location.as_deref()
    }

    /// Returns the caveats, the oldest first.
    pub fn caveats(&self) -> &[RawCaveat] {
        &self.caveats
    }

    /// Returns the macaroon with another location.
    pub fn at(mut self, location: &str) -> Result<Self> {
        self.location = Some(location.into());
        self.bounded()
    }

    /// Returns a macaroon with one more first-party caveat.
    pub fn attenuate(mut self, caveat: &str) -> Result<Self> {
        if caveat.is_empty() {
            return Err(MISPLACED);
        }
        let caveat = RawCaveat {
            identifier: caveat.into(),
            third_party: None,
        };
        self.signature = self.signature.after(&caveat);
        self.caveats.push(caveat);
        self.bounded()
    }

    /// Checks that the macaroon was made with `root` and not changed since then. Returns the signature after
    /// each caveat. Says nothing about the caveats: they are for [`crate::Caveat`].
    ///
    /// Caveats of third parties are part of the chain, so that a genuine macaroon that has one can be told
    /// from a forged one.
    pub fn verify(&self, root: &RootKey) -> std::result::Result<Vec<Signature>, Forged> {
        let mut last = Signature(hmac(&root.0, &[&self.identifier]));
        let mut signatures = Vec::with_capacity(self.caveats.len());
        for caveat in &self.caveats {
            last = last.after(caveat);
            signatures.push(last);
        }
        if last == self.signature {
            Ok(signatures)
        } else {
            Err(Forged)
        }
    }

    fn bounded(self) -> Result<Self> {
        let own = [self.location.as_deref(), Some(self.identifier.as_slice())];
        let of_caveats = self.caveats.iter().flat_map(RawCaveat::fields);
        let longest = own
            .into_iter()
            .flatten()
            .chain(of_caveats)
            .map(<[u8]>::len)
            .max();
        if longest > Some(MAX_FIELD_BYTES) {
            return Err(TOO_LONG);
        }
        if self.caveats.len() > MAX_CAVEATS {
            return Err(TOO_MANY);
        }
        // It must be possible to send it back to us in the form that we write.
        if self.to_bytes().len() > MAX_BYTES {
            return Err(Malformed("it is too large"));
        }
        Ok(self)
    }
}

impl RawCaveat {
    fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let third = self.third_party.as_ref();
        let location = third.and_then(|third| third.location.as_deref());
        let verification_id = third.map(|third| third.verification_id.as_slice());
        let fields = [Some(self.identifier.as_slice()), location, verification_id];
        fields.into_iter().flatten()
    }
}

impl Signature {
    fn after(&self, caveat: &RawCaveat) -> Self {
        let Some(third) = &caveat.third_party else {
            return Self(hmac(&self.0, &[&caveat.identifier]));
        };
        let verification_id = hmac(&self.0, &[&third.verification_id]);
        let identifier = hmac(&self.0, &[&caveat.identifier]);
        Self(hmac(&self.0, &[&verification_id, &identifier]))
    }

    fn read(bytes: &[u8]) -> Result<Self> {
        bytes.try_into().map(Self).map_err(|_| BAD_SIGNATURE)
    }
}

fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC pads short keys with zeros to the size of a block; a key that has this size already cannot be
    // refused.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn lenient(alphabet: &Alphabet) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new();
    let config = config.with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(alphabet, config)
}
