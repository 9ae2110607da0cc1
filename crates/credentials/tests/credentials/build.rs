//! Macaroons in version 1, which the product reads but does not write, and in broken forms.

use asyncgate_credentials::macaroon::Macaroon;

/// Writes packets of version 1.
pub fn packets(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        let length = 4 + name.len() + 1 + value.len() + 1;
        bytes.extend_from_slice(format!("{length:04x}{name} ").as_bytes());
        bytes.extend_from_slice(value);
        bytes.push(b'\n');
    }
    bytes
}

/// Writes a macaroon in version 1.
pub fn v1(macaroon: &Macaroon) -> Vec<u8> {
    let v2 = macaroon.to_bytes();
    let signature = &v2[v2.len() - 32..];
    let location = macaroon.location().unwrap_or_default();
    let mut fields = vec![
        ("location", location),
        ("identifier", macaroon.identifier()),
    ];
    for caveat in macaroon.caveats() {
        fields.push(("cid", &caveat.identifier));
        if let Some(third) = &caveat.third_party {
            fields.push(("vid", &third.verification_id));
            fields.extend(third.location.as_deref().map(|location| ("cl", location)));
        }
    }
    fields.push(("signature", signature));
    packets(&fields)
}

/// Writes one field of version 2.
pub fn field(kind: u8, value: &[u8]) -> Vec<u8> {
    assert!(value.len() < 128);
    let mut bytes = vec![kind, value.len() as u8];
    bytes.extend_from_slice(value);
    bytes
}

pub fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

pub fn unhex(digits: &str) -> Vec<u8> {
    base16ct::lower::decode_vec(digits).unwrap()
}

/// Returns the last signature of a macaroon.
pub fn signature(macaroon: &Macaroon) -> String {
    let bytes = macaroon.to_bytes();
    hex(&bytes[bytes.len() - 32..])
}
