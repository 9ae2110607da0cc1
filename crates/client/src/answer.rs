//! Reading an answer of HTTP/1.1 out of bytes that come in any pieces.
//!
//! Of the head only that is kept which this client looks at. What no server has to send, and what
//! could be read in two ways, is an error: then nobody knows where the next answer begins.

use std::{
    mem::{MaybeUninit, take},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use http::StatusCode;
use httparse::{EMPTY_HEADER, Header, ParserConfig, Response, Status};

/// The most bytes of a head, of trailers, and of the line before a chunk.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;

/// What came is no answer of HTTP/1.1, and this is why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled(pub &'static str);

/// What stands before the body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub status: StatusCode,
    /// How long the server asks to be left alone. Dates are not understood: no server of ours
    /// sends one.
    pub retry_after: Option<Duration>,
    /// Whether the server closes the connection after it.
    pub last: bool,
    pub body: Body,
}

/// What is still to come of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// This many bytes. Every body that has an end comes down to none.
    Length(u64),
    /// A line with the size of a chunk.
    Size,
    /// This many bytes of a chunk and the end of its line, then the next size.
    Chunk(u64),
    /// The headers after the last chunk.
    Trailers,
    /// Whatever comes until the connection is closed.
    Rest,
}

impl Head {
    /// Takes the head out of what was read; `None` until all of it is there.
    pub fn take(read: &mut BytesMut) -> Result<Option<Self>, Garbled> {
        loop {
            let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
            let mut answer = Response::new(&mut []);
            let parser = ParserConfig::default();
            let parsed = parser.parse_response_with_uninit_headers(&mut answer, read, &mut headers);
            let parsed = parsed.map_err(|_| Garbled("it does not begin as an answer does"))?;
            let Some(length) = complete(parsed, read)? else {
                return Ok(None);
            };
            let head = Self::of(&answer)?;
            read.advance(length);
            // Those only say that the answer is yet to come.
            if !head.status.is_informational() {
                return Ok(Some(head));
            }
        }
    }

    fn of(answer: &Response<'_, '_>) -> Result<Self, Garbled> {
        let status = StatusCode::from_u16(answer.code.unwrap_or_default());
        let status = status.map_err(|_| Garbled("the status is none"))?;
        let mut retry_after = None;
        let mut last = answer.version != Some(1);
        let mut length = None;
        let mut chunked = false;
        for Header { name, value } in &*answer.headers {
            let is = |other| name.eq_ignore_ascii_case(other);
            if is("content-length") {
                let this = number(value).ok_or(Garbled("the length is no number"))?;
                if length.replace(this).is_some_and(|other| other != this) {
                    return Err(Garbled("there are two lengths"));
                }
            } else if is("transfer-encoding") {
                if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Garbled("it is encoded in a way that was not asked for"));
                }
                chunked = true;
            } else if is("connection") {
                let mut options = value.split(|byte| *byte == b',');
                last |= options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
            } else if is("retry-after") {
                retry_after = number(value).map(Duration::from_secs);
            }
        }
        let body = match (status, length) {
            (StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED, _) => Body::Length(0),
            (StatusCode::SWITCHING_PROTOCOLS, _) => {
                return Err(Garbled("it goes over to another protocol"));
            }
            (_, length) if chunked => {
                // Who sends both may mean either.
                last |= length.is_some();
                Body::Size
            }
            (_, Some(length)) => Body::Length(length),
            (_, None) => {
                last = true;
                Body::Rest
            }
        };
        Ok(Self {
            status,
            retry_after,
            last,
            body,
        })
    }
}

impl Body {
    pub fn is_over(&self) -> bool {
        *self == Self::Length(0)
    }

    /// How many bytes are sure to come, as far as is known.
    pub fn left(&self) -> usize {
        match self {
            Self::Length(left) | Self::Chunk(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            Self::Size | Self::Trailers | Self::Rest => 0,
        }
    }

    /// Takes the next piece out of what was read; `None` if there is nothing of it.
    pub fn take(&mut self, read: &mut BytesMut) -> Result<Option<BytesMut>, Garbled> {
        loop {
            match self {
                Self::Chunk(0) => {
                    let Some(end) = read.get(..2) else {
                        return Ok(None);
                    };
                    if end != b"\r\n" {
                        return Err(Garbled("a chunk is longer than was said"));
                    }
                    read.advance(2);
                    *self = Self::Size;
                }
                Self::Length(left) | Self::Chunk(left) => {
                    let piece = up_to(*left, read);
                    *left -= piece.len() as u64;
                    return Ok(Some(piece).filter(|piece| !piece.is_empty()));
                }
                Self::Size => {
                    let no_size = || Garbled("a chunk has no size");
                    // A line without a digit would pass for the last.
                    if read.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
                        return Err(no_size());
                    }
                    let parsed = httparse::parse_chunk_size(read).map_err(|_| no_size())?;
                    let Some((length, size)) = complete(parsed, read)? else {
                        return Ok(None);
                    };
                    read.advance(length);
                    *self = match size {
                        0 => Self::Trailers,
                        size => Self::Chunk(size),
                    };
                }
                Self::Trailers => {
                    let mut trailers = [EMPTY_HEADER; MAX_HEADERS];
                    let parsed = httparse::parse_headers(read, &mut trailers);
                    let parsed = parsed.map_err(|_| Garbled("what follows it is no header"))?;
                    let Some((length, _)) = complete(parsed, read)? else {
                        return Ok(None);
                    };
                    read.advance(length);
                    *self = Self::Length(0);
                }
                Self::Rest => return Ok(Some(take(read)).filter(|piece| !piece.is_empty())),
            }
        }
    }
}

/// What was parsed, or `None` if more must be read first.
fn complete<T>(parsed: Status<T>, read: &[u8]) -> Result<Option<T>, Garbled> {
    match parsed {
        Status::Complete(parsed) => Ok(Some(parsed)),
        Status::Partial if read.len() < MAX_HEAD_BYTES => Ok(None),
        Status::Partial => Err(Garbled("its head has no end")),
    }
}

/// Only digits: no sign, no list.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

fn up_to(left: u64, read: &mut BytesMut) -> BytesMut {
    match usize::try_from(left) {
        Ok(left) if left < read.len() => read.split_to(left),
        _ => take(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of bytes that come in these pieces: the head, the body, whether it is over, and
    /// what was left.
    type Read = Result<(Head, Vec<u8>, bool, Vec<u8>), Garbled>;

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
        let (mut read, mut head, mut body) = (BytesMut::new(), None, Vec::new());
        for piece in pieces {
            read.extend_from_slice(piece);
            if head.is_none() {
                head = Head::take(&mut read)?;
            }
            if let Some(head) = &mut head {
                while let Some(piece) = head.body.take(&mut read)? {
                    body.extend_from_slice(&piece);
                }
            }
        }
        let head = head.ok_or(Garbled("partial"))?;
        let over = head.body.is_over();
        Ok((head, body, over, read.to_vec()))
    }

    /// The same, in every two pieces and byte by byte.
    fn read_in_pieces(answer: &str) -> Read {
        let bytes = answer.as_bytes();
        let whole = read([bytes]);
        for at in 0..=bytes.len() {
            let (one, other) = bytes.split_at(at);
            assert_eq!(read([one, other]), whole, "{answer:?} at {at}");
        }
        assert_eq!(read(bytes.chunks(1)), whole, "{answer:?} byte by byte");
        whole
    }

    fn whole(answer: &str) -> (Head, String) {
        let (head, body, over, left) = read_in_pieces(answer).unwrap();
        assert!(over && left.is_empty(), "{answer:?} leaves {left:?}");
        (head, String::from_utf8(body).unwrap())
    }

    fn garbled(answer: &str) -> &'static str {
        read_in_pieces(answer).expect_err(answer).0
    }

    #[test]
    fn a_body_has_its_length() {
        let (head, body) = whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello");
        assert_eq!((head.status, body.as_str()), (StatusCode::OK, "hello"));
        assert!(!head.last && head.retry_after.is_none());
        let (_, body) = whole("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(body, "");
        let twice = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx";
        assert_eq!(whole(twice).1, "x");
    }

    #[test]
    fn what_follows_is_left() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP";
        let (_, body, over, left) = read([answer.as_bytes()]).unwrap();
        assert_eq!((&*body, over, &*left), (&b"hi"[..], true, &b"HTTP"[..]));
    }

    #[test]
    fn some_answers_have_no_body() {
        for status in ["204 No Content", "304 Not Modified"] {
            let (head, body) = whole(&format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n"));
            assert!(body.is_empty() && !head.last);
        }
    }

    #[test]
    fn chunks_are_joined_and_trailers_skipped() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n";
        for (chunks, expected) in [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n", "hello!"),
            (
                "00A\r\n0123456789\r\n0\r\na: b\r\nc: d\r\n\r\n",
                "0123456789",
            ),
            ("4\r\n\r\n0\r\r\n0;x\r\n\r\n", "\r\n0\r"),
        ] {
            let (head, body) = whole(&format!("{head}{chunks}"));
            assert_eq!((body.as_str(), head.last), (expected, false));
        }
        for (chunks, why) in [
            ("\r\n", "a chunk has no size"),
            ("x\r\n", "a chunk has no size"),
            ("-1\r\n", "a chunk has no size"),
            ("11111111111111111\r\n", "a chunk has no size"),
            ("1\r\nab\r\n", "a chunk is longer than was said"),
            ("0\r\n\0\r\n\r\n", "what follows it is no header"),
        ] {
            assert_eq!(garbled(&format!("{head}{chunks}")), why, "{chunks:?}");
        }
    }

    #[test]
    fn without_a_length_the_end_is_that_of_the_connection() {
        let answer = "HTTP/1.1 200 OK\r\n\r\nas much as there is";
        let (head, body, over, _) = read_in_pieces(answer).unwrap();
        assert_eq!((head.body, head.last, over), (Body::Rest, true, false));
        assert_eq!(body, b"as much as there is");
    }

    #[test]
    fn an_answer_may_be_the_last_and_say_when_to_come_back() {
        for (head, last) in [
            (
                "HTTP/1.1 503 \r\nretry-after: 7\r\nConnection: Keep-Alive",
                false,
            ),
            (
                "HTTP/1.1 503 \r\nretry-after: 7\r\nConnection: x, Close",
                true,
            ),
            ("HTTP/1.0 503 \r\nretry-after: 7", true),
        ] {
            let (head, _) = whole(&format!("{head}\r\ncontent-length: 0\r\n\r\n"));
            assert_eq!(head.last, last);
            assert_eq!(head.retry_after, Some(Duration::from_secs(7)));
        }
        let both = "content-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
        let (head, body) = whole(&format!("HTTP/1.1 200 OK\r\n{both}"));
        assert_eq!((body.as_str(), head.last), ("x", true));
    }

    #[test]
    fn what_is_only_on_the_way_is_skipped() {
        let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n";
        let (head, body) = whole(&format!(
            "{early}HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok"
        ));
        assert_eq!((head.status, body.as_str()), (StatusCode::CREATED, "ok"));
    }

    #[test]
    fn what_can_be_misread_is_refused() {
        for (answer, why) in [
            (
                "SSH-2.0-OpenSSH_9.9\r\n",
                "it does not begin as an answer does",
            ),
            (
                "HTTP/2 200 OK\r\n\r\n",
                "it does not begin as an answer does",
            ),
            (
                "HTTP/1.1 999999 OK\r\n\r\n",
                "it does not begin as an answer does",
            ),
            ("HTTP/1.1 000 OK\r\n\r\n", "the status is none"),
            (
                "HTTP/1.1 101 Other\r\n\r\n",
                "it goes over to another protocol",
            ),
            (
                "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
                "it does not begin as an answer does",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
                "the length is no number",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n",
                "the length is no number",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
                "the length is no number",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
                "there are two lengths",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
                "it is encoded in a way that was not asked for",
            ),
        ] {
            assert_eq!(garbled(answer), why, "{answer:?}");
        }
    }

    #[test]
    fn a_head_is_bounded() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD_BYTES));
        assert_eq!(
            read([long.as_bytes()]).unwrap_err().0,
            "its head has no end"
        );
        let many = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "x: y\r\n".repeat(MAX_HEADERS + 1)
        );
        read([many.as_bytes()]).unwrap_err();
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        for endless in ["1;", "0\r\nx:"] {
            let long = format!("{chunked}{endless}{}", "y".repeat(MAX_HEAD_BYTES));
            assert_eq!(
                read([long.as_bytes()]).unwrap_err().0,
                "its head has no end"
            );
        }
    }
}
