//! The binary form of version 1: packets of a length in four hexadecimal digits, a name, a space, the value and
//! a line feed. It is read, but not written.

use super::{
    CUT_OFF, ENDS_LATE, MAX_CAVEATS, MISPLACED, Macaroon, Malformed, RawCaveat, Result, Signature,
    TOO_MANY, ThirdParty,
};

pub(super) fn read(bytes: &[u8]) -> Result<Macaroon> {
    let mut reader = Reader(bytes);
    let location = reader.required("location")?;
    let identifier = reader.filled("identifier")?;
    let mut caveats = Vec::new();
    while let Some(identifier) = reader.optional("cid")? {
        if caveats.len() == MAX_CAVEATS {
            return Err(TOO_MANY);
        }
        if identifier.is_empty() {
            return Err(MISPLACED);
        }
        let verification_id = reader.optional("vid")?;
        let third_party = match (verification_id, reader.optional("cl")?) {
            (None, None) => None,
            (None, Some(_)) => return Err(MISPLACED),
            (Some(verification_id), location) => Some(ThirdParty {
                location,
                verification_id,
            }),
        };
        caveats.push(RawCaveat {
            identifier,
            third_party,
        });
    }
    let signature = Signature::read(&reader.required("signature")?)?;
    if !reader.0.is_empty() {
        return Err(ENDS_LATE);
    }
    Ok(Macaroon {
        location: Some(location),
        identifier,
        caveats,
        signature,
    })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn filled(&mut self, name: &str) -> Result<Vec<u8>> {
        let value = self.required(name)?;
        if value.is_empty() {
            Err(MISPLACED)
        } else {
            Ok(value)
        }
    }

    fn required(&mut self, name: &str) -> Result<Vec<u8>> {
        self.optional(name)?.ok_or(MISPLACED)
    }

    /// Reads the next packet if it has this name.
    fn optional(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        if self.0.is_empty() {
            return Err(CUT_OFF);
        }
        let (digits, _) = self.0.split_first_chunk::<4>().ok_or(CUT_OFF)?;
        let length = length(*digits)?;
        let (packet, rest) = self.0.split_at_checked(length).ok_or(CUT_OFF)?;
        let content = packet
            .get(digits.len()..)
            .and_then(|rest| rest.strip_suffix(b"\n"));
        let content = content.ok_or(Malformed("a packet does not end with a line feed"))?;
        let value = content.strip_prefix(name.as_bytes());
        let Some(value) = value.and_then(|value| value.strip_prefix(b" ")) else {
            return Ok(None);
        };
        self.0 = rest;
        Ok(Some(value.to_vec()))
    }
}

fn length(digits: [u8; 4]) -> Result<usize> {
    digits.into_iter().try_fold(0, |length, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(Malformed("a length is not of four hexadecimal digits")),
        };
        Ok(length << 4 | usize::from(digit))
    })
}
