//! The signer: the address that a signature over a hash recovers to.

use asyncgate_core::hex;
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};

use crate::hash::{Hash, keccak};

/// An address of Ethereum or Celo: the last 20 bytes of the hash of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub [u8; 20]);

impl Address {
    /// Reads 40 hexadecimal digits, with or without `0x`. Upper and lower case are the same.
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }
}

/// Returns true if `signature`, 65 bytes in hexadecimal, was made over `hash` by the key of `address`. Its
/// bytes may be `v r s` or `r s v`, and `v` may count from 0 or from 27: wallets differ.
pub fn recovers(hash: &Hash, signature: &str, address: Address) -> bool {
    let Some([first, middle @ .., last]) = unhex::<65>(signature) else {
        return false;
    };
    let (mut vrs, mut rsv) = ([0; 64], [0; 64]);
    vrs[..63].copy_from_slice(&middle);
    vrs[63] = last;
    rsv[0] = first;
    rsv[1..].copy_from_slice(&middle);
    [(vrs, first), (rsv, last)]
        .into_iter()
        .any(|(rs, v)| recover(hash, &rs, v) == Some(address))
}

fn recover(hash: &Hash, rs: &[u8; 64], v: u8) -> Option<Address> {
    let odd = match v {
        0 | 27 => false,
        1 | 28 => true,
        _ => return None,
    };
    let signature = Signature::from_slice(rs).ok()?;
    // Every signature has a mirror image that is valid too. `k256` accepts only the one with the low `s`,
    // but other signers produce both. Mirroring changes the parity of the point.
    let low = signature.normalize_s();
    let id = RecoveryId::new(odd ^ (low != signature), false);
    let key = VerifyingKey::recover_from_prehash(hash, &low, id).ok()?;
    let point = key.to_sec1_point(false);
    // The first byte of the point is only a tag.
    let digest = keccak(&[point.as_bytes().get(1..)?]);
    digest.last_chunk().copied().map(Address)
}

/// Reads exactly `N` bytes in hexadecimal, `0x` before them or not.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode_any_case(text.strip_prefix("0x").unwrap_or(text))
}
