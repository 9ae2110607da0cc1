//! EIP-712 hashes of domains and requests.
//!
//! A struct is hashed as `keccak(type hash, members...)`, each member 32 bytes: a number or a boolean as
//! a word, a text as its hash, a list as the hash of its members, a struct as its own hash. Texts are never
//! read as hexadecimal, even if they look like it.

use std::sync::LazyLock;

use sha3::{Digest, Keccak256};

use crate::{
    request::{Domain, Kind, Optional, Options, Request, Stage},
    signer::Address,
};

/// 32 bytes of Keccak-256.
pub type Hash = [u8; 32];

macro_rules! types {
    (stage) => { "SequentialDelayStage(Optional<uint256> batchSize,uint256 delay,Optional<uint256> repetitions,Optional<bool> resetTimer)" };
    (domain) => { "SequentialDelayDomain(Optional<address> address,string name,Optional<string> salt,SequentialDelayStage[] stages,string version)" };
    (options) => { "SequentialDelayDomainOptions(Optional<uint256> nonce,Optional<string> signature)" };
    (address) => { "Optional<address>(bool defined,address value)" };
    (bool) => { "Optional<bool>(bool defined,bool value)" };
    (string) => { "Optional<string>(bool defined,string value)" };
    (uint) => { "Optional<uint256>(bool defined,uint256 value)" };
    // The types that every request depends on; EIP-712 demands this order.
    (request) => {
        concat!(types!(address), types!(bool), types!(string), types!(uint), types!(domain), types!(options), types!(stage))
    };
}

macro_rules! type_hashes {
    ($($name:ident = $text:expr;)*) => {
        $(static $name: LazyLock<Hash> = LazyLock::new(|| keccak(&[$text.as_bytes()]));)*
    };
}

type_hashes! {
    SEPARATOR = "EIP712Domain(string name,string version)";
    ADDRESS = types!(address);
    BOOL = types!(bool);
    STRING = types!(string);
    UINT = types!(uint);
    STAGE = concat!(types!(stage), types!(bool), types!(uint));
    DOMAIN = concat!(types!(domain), types!(address), types!(bool), types!(string), types!(uint), types!(stage));
    OPTIONS = concat!(types!(options), types!(string), types!(uint));
    SIGN = concat!("DomainRestrictedSignatureRequest(string type,string blindedMessage,SequentialDelayDomain domain,SequentialDelayDomainOptions options,Optional<string> sessionID)", types!(request));
    QUOTA_STATUS = concat!("DomainQuotaStatusRequest(string type,SequentialDelayDomain domain,SequentialDelayDomainOptions options,Optional<string> sessionID)", types!(request));
    DISABLE = concat!("DisableDomainRequest(string type,SequentialDelayDomain domain,SequentialDelayDomainOptions options,Optional<string> sessionID)", types!(request));
}

/// Returns the hash that names a domain. `None` if its address is malformed.
pub fn domain_hash(domain: &Domain) -> Option<Hash> {
    Some(digest(
        &domain.name,
        &domain.version,
        &domain_struct(domain)?,
    ))
}

/// Returns the hash of the whole request, signature included.
pub fn request_hash(request: &Request) -> Option<Hash> {
    hash_with(request, &request.options)
}

/// Returns the hash that a request's signature covers: that of the request without the signature.
pub fn signing_hash(request: &Request) -> Option<Hash> {
    let options = Options {
        signature: Optional::none(),
        nonce: request.options.nonce.clone(),
    };
    hash_with(request, &options)
}

fn hash_with(request: &Request, options: &Options) -> Option<Hash> {
    let tag = text(request.kind.tag());
    let blinded = text(&request.blinded_message);
    let domain = domain_struct(&request.domain)?;
    let options = options_struct(options);
    let session = optional_text(&request.session_id);
    let (name, hash) = match request.kind {
        Kind::Sign => (
            "ODIS Domain Restricted Signature Request",
            keccak(&[&*SIGN, &tag, &blinded, &domain, &options, &session]),
        ),
        Kind::QuotaStatus => (
            "ODIS Domain Quota Status",
            keccak(&[&*QUOTA_STATUS, &tag, &domain, &options, &session]),
        ),
        Kind::Disable => (
            "ODIS Disable Domain Request",
            keccak(&[&*DISABLE, &tag, &domain, &options, &session]),
        ),
    };
    Some(digest(name, "1", &hash))
}

fn digest(name: &str, version: &str, message: &Hash) -> Hash {
    let separator = keccak(&[&*SEPARATOR, &text(name), &text(version)]);
    keccak(&[&[0x19, 0x01], &separator, message])
}

fn domain_struct(domain: &Domain) -> Option<Hash> {
    let mut stages = Keccak256::new();
    for stage in &domain.stages {
        stages.update(stage_struct(stage));
    }
    let stages: Hash = stages.finalize().into();
    Some(keccak(&[
        &*DOMAIN,
        &optional_address(&domain.address)?,
        &text(&domain.name),
        &optional_text(&domain.salt),
        &stages,
        &text(&domain.version),
    ]))
}

fn stage_struct(stage: &Stage) -> Hash {
    let resets = &stage.reset_timer;
    keccak(&[
        &*STAGE,
        &optional_number(&stage.batch_size),
        &number(stage.delay),
        &optional_number(&stage.repetitions),
        &keccak(&[&*BOOL, &flag(resets.defined), &flag(resets.value)]),
    ])
}

fn options_struct(options: &Options) -> Hash {
    let nonce = optional_number(&options.nonce);
    keccak(&[&*OPTIONS, &nonce, &optional_text(&options.signature)])
}

fn optional_text(optional: &Optional<String>) -> Hash {
    keccak(&[&*STRING, &flag(optional.defined), &text(&optional.value)])
}

fn optional_number(optional: &Optional<u64>) -> Hash {
    keccak(&[&*UINT, &flag(optional.defined), &number(optional.value)])
}

/// Hashes an optional address. An absent address is the zero address.
fn optional_address(optional: &Optional<String>) -> Option<Hash> {
    let mut word = [0; 32];
    // The hash covers the value even if it is undefined, so it must be readable in both cases.
    if optional.defined || !optional.value.is_empty() {
        word[12..].copy_from_slice(&Address::parse(&optional.value)?.0);
    }
    Some(keccak(&[&*ADDRESS, &flag(optional.defined), &word]))
}

fn text(text: &str) -> Hash {
    keccak(&[text.as_bytes()])
}

fn number(number: u64) -> Hash {
    let mut word = [0; 32];
    word[24..].copy_from_slice(&number.to_be_bytes());
    word
}

fn flag(flag: bool) -> Hash {
    number(u64::from(flag))
}

/// Keccak-256 of the parts, one after the other.
pub(crate) fn keccak(parts: &[&[u8]]) -> Hash {
    let mut hasher = Keccak256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}
