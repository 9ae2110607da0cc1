//! The binary form of version 2: fields with a type, a length and their bytes.
//!
//! A macaroon is the byte 2, a section with its location and identifier, a section for each caveat, an empty
//! section, and the signature. A section ends with a zero. Within it each type stands at most once, in rising
//! order. Numbers are written in their shortest form, so that a macaroon has one form only.

use super::{
    BAD_SIGNATURE, CUT_OFF, ENDS_LATE, MAX_CAVEATS, MISPLACED, Macaroon, Malformed, RawCaveat,
    Result, Signature, TOO_LONG, TOO_MANY, ThirdParty,
};

const VERSION: u8 = 2;
const END: u8 = 0;
const LOCATION: u8 = 1;
const IDENTIFIER: u8 = 2;
const VERIFICATION_ID: u8 = 4;
const SIGNATURE: u8 = 6;

pub(super) fn read(bytes: &[u8]) -> Result<Macaroon> {
    let mut reader = Reader(bytes);
    if reader.byte()? != VERSION {
        return Err(Malformed("its version is unknown"));
    }
    let location = reader.optional(LOCATION)?;
    let identifier = reader.required(IDENTIFIER)?;
    reader.end_section()?;
    let mut caveats = Vec::new();
    while reader.peek()? != END {
        if caveats.len() == MAX_CAVEATS {
            return Err(TOO_MANY);
        }
        caveats.push(read_caveat(&mut reader)?);
    }
    reader.end_section()?;
    let signature = reader.optional(SIGNATURE)?.ok_or(BAD_SIGNATURE)?;
    if !reader.0.is_empty() {
        return Err(ENDS_LATE);
    }
    Ok(Macaroon {
        location,
        identifier,
        caveats,
        signature: Signature::read(&signature)?,
    })
}

fn read_caveat(reader: &mut Reader<'_>) -> Result<RawCaveat> {
    let location = reader.optional(LOCATION)?;
    let identifier = reader.required(IDENTIFIER)?;
    let third_party = match (location, reader.optional(VERIFICATION_ID)?) {
        (None, None) => None,
        // A caveat of ours is checked here, so it has no other place.
        (Some(_), None) => return Err(MISPLACED),
        (location, Some(verification_id)) => Some(ThirdParty {
            location,
            verification_id,
        }),
    };
    reader.end_section()?;
    Ok(RawCaveat {
        identifier,
        third_party,
    })
}

pub(super) fn write(macaroon: &Macaroon) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    write_field(&mut bytes, LOCATION, macaroon.location.as_deref());
    write_field(&mut bytes, IDENTIFIER, Some(&macaroon.identifier));
    bytes.push(END);
    for caveat in &macaroon.caveats {
        let third = caveat.third_party.as_ref();
        let location = third.and_then(|third| third.location.as_deref());
        let verification_id = third.map(|third| third.verification_id.as_slice());
        write_field(&mut bytes, LOCATION, location);
        write_field(&mut bytes, IDENTIFIER, Some(&caveat.identifier));
        write_field(&mut bytes, VERIFICATION_ID, verification_id);
        bytes.push(END);
    }
    bytes.push(END);
    write_field(&mut bytes, SIGNATURE, Some(&macaroon.signature.0));
    bytes
}

fn write_field(bytes: &mut Vec<u8>, kind: u8, field: Option<&[u8]>) {
    let Some(field) = field else { return };
    bytes.push(kind);
    let mut length = field.len();
    while length > 0x7f {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(field);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn peek(&self) -> Result<u8> {
        self.0.first().copied().ok_or(CUT_OFF)
    }

    fn byte(&mut self) -> Result<u8> {
        let (byte, rest) = self.0.split_first().ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn end_section(&mut self) -> Result<()> {
        match self.byte()? {
            END => Ok(()),
            _ => Err(MISPLACED),
        }
    }

    fn required(&mut self, kind: u8) -> Result<Vec<u8>> {
        let field = self.optional(kind)?.ok_or(MISPLACED)?;
        if field.is_empty() {
            Err(MISPLACED)
        } else {
            Ok(field)
        }
    }

    /// Reads the next field if it is of this type. All types are so small that one byte holds them.
    fn optional(&mut self, kind: u8) -> Result<Option<Vec<u8>>> {
        if self.peek()? != kind {
            return Ok(None);
        }
        self.byte()?;
        let length = self.length()?;
        let (field, rest) = self.0.split_at_checked(length).ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(Some(field.to_vec()))
    }

    /// Reads a length of at most two bytes, which is more than any field may have.
    fn length(&mut self) -> Result<usize> {
        let low = self.byte()?;
        if low & 0x80 == 0 {
            return Ok(usize::from(low));
        }
        let high = self.byte()?;
        match high {
            0 => Err(Malformed("a number is not in its shortest form")),
            1..=0x7f => Ok(usize::from(low & 0x7f) | usize::from(high) << 7),
            _ => Err(TOO_LONG),
        }
    }
}
