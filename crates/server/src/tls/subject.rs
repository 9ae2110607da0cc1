//! The subject of a certificate as text, for the log. Nothing is decided by it.
//!
//! The certificate was verified before, so its form is known to be right; what cannot be read is left out all the same.

use std::fmt::Write as _;

/// The most bytes of a subject that are written.
const MAX_BYTES: usize = 256;

const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version of a certificate, which those of version 1 do not have.
const VERSION: u8 = 0xa0;
/// The strings whose bytes are UTF-8 or a part of it.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// The short names of attributes, by the bytes of their object ids.
const NAMES: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
        "UID",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
];

/// Returns the subject of a certificate in DER form, such as `O=Example,CN=worker-7`, in the order in which it stands
/// there. It is empty if the certificate has none, or if it cannot be read.
pub fn subject(certificate: &[u8]) -> String {
    let mut text = find(certificate).map(write_name).unwrap_or_default();
    if text.len() > MAX_BYTES {
        let end = (0..=MAX_BYTES).rfind(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// Finds the subject within a certificate.
fn find(certificate: &[u8]) -> Option<&[u8]> {
    let mut outer = Reader(certificate);
    let mut certificate = Reader(outer.take(SEQUENCE)?);
    let mut content = Reader(certificate.take(SEQUENCE)?);
    if content.0.first() == Some(&VERSION) {
        content.take(VERSION)?;
    }
    content.take(INTEGER)?;
    let (_algorithm, _issuer, _validity) = (
        content.take(SEQUENCE)?,
        content.take(SEQUENCE)?,
        content.take(SEQUENCE)?,
    );
    content.take(SEQUENCE)
}

fn write_name(name: &[u8]) -> String {
    let mut text = String::new();
    let mut parts = Reader(name);
    while let Some(part) = parts.take(SET) {
        let mut attributes = Reader(part);
        while let Some(attribute) = attributes.take(SEQUENCE) {
            // An attribute that cannot be read hides no other.
            let _ = write_attribute(&mut text, attribute);
        }
    }
    text
}

fn write_attribute(text: &mut String, attribute: &[u8]) -> Option<()> {
    let mut attribute = Reader(attribute);
    let id = attribute.take(OBJECT_ID)?;
    let (tag, value) = attribute.value()?;
    let value = std::str::from_utf8(value).ok();
    let value = value.filter(|_| TEXTS.contains(&tag))?;
    let (_, name) = NAMES.iter().find(|(known, _)| *known == id)?;
    if !text.is_empty() {
        text.push(',');
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "{name}={}", value.escape_debug());
    Some(())
}

/// Reads values of DER one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the content of the next value, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.value()?;
        (found == tag).then_some(content)
    }

    /// Returns the tag and the content of the next value.
    fn value(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            // Certificates are much smaller than what three bytes can count.
            let digits = usize::from(first & 0x7f);
            if digits == 0 || digits > 3 {
                return None;
            }
            let (digits, after) = rest.split_at_checked(digits)?;
            length = digits
                .iter()
                .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            rest = after;
        }
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match u8::try_from(content.len()) {
            Ok(short @ 0..0x80) => bytes.push(short),
            _ => {
                bytes.push(0x82);
                bytes.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
            }
        }
        bytes.extend(content);
        bytes
    }

    fn attribute(id: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        let pair = [value(OBJECT_ID, id), value(tag, text)].concat();
        value(SET, &value(SEQUENCE, &pair))
    }

    /// A certificate of which only the subject is right.
    fn certificate(subject: &[Vec<u8>]) -> Vec<u8> {
        let content = [
            value(VERSION, &value(INTEGER, &[2])),
            value(INTEGER, &[1]),
            value(SEQUENCE, &[]),
            value(SEQUENCE, &attribute(&[0x55, 4, 3], 0x0c, b"the issuer")),
            value(SEQUENCE, &[]),
            value(SEQUENCE, &subject.concat()),
        ];
        value(SEQUENCE, &value(SEQUENCE, &content.concat()))
    }

    #[test]
    fn the_names_stand_in_their_order() {
        let (cn, o) = (&[0x55, 4, 3][..], &[0x55, 4, 10][..]);
        let cases: [(&[Vec<u8>], &str); 6] = [
            (&[], ""),
            (&[attribute(cn, 0x0c, b"w1")], "CN=w1"),
            (
                &[attribute(o, 0x13, b"Ada & Co"), attribute(cn, 0x16, b"w1")],
                "O=Ada & Co,CN=w1",
            ),
            // A text that could begin another line of the log does not.
            (&[attribute(cn, 0x0c, b"a\nb")], "CN=a\\nb"),
            // Unknown attributes, other kinds of strings and broken ones are left out.
            (
                &[
                    attribute(&[0x55, 4, 99], 0x0c, b"x"),
                    attribute(cn, 0x1e, b"\0w"),
                    attribute(cn, 0x0c, &[0xff]),
                    attribute(cn, 0x0c, b"w2"),
                ],
                "CN=w2",
            ),
            (
                &[attribute(cn, 0x0c, "é".repeat(200).as_bytes())],
                &format!("CN={}…", "é".repeat(126)),
            ),
        ];
        for (names, expected) in cases {
            assert_eq!(subject(&certificate(names)), expected);
        }
    }

    #[test]
    fn a_real_certificate_is_read() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../host-redis/tests/redis/tls/client.pem"
        );
        let certificate = CertificateDer::from_pem_file(folder).unwrap();
        assert_eq!(subject(&certificate), "CN=asyncgate");
    }

    #[test]
    fn broken_bytes_are_no_subject_and_no_panic() {
        let whole = certificate(&[attribute(&[0x55, 4, 3], 0x0c, b"w1")]);
        for end in 0..whole.len() {
            let _ = subject(&whole[..end]);
        }
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut broken = whole.clone();
                broken[place] ^= 1 << bit;
                let _ = subject(&broken);
            }
        }
        assert_eq!(subject(&[SEQUENCE, 0x80]), "");
        assert_eq!(subject(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), "");
    }
}
