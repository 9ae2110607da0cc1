//! RESP2, the protocol of Redis. Requests are lists of byte strings, and replies come in the order of requests.

use bytes::{Buf, Bytes, BytesMut};

/// The longest reply. The longest that we ask for are pages of revocations.
const MAX_REPLY: usize = 16 << 20;
/// The longest byte string in a reply. The longest that we ask for is the text of INFO.
const MAX_BULK: usize = 1 << 20;
/// The longest line in a reply, without its end. The longest are the messages of errors.
const MAX_LINE: usize = 64 << 10;
/// The longest list in a reply. The longest that we ask for is CLUSTER SLOTS of a scattered cluster.
const MAX_LIST: usize = 1 << 16;
/// The deepest nesting of lists in a reply. CLUSTER SLOTS has three levels and a list of names.
const MAX_DEPTH: usize = 5;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    /// A simple string or a byte string: nothing here depends on the difference.
    Bytes(Bytes),
    Error(String),
    List(Vec<Value>),
}

/// The kinds of replies. Which of them a request has is known before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Bytes,
    List,
}

/// The received bytes are not RESP2, or more of them than any reply has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server does not speak the protocol of Redis")]
pub(crate) struct Malformed;

impl Value {
    /// Returns the reply, or the server's message if it is an error.
    pub(crate) fn accepted(self) -> Result<Self, String> {
        if let Self::Error(text) = self {
            return Err(text);
        }
        Ok(self)
    }

    /// Returns true if a request whose replies are of this kind can have this one. Any request can be refused.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        match self {
            Self::Error(_) => true,
            Self::Int(_) => kind == Kind::Int,
            Self::Bytes(_) => kind == Kind::Bytes,
            Self::List(_) => kind == Kind::List,
            Self::Nil => false,
        }
    }

    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Nil | Self::Int(_) | Self::Error(_) | Self::List(_) => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            Self::Nil | Self::Bytes(_) | Self::Error(_) | Self::List(_) => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(list) => Some(list),
            Self::Nil | Self::Int(_) | Self::Bytes(_) | Self::Error(_) => None,
        }
    }
}

/// The arguments of a request, encoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Args {
    count: usize,
    bytes: Vec<u8>,
}

impl Args {
    pub(crate) fn of<const N: usize>(args: [&[u8]; N]) -> Self {
        let mut all = Self::default();
        for arg in args {
            all.put(arg);
        }
        all
    }

    pub(crate) fn put(&mut self, arg: impl AsRef<[u8]>) {
        let arg = arg.as_ref();
        self.count += 1;
        self.bytes.push(b'$');
        put_number(&mut self.bytes, arg.len());
        self.bytes.extend_from_slice(arg);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn put_number(&mut self, number: impl std::fmt::Display) {
        self.put(number.to_string());
    }

    /// Returns the request of these arguments after those of `head`.
    pub(crate) fn after(&self, head: &Self) -> Vec<u8> {
        let mut request = Vec::with_capacity(head.bytes.len() + self.bytes.len() + 16);
        request.push(b'*');
        put_number(&mut request, head.count + self.count);
        request.extend_from_slice(&head.bytes);
        request.extend_from_slice(&self.bytes);
        request
    }

    /// Returns the request of these arguments.
    pub(crate) fn request(&self) -> Vec<u8> {
        self.after(&Self::default())
    }
}

fn put_number(to: &mut Vec<u8>, number: usize) {
    to.extend_from_slice(number.to_string().as_bytes());
    to.extend_from_slice(b"\r\n");
}

/// Takes the first reply out of the received bytes, once it is complete.
pub(crate) fn take(received: &mut BytesMut) -> Result<Option<Value>, Malformed> {
    let mut scan = Scan {
        bytes: received,
        at: 0,
    };
    let whole = scan.skip(0)?;
    let end = scan.at;
    if end.min(received.len()) > MAX_REPLY {
        return Err(Malformed);
    }
    if whole.is_none() {
        return Ok(None);
    }
    let mut whole = received.split_to(end).freeze();
    read(&mut whole).map(Some)
}

/// Reads the replies of bytes that come in parts of some length. Returns them as text, and false if the bytes are
/// malformed after these.
#[cfg(feature = "fuzzing")]
pub fn replies_in_parts(bytes: &[u8], part: usize) -> (Vec<String>, bool) {
    let (mut received, mut replies) = (BytesMut::new(), Vec::new());
    for part in bytes.chunks(part.max(1)) {
        received.extend_from_slice(part);
        loop {
            match take(&mut received) {
                Ok(Some(reply)) => replies.push(format!("{reply:?}")),
                Ok(None) => break,
                Err(Malformed) => return (replies, false),
            }
        }
    }
    (replies, true)
}

/// Looks for the end of a reply without building it, so that an incomplete one costs no allocation.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn skip(&mut self, depth: usize) -> Result<Option<()>, Malformed> {
        let Some(line) = line(&self.bytes[self.at..])? else {
            return Ok(None);
        };
        self.at += line.len() + 2;
        match split(line)? {
            (b'+' | b'-' | b':', _) => Ok(Some(())),
            (b'$', rest) => {
                if let Some(len) = length(rest, MAX_BULK)? {
                    self.at += len + 2;
                }
                Ok((self.at <= self.bytes.len()).then_some(()))
            }
            (b'*', rest) if depth < MAX_DEPTH => {
                for _ in 0..length(rest, MAX_LIST)?.unwrap_or(0) {
                    if self.skip(depth + 1)?.is_none() {
                        return Ok(None);
                    }
                }
                Ok(Some(()))
            }
            _ => Err(Malformed),
        }
    }
}

/// Reads a reply that [`Scan`] has found to be complete and not too deep.
fn read(bytes: &mut Bytes) -> Result<Value, Malformed> {
    let len = line(bytes)?.ok_or(Malformed)?.len();
    let line = bytes.split_to(len);
    bytes.advance(2);
    let (kind, rest) = split(&line)?;
    Ok(match kind {
        b'+' => Value::Bytes(line.slice(1..)),
        b'-' => Value::Error(String::from_utf8_lossy(rest).into_owned()),
        b':' => Value::Int(number(rest)?),
        b'$' => match length(rest, MAX_BULK)? {
            None => Value::Nil,
            Some(len) => {
                let value = bytes.split_to(len);
                if !bytes.starts_with(b"\r\n") {
                    return Err(Malformed);
                }
                bytes.advance(2);
                Value::Bytes(value)
            }
        },
        b'*' => match length(rest, MAX_LIST)? {
            None => Value::Nil,
            Some(len) => Value::List((0..len).map(|_| read(bytes)).collect::<Result<_, _>>()?),
        },
        _ => return Err(Malformed),
    })
}

/// Returns the first line without its end, if it is complete.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    // A line ends with two bytes.
    let start = &bytes[..bytes.len().min(MAX_LINE + 2)];
    let Some(end) = start.iter().position(|byte| *byte == b'\n') else {
        return match start.len() < MAX_LINE + 2 {
            true => Ok(None),
            false => Err(Malformed),
        };
    };
    bytes[..end].strip_suffix(b"\r").map(Some).ok_or(Malformed)
}

fn split(line: &[u8]) -> Result<(u8, &[u8]), Malformed> {
    let (kind, rest) = line.split_first().ok_or(Malformed)?;
    Ok((*kind, rest))
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    text.parse().map_err(|_| Malformed)
}

/// Reads a length. None stands for a nil value.
fn length(text: &[u8], max: usize) -> Result<Option<usize>, Malformed> {
    match number(text)? {
        -1 => Ok(None),
        len => match usize::try_from(len) {
            Ok(len) if len <= max => Ok(Some(len)),
            _ => Err(Malformed),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Value {
        Value::Bytes(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn replies_are_read_wherever_they_are_cut() {
        let cases = [
            ("+OK\r\n", bytes("OK")),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("*0\r\n", Value::List(vec![])),
            (":-12\r\n", Value::Int(-12)),
            ("$0\r\n\r\n", bytes("")),
            ("$4\r\na\r\nb\r\n", bytes("a\r\nb")),
            ("-MOVED 1 h:2\r\n", Value::Error("MOVED 1 h:2".to_owned())),
            (
                "*3\r\n:1\r\n*1\r\n$1\r\nx\r\n$-1\r\n",
                Value::List(vec![
                    Value::Int(1),
                    Value::List(vec![bytes("x")]),
                    Value::Nil,
                ]),
            ),
        ];
        for (wire, value) in cases {
            let mut received = BytesMut::new();
            for (n, byte) in wire.bytes().enumerate() {
                received.extend_from_slice(&[byte]);
                let expected = (n + 1 == wire.len()).then(|| value.clone());
                assert_eq!(take(&mut received), Ok(expected), "{wire:?} {n}");
            }
            assert!(received.is_empty());
        }
    }

    #[test]
    fn bytes_that_are_not_a_reply_are_refused() {
        let deep = "*1\r\n".repeat(9);
        let strings = MAX_REPLY / MAX_BULK;
        let string = format!("${MAX_BULK}\r\n{}\r\n", "x".repeat(MAX_BULK));
        let long_list = format!("*99\r\n{}", string.repeat(strings));
        for wire in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            "+OK\n",
            "$x\r\n",
            "$-2\r\n",
            "$1\r\nabc\r\n",
            "$99999999999\r\n",
            "*99999999\r\n",
            ":1.5\r\n",
            &deep,
            &format!("+{}", "x".repeat(MAX_LINE + 1)),
            &format!("*1\r\n-{}\r\n", "x".repeat(MAX_LINE)),
            &format!("${}\r\n", MAX_BULK + 1),
            &long_list,
        ] {
            let mut received = BytesMut::from(wire.as_bytes());
            let shown = &wire[..wire.len().min(40)];
            assert_eq!(take(&mut received), Err(Malformed), "{shown:?}");
        }
    }

    #[test]
    fn requests_are_lists_of_strings() {
        let head = Args::of([b"GET"]);
        let mut args = Args::default();
        args.put(b"k\r\n");
        args.put_number(-7);
        assert_eq!(
            args.after(&head),
            b"*3\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n$2\r\n-7\r\n"
        );
    }
}
