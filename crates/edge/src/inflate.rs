//! Compressed bodies, unpacked as they arrive.
//!
//! Invariant: a body costs no more memory than the largest plain one, whatever it unpacks to, and no more work than its
//! bytes explain: parts of a packed body that unpack to nothing are bounded too.

use std::io::{self, Write};

use asyncgate_engine::Fault;
use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status, write::GzDecoder};

/// The most members that a gzip body may have. Each costs a new decoder, even if it is empty.
const MAX_MEMBERS: usize = 8;
/// The packed bytes that may come before anything is unpacked. Blocks without content cost work all the same.
const FREE_PACKED_BYTES: usize = 64 << 10;
/// The most packed bytes for each unpacked one, beyond those. Whoever packs does not make a body larger.
const MAX_PACKED_PER_BYTE: usize = 2;
/// The bytes that are unpacked between two looks at the bounds.
const STEP_BYTES: usize = 8 << 10;

/// A way to compress bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// The format of `gzip`.
    Gzip,
    /// The format of zlib.
    Deflate,
}

impl Coding {
    /// Returns how a body is compressed, if it is, by the values of its `Content-Encoding`.
    ///
    /// # Errors
    /// When the coding is not known, or there is more than one.
    pub fn named<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<Option<Self>, Fault> {
        let (first, second) = (values.next(), values.next());
        let Some(name) = first else {
            return Ok(None);
        };
        if second.is_some() {
            return Err(unknown());
        }
        match name.trim_ascii().to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Ok(Some(Self::Gzip)),
            b"deflate" => Ok(Some(Self::Deflate)),
            b"identity" | b"" => Ok(None),
            _ => Err(unknown()),
        }
    }
}

fn unknown() -> Fault {
    Fault::bad_request("the body's Content-Encoding must be gzip, deflate or identity")
}

/// Unpacks a body piece by piece.
#[derive(Debug)]
pub struct Inflate {
    decoder: Decoder,
    received: usize,
    ratio_cap: u32,
}

#[derive(Debug)]
enum Decoder {
    Gzip(Gzip),
    Deflate(Zlib),
}

/// A buffer that takes `limit` bytes and then fails.
#[derive(Debug)]
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.limit {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A decoder of gzip members, one behind the other.
#[derive(Debug)]
struct Gzip {
    member: GzDecoder<Bounded>,
    members: usize,
}

impl Gzip {
    fn feed(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let read = self.member.write(piece)?;
            if read == 0 {
                self.begin_member()?;
            }
            piece = piece.get(read..).unwrap_or_default();
        }
        Ok(())
    }

    /// Ends a member that takes nothing more, and begins the next.
    fn begin_member(&mut self) -> io::Result<()> {
        if self.members == MAX_MEMBERS {
            return Err(io::Error::other("it has too many members"));
        }
        self.member.try_finish()?;
        let unpacked = self.member.get_mut();
        let moved = Bounded {
            bytes: std::mem::take(&mut unpacked.bytes),
            ..*unpacked
        };
        self.member = GzDecoder::new(moved);
        self.members += 1;
        Ok(())
    }
}

/// A decoder of zlib streams. The library's own writer does not notice when the end is missing.
#[derive(Debug)]
struct Zlib {
    stream: Decompress,
    unpacked: Bounded,
    ended: bool,
}

impl Zlib {
    fn feed(&mut self, mut piece: &[u8]) -> io::Result<()> {
        let mut buffer = [0; 8 << 10];
        // The decoder may hold output back, so it is asked until nothing goes in and nothing comes out.
        while !self.ended {
            let (read, written) = (self.stream.total_in(), self.stream.total_out());
            let status = self
                .stream
                .decompress(piece, &mut buffer, FlushDecompress::None)?;
            let read = (self.stream.total_in() - read) as usize;
            let written = (self.stream.total_out() - written) as usize;
            self.ended = status == Status::StreamEnd;
            if read == 0 && written == 0 {
                break;
            }
            piece = piece.get(read..).unwrap_or_default();
            self.unpacked
                .write_all(buffer.get(..written).unwrap_or_default())?;
        }
        if piece.is_empty() {
            Ok(())
        } else {
            Err(io::Error::other("something stands behind the end"))
        }
    }

    fn finish(&self) -> io::Result<()> {
        if self.ended {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

impl Inflate {
    /// Begins to unpack, to at most `limit` bytes and at most `ratio_cap` times the bytes that come in.
    pub fn new(coding: Coding, limit: usize, ratio_cap: u32) -> Self {
        let unpacked = Bounded {
            bytes: Vec::new(),
            limit,
            full: false,
        };
        let decoder = match coding {
            Coding::Gzip => Decoder::Gzip(Gzip {
                member: GzDecoder::new(unpacked),
                members: 1,
            }),
            Coding::Deflate => Decoder::Deflate(Zlib {
                stream: Decompress::new(true),
                unpacked,
                ended: false,
            }),
        };
        Self {
            decoder,
            received: 0,
            ratio_cap,
        }
    }

    /// Unpacks the next piece of the body.
    ///
    /// # Errors
    /// When the body cannot be unpacked, or unpacks to too much. Then the rest need not be fed.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Fault> {
        piece
            .chunks(STEP_BYTES)
            .try_for_each(|step| self.feed_step(step))
    }

    fn feed_step(&mut self, step: &[u8]) -> Result<(), Fault> {
        self.received += step.len();
        let fed = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.feed(step),
            Decoder::Deflate(decoder) => decoder.feed(step),
        };
        fed.map_err(|error| self.refuse(&error))?;
        let explained = self.unpacked().bytes.len() * MAX_PACKED_PER_BYTE + FREE_PACKED_BYTES;
        if self.received > explained {
            return Err(Fault::bad_request(
                "the body cannot be unpacked: it is much larger packed than unpacked",
            ));
        }
        Ok(())
    }

    /// Returns the whole body, once all of it has been fed.
    ///
    /// # Errors
    /// As [`Inflate::feed`] has them, and a body whose end is missing.
    pub fn finish(mut self) -> Result<Bytes, Fault> {
        let finished = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.member.try_finish(),
            Decoder::Deflate(decoder) => decoder.finish(),
        };
        finished.map_err(|error| self.refuse(&error))?;
        if self.is_bomb(self.unpacked().bytes.len()) {
            return Err(Fault::bomb(self.ratio_cap));
        }
        let unpacked = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.member.get_mut(),
            Decoder::Deflate(decoder) => &mut decoder.unpacked,
        };
        Ok(std::mem::take(&mut unpacked.bytes).into())
    }

    fn unpacked(&self) -> &Bounded {
        match &self.decoder {
            Decoder::Gzip(decoder) => decoder.member.get_ref(),
            Decoder::Deflate(decoder) => &decoder.unpacked,
        }
    }

    fn is_bomb(&self, bytes: usize) -> bool {
        bytes > self.received.saturating_mul(self.ratio_cap as usize)
    }

    fn refuse(&self, error: &io::Error) -> Fault {
        let unpacked = self.unpacked();
        if !unpacked.full {
            return Fault::bad_request("the body cannot be unpacked").because(error.to_string());
        }
        // A body that is both too large and too dense is more likely meant to harm.
        if self.is_bomb(unpacked.limit) {
            return Fault::bomb(self.ratio_cap);
        }
        Fault::too_large(unpacked.limit)
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_api::Code;
    use flate2::{
        Compression,
        write::{GzEncoder, ZlibEncoder},
    };

    use super::*;

    const LIMIT: usize = 100_000;

    fn pack(coding: Coding, plain: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    fn unpack(coding: Coding, packed: &[u8], piece: usize) -> Result<Bytes, Fault> {
        let mut inflate = Inflate::new(coding, LIMIT, 10);
        for piece in packed.chunks(piece) {
            inflate.feed(piece)?;
        }
        inflate.finish()
    }

    /// Bytes that do not compress well.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..bytes).map(step).collect()
    }

    #[test]
    fn what_was_packed_is_unpacked_however_it_comes() {
        for coding in [Coding::Gzip, Coding::Deflate] {
            for plain in [
                b"{}".to_vec(),
                noise(LIMIT),
                [noise(900), vec![b'x'; 5_000]].concat(),
            ] {
                let packed = pack(coding, &plain);
                for piece in [1, 7, 1_000_000] {
                    assert_eq!(unpack(coding, &packed, piece).unwrap(), plain);
                }
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_and_costs_no_more_than_the_limit() {
        for coding in [Coding::Gzip, Coding::Deflate] {
            for size in [2_000, LIMIT, 100 * LIMIT] {
                let packed = pack(coding, &vec![0; size]);
                let fault = unpack(coding, &packed, 1_000).unwrap_err();
                assert_eq!(fault.code, Code::BadRequest, "{size}");
                assert_eq!(fault.details["reason"], "ratio_cap", "{size}");
            }
            let mut inflate = Inflate::new(coding, LIMIT, 10);
            let packed = pack(coding, &vec![0; 100 * LIMIT]);
            assert!(inflate.feed(&packed).is_err());
            assert!(inflate.unpacked().bytes.capacity() <= 2 * LIMIT);
        }
    }

    #[test]
    fn members_may_be_few_and_are_joined() {
        let member = pack(Coding::Gzip, b"{}");
        for piece in [1, 7, 1_000_000] {
            let few = unpack(Coding::Gzip, &member.repeat(MAX_MEMBERS), piece);
            assert_eq!(few.unwrap(), b"{}".repeat(MAX_MEMBERS));
            let empty = pack(Coding::Gzip, b"").repeat(MAX_MEMBERS + 1);
            for many in [&member.repeat(MAX_MEMBERS + 1), &empty] {
                let fault = unpack(Coding::Gzip, many, piece).unwrap_err();
                assert_eq!(fault.code, Code::BadRequest);
            }
        }
    }

    #[test]
    fn blocks_that_hold_nothing_are_not_unpacked_for_long() {
        // Empty stored blocks, none of which is the last.
        let blocks = [0, 0, 0, 0xff, 0xff].repeat(200_000);
        let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        for (coding, head) in [(Coding::Gzip, &gzip[..]), (Coding::Deflate, &[0x78, 0x9c])] {
            let mut inflate = Inflate::new(coding, LIMIT, 10);
            let fault = inflate.feed(&[head, &blocks].concat()).unwrap_err();
            assert_eq!(fault.code, Code::BadRequest, "{coding:?}");
            let most = FREE_PACKED_BYTES + STEP_BYTES;
            assert!(inflate.received <= most, "{}", inflate.received);
        }
    }

    #[test]
    fn what_is_only_too_large_is_called_so() {
        let packed = pack(Coding::Gzip, &noise(LIMIT + 1));
        let fault = unpack(Coding::Gzip, &packed, 1_000).unwrap_err();
        assert_eq!(fault.code, Code::TooLarge);
    }

    #[test]
    fn what_is_cut_or_broken_is_refused() {
        for coding in [Coding::Gzip, Coding::Deflate] {
            let packed = pack(coding, &noise(3_000));
            let behind = [packed.as_slice(), b"more"].concat();
            for broken in [
                &packed[..packed.len() - 1],
                &packed[..packed.len() / 2],
                &packed[1..],
                &behind,
                b"{}",
                b"",
            ] {
                let code = unpack(coding, broken, 100).err().map(|fault| fault.code);
                assert_eq!(code, Some(Code::BadRequest), "{coding:?} {}", broken.len());
            }
            let mut flipped = packed.clone();
            flipped[1_500] ^= 1;
            assert!(unpack(coding, &flipped, 100).is_err());
        }
    }

    #[test]
    fn only_known_codings_are_read() {
        let of = |values: &[&str]| {
            let values = values.iter().map(|value| value.as_bytes());
            Coding::named(values).map_err(|fault| fault.code)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["identity"]), Ok(None));
        assert_eq!(of(&["GZIP"]), Ok(Some(Coding::Gzip)));
        assert_eq!(of(&["deflate"]), Ok(Some(Coding::Deflate)));
        for bad in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &["zstd"]] {
            assert_eq!(of(bad), Err(Code::BadRequest), "{bad:?}");
        }
    }
}
