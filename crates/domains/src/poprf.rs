//! The partially oblivious PRF of RFC 9497, mode POPRF, suite ristretto255-SHA512: the server's side.
//!
//! The client's element is multiplied by a scalar that depends on the key and on the public `info`. The
//! answer includes a proof that the key is the one with the known public half.

use curve25519_dalek::{
    RistrettoPoint, Scalar, constants::RISTRETTO_BASEPOINT_TABLE, ristretto::CompressedRistretto,
    traits::IsIdentity,
};
use sha2::{Digest, Sha512};

/// `OPRFV1-`, the mode, `-`, the suite.
const CONTEXT: &[u8] = b"OPRFV1-\x02-ristretto255-SHA512";

/// An element of the group in its wire form.
pub(crate) type Element = [u8; 32];

/// A server's key.
#[derive(Clone)]
pub struct SecretKey(Scalar);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key itself must never reach a log.
        f.write_str("SecretKey")
    }
}

impl SecretKey {
    /// `DeriveKeyPair`: the same seed and info give the same key. `None` for a seed that gives no key, which
    /// has a negligible probability, and for an info of 64 KiB or more.
    pub fn derive(seed: &[u8; 32], info: &[u8]) -> Option<Self> {
        let length = u16::try_from(info.len()).ok()?.to_be_bytes();
        (0..=u8::MAX)
            .map(|counter| hash_to_scalar(&[seed, &length, info, &[counter]], b"DeriveKeyPair"))
            .find(|scalar| *scalar != Scalar::ZERO)
            .map(Self)
    }

    /// Returns the public half.
    pub fn public(&self) -> Element {
        (RISTRETTO_BASEPOINT_TABLE * &self.0).compress().to_bytes()
    }

    /// `BlindEvaluate`: returns the evaluated element and the two scalars of its proof. `None` if `blinded`
    /// is no element, or for the one `info` in 2^252 that cancels the key.
    ///
    /// The nonce of the proof is derived from the key and everything that is proven, as in Ed25519: the same
    /// question always has the same answer, and a weak random source cannot reveal the key.
    pub fn evaluate(&self, info: &[u8], blinded: &Element) -> Option<[u8; 96]> {
        let mut hash = Sha512::new();
        hash.update(b"asyncgate-poprf-nonce-v1");
        hash.update(self.0.as_bytes());
        hash.update(blinded);
        hash.update(info);
        let nonce = Scalar::from_bytes_mod_order_wide(&hash.finalize().into());
        self.evaluate_with(info, blinded, &nonce)
    }

    fn evaluate_with(&self, info: &[u8], blinded: &Element, nonce: &Scalar) -> Option<[u8; 96]> {
        let length = u16::try_from(info.len()).ok()?.to_be_bytes();
        let tweak = self.0 + hash_to_scalar(&[b"Info", &length, info], b"HashToScalar-");
        if tweak == Scalar::ZERO {
            return None;
        }
        let evaluated = tweak.invert() * element(blinded)?;
        let wire = evaluated.compress().to_bytes();
        let (challenge, response) = prove(&tweak, &evaluated, &wire, blinded, nonce);
        let mut answer = [0; 96];
        answer[..32].copy_from_slice(&wire);
        answer[32..64].copy_from_slice(challenge.as_bytes());
        answer[64..].copy_from_slice(response.as_bytes());
        Some(answer)
    }
}

/// Decodes an element. The identity is refused: its evaluation would not depend on the input.
pub(crate) fn element(bytes: &Element) -> Option<RistrettoPoint> {
    let point = CompressedRistretto(*bytes).decompress()?;
    (!point.is_identity()).then_some(point)
}

/// `GenerateProof`: proves that `blinded` is `tweak` times `evaluated`.
fn prove(
    tweak: &Scalar,
    evaluated: &RistrettoPoint,
    evaluated_wire: &Element,
    blinded: &Element,
    nonce: &Scalar,
) -> (Scalar, Scalar) {
    let tweaked_key = (RISTRETTO_BASEPOINT_TABLE * tweak).compress().to_bytes();
    let weight = weight(&tweaked_key, evaluated_wire, blinded);
    let composite = weight * evaluated;
    let challenge = challenge([
        &tweaked_key,
        &composite.compress().to_bytes(),
        &(tweak * composite).compress().to_bytes(),
        &(RISTRETTO_BASEPOINT_TABLE * nonce).compress().to_bytes(),
        &(nonce * composite).compress().to_bytes(),
    ]);
    (challenge, nonce - challenge * tweak)
}

/// `ComputeComposites` for one pair: returns the weight of its element in the proof.
fn weight(key: &Element, evaluated: &Element, blinded: &Element) -> Scalar {
    let mut hash = Sha512::new();
    hash.update([0, 32]);
    hash.update(key);
    let dst_length = 5 + CONTEXT.len() as u16;
    hash.update(dst_length.to_be_bytes());
    hash.update(b"Seed-");
    hash.update(CONTEXT);
    let seed: [u8; 64] = hash.finalize().into();
    let parts: [&[u8]; 8] = [
        &[0, 64],
        &seed,
        &[0, 0],
        &[0, 32],
        evaluated,
        &[0, 32],
        blinded,
        b"Composite",
    ];
    hash_to_scalar(&parts, b"HashToScalar-")
}

fn challenge(elements: [&Element; 5]) -> Scalar {
    let mut parts: Vec<&[u8]> = Vec::with_capacity(11);
    for element in elements {
        parts.extend([&[0, 32][..], element]);
    }
    parts.push(b"Challenge");
    hash_to_scalar(&parts, b"HashToScalar-")
}

fn hash_to_scalar(parts: &[&[u8]], prefix: &[u8]) -> Scalar {
    Scalar::from_bytes_mod_order_wide(&expand(parts, prefix))
}

/// `expand_message_xmd` of RFC 9380 with SHA-512, to exactly one block.
fn expand(parts: &[&[u8]], prefix: &[u8]) -> [u8; 64] {
    // All our prefixes keep the tag below 255 bytes.
    let tag_length = [(prefix.len() + CONTEXT.len()) as u8];
    let mut hash = Sha512::new();
    // A whole block of zeros (`Z_pad`), as long as the input block of SHA-512.
    hash.update([0; 128]);
    for part in parts {
        hash.update(part);
    }
    hash.update([0, 64, 0]);
    hash.update(prefix);
    hash.update(CONTEXT);
    hash.update(tag_length);
    let first = hash.finalize();
    let mut hash = Sha512::new();
    hash.update(first);
    hash.update([1]);
    hash.update(prefix);
    hash.update(CONTEXT);
    hash.update(tag_length);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9497, A.1.3: the key, and input, blinded element, evaluated element, proof, output.
    const SEED: [u8; 32] = [0xa3; 32];
    const SECRET: &str = "145c79c108538421ac164ecbe131942136d5570b16d8bf41a24d4337da981e07";
    const PUBLIC: &str = "c647bef38497bc6ec077c22af65b696efa43bff3b4a1975a3e8e0a1c5a79d631";
    const INFO: &[u8] = b"test info";
    const BLIND: &str = "64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706";
    const NONCE: &str = "222a5e897cf59db8145db8d16e597e8facb80ae7d4e26d9881aa6f61d645fc0e";
    const VECTORS: [[&str; 5]; 2] = [
        [
            "00",
            "c8713aa89241d6989ac142f22dba30596db635c772cbf25021fdd8f3d461f715",
            "1a4b860d808ff19624731e67b5eff20ceb2df3c3c03b906f5693e2078450d874",
            "41ad1a291aa02c80b0915fbfbb0c0afa15a57e2970067a602ddb9e8fd6b7100de32e1ecff943a36f0b10e3dae6bd266cdeb8adf825d86ef27dbc6c0e30c52206",
            "ca688351e88afb1d841fde4401c79efebb2eb75e7998fa9737bd5a82a152406d38bd29f680504e54fd4587eddcf2f37a2617ac2fbd2993f7bdf45442ace7d221",
        ],
        [
            "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
            "f0f0b209dd4d5f1844dac679acc7761b91a2e704879656cb7c201e82a99ab07d",
            "8c3c9d064c334c6991e99f286ea2301d1bde170b54003fb9c44c6d7bd6fc1540",
            "4c39992d55ffba38232cdac88fe583af8a85441fefd7d1d4a8d0394cd1de77018bf135c174f20281b3341ab1f453fe72b0293a7398703384bed822bfdeec8908",
            "7c6557b276a137922a0bcfc2aa2b35dd78322bd500235eb6d6b6f91bc5b56a52de2d65612d503236b321f5d0bebcbc52b64b92e426f29c9b8b69f52de98ae507",
        ],
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2).map(std::str::from_utf8);
        let byte = |pair: Result<&str, _>| u8::from_str_radix(pair.unwrap(), 16).unwrap();
        pairs.map(byte).collect()
    }

    fn word(hex: &str) -> [u8; 32] {
        bytes(hex).try_into().unwrap()
    }

    fn scalar(hex: &str) -> Scalar {
        Scalar::from_canonical_bytes(word(hex)).unwrap()
    }

    fn key() -> SecretKey {
        SecretKey::derive(&SEED, b"test key").unwrap()
    }

    /// The client's side: checks the proof by the RFC's `VerifyProof`.
    fn verifies(info: &[u8], blinded: &Element, answer: &[u8; 96], public: &Element) -> bool {
        let wire: Element = answer[..32].try_into().unwrap();
        let part =
            |at: usize| Scalar::from_canonical_bytes(answer[at..at + 32].try_into().unwrap());
        let (Some(c), Some(s)) = (part(32).into_option(), part(64).into_option()) else {
            return false;
        };
        let Some(evaluated) = element(&wire) else {
            return false;
        };
        let length = (info.len() as u16).to_be_bytes();
        let tweak = hash_to_scalar(&[b"Info", &length, info], b"HashToScalar-");
        let tweaked = RISTRETTO_BASEPOINT_TABLE * &tweak + element(public).unwrap();
        let tweaked_wire = tweaked.compress().to_bytes();
        let weight = weight(&tweaked_wire, &wire, blinded);
        let (m, z) = (weight * evaluated, weight * element(blinded).unwrap());
        let t2 = RISTRETTO_BASEPOINT_TABLE * &s + c * tweaked;
        let t3 = s * m + c * z;
        let all = [m, z, t2, t3].map(|point| point.compress().to_bytes());
        challenge([&tweaked_wire, &all[0], &all[1], &all[2], &all[3]]) == c
    }

    #[test]
    fn the_key_of_the_rfc_is_derived() {
        assert_eq!(key().0, scalar(SECRET));
        assert_eq!(key().public(), word(PUBLIC));
    }

    #[test]
    fn the_vectors_of_the_rfc_come_out() {
        for [input, blinded, evaluated, proof, output] in VECTORS {
            let hashed =
                RistrettoPoint::from_uniform_bytes(&expand(&[&bytes(input)], b"HashToGroup-"));
            assert_eq!(
                (scalar(BLIND) * hashed).compress().to_bytes(),
                word(blinded)
            );

            let answer = key()
                .evaluate_with(INFO, &word(blinded), &scalar(NONCE))
                .unwrap();
            assert_eq!(answer.to_vec(), bytes(&format!("{evaluated}{proof}")));

            // `Finalize` on the client's side.
            let unblinded = scalar(BLIND).invert() * element(&word(evaluated)).unwrap();
            let mut hash = Sha512::new();
            let input = bytes(input);
            hash.update((input.len() as u16).to_be_bytes());
            hash.update(&input);
            hash.update((INFO.len() as u16).to_be_bytes());
            hash.update(INFO);
            hash.update([0, 32]);
            hash.update(unblinded.compress().to_bytes());
            hash.update(b"Finalize");
            assert_eq!(hash.finalize().to_vec(), bytes(output));
        }
    }

    #[test]
    fn a_proof_holds_for_what_it_proves_and_for_nothing_else() {
        let blinded = word(VECTORS[0][1]);
        let answer = key().evaluate(INFO, &blinded).unwrap();
        assert_eq!(key().evaluate(INFO, &blinded).unwrap(), answer);
        assert!(verifies(INFO, &blinded, &answer, &key().public()));

        let other = SecretKey::derive(&SEED, b"another").unwrap();
        assert!(!verifies(INFO, &blinded, &answer, &other.public()));
        assert!(!verifies(b"other info", &blinded, &answer, &key().public()));
        assert!(!verifies(
            INFO,
            &word(VECTORS[1][1]),
            &answer,
            &key().public()
        ));
        for at in 0..96 {
            let mut forged = answer;
            forged[at] ^= 1;
            assert!(
                !verifies(INFO, &blinded, &forged, &key().public()),
                "byte {at}"
            );
        }
    }

    #[test]
    fn what_is_no_element_is_not_evaluated() {
        for bad in [[0; 32], [0xff; 32], [1; 32]] {
            assert!(key().evaluate(INFO, &bad).is_none());
        }
    }
}
