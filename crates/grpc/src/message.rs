//! Messages as gRPC frames them: a byte for compression, four for the length, and the message.
//!
//! A call of the mailbox is one small message each way, so it is read out of the frame that it came in
//! and written as one frame and a trailer, without the buffers that a stream of messages needs.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use asyncgate_api::Code;
use asyncgate_engine::Fault;
use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use prost::Message;
use tokio::time::timeout;

/// How long a message may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
const PREFIX: usize = 5;
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// Reads the one message of a request, which may be so large.
pub(crate) async fn read<M: Message + Default>(body: Body, limit: usize) -> Result<M, Fault> {
    let late = |_| Fault::bad_request("the message did not arrive in time");
    let bytes = timeout(PATIENCE, gather(body, limit))
        .await
        .map_err(late)??;
    let undecodable = |error: prost::DecodeError| {
        Fault::bad_request("the message cannot be decoded").because(error.to_string())
    };
    M::decode(bytes).map_err(undecodable)
}

/// The bytes of the message. Nothing is kept of one that is too large.
async fn gather(mut body: Body, limit: usize) -> Result<Bytes, Fault> {
    let mut gathered = Gathered::default();
    while !body.is_end_stream() {
        let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = next else {
            break;
        };
        let torn = |error: axum::Error| {
            Fault::bad_request("the message did not arrive whole").because(error.to_string())
        };
        // What is no data is a trailer, which says nothing here.
        let Ok(data) = frame.map_err(torn)?.into_data() else {
            continue;
        };
        gathered.add(data);
        if gathered.length().is_some_and(|length| length > limit) {
            let message = format!("the message is larger than {limit} bytes");
            return Err(Fault::new(Code::TooLarge, message).with("limit", limit));
        }
        if gathered.is_more_than_whole() {
            break;
        }
    }
    gathered.finish()
}

/// What has arrived: mostly one part, which is then not copied.
#[derive(Debug, Default)]
struct Gathered {
    first: Bytes,
    all: BytesMut,
}

impl Gathered {
    fn add(&mut self, data: Bytes) {
        if self.bytes().is_empty() {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&mem::take(&mut self.first));
        }
        self.all.extend_from_slice(&data);
    }

    fn bytes(&self) -> &[u8] {
        if self.all.is_empty() {
            &self.first
        } else {
            &self.all
        }
    }

    /// How long the message says it is.
    fn length(&self) -> Option<usize> {
        let prefix = self.bytes().first_chunk::<PREFIX>()?;
        let [_, length @ ..] = *prefix;
        usize::try_from(u32::from_be_bytes(length)).ok()
    }

    fn is_more_than_whole(&self) -> bool {
        let length = self.length();
        length.is_some_and(|length| self.bytes().len() > PREFIX + length)
    }

    fn finish(self) -> Result<Bytes, Fault> {
        let whole = self.length().map(|length| PREFIX + length);
        if whole != Some(self.bytes().len()) {
            let message = "the request must be one message with its length before it";
            return Err(Fault::bad_request(message));
        }
        if self.bytes()[0] != 0 {
            let message = "the message is compressed, but no encoding is named";
            return Err(Fault::bad_request(message));
        }
        let bytes = if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        };
        Ok(bytes.slice(PREFIX..))
    }
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    // A message is bounded far below what four bytes can say.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// The answer that is one message.
pub(crate) fn one(message: &impl Message) -> Response<Body> {
    answer(Body::new(One {
        message: Some(framed(message)),
        ended: false,
    }))
}

/// The answer that is a message for each item.
pub(crate) fn many<M: Message + 'static>(
    messages: impl Stream<Item = M> + Send + 'static,
) -> Response<Body> {
    let frames = messages.map(|message| Frame::data(framed(&message)));
    let end = futures_util::stream::once(async { Frame::trailers(success()) });
    answer(Body::new(Many(Box::pin(frames.chain(end)))))
}

fn answer(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response
}

fn success() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    trailers
}

#[derive(Debug)]
struct One {
    message: Option<Bytes>,
    ended: bool,
}

impl http_body::Body for One {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match self.message.take() {
            Some(message) => Some(Frame::data(message)),
            None if !mem::replace(&mut self.ended, true) => Some(Frame::trailers(success())),
            None => None,
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.message.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(left as u64)
    }
}

struct Many<S>(Pin<Box<S>>);

impl<S: Stream<Item = Frame<Bytes>>> http_body::Body for Many<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll_next(cx).map(|frame| frame.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_api::Code;

    use super::*;
    use crate::pb::AckRequest;

    fn ack() -> AckRequest {
        AckRequest {
            msg_id: "m".repeat(40),
            lease: Some("l".to_owned()),
        }
    }

    /// A body that arrives in such parts.
    fn parts(bytes: &[u8], size: usize) -> Body {
        let parts: Vec<_> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        let parts = parts.into_iter().map(Ok::<_, Infallible>);
        Body::from_stream(futures_util::stream::iter(parts))
    }

    async fn refused(bytes: &[u8], limit: usize) -> Code {
        let read = read::<AckRequest>(parts(bytes, 7), limit).await;
        read.unwrap_err().code
    }

    #[tokio::test]
    async fn a_message_is_read_however_it_is_cut() {
        let bytes = framed(&ack());
        for size in 1..=bytes.len() {
            let found: AckRequest = read(parts(&bytes, size), 1_000).await.unwrap();
            assert_eq!(found, ack(), "parts of {size}");
        }
        let empty: AckRequest = read(parts(&[0; 5], 5), 1_000).await.unwrap();
        assert_eq!(empty, AckRequest::default());
    }

    #[tokio::test]
    async fn anything_but_one_whole_message_is_refused() {
        let bytes = framed(&ack());
        for cut in 0..bytes.len() {
            let code = refused(&bytes[..cut], 1_000).await;
            assert_eq!(code, Code::BadRequest, "{cut} bytes");
        }
        let two = [&bytes[..], &bytes[..]].concat();
        assert_eq!(refused(&two, 1_000).await, Code::BadRequest);
        let more = [&bytes[..], &[0]].concat();
        assert_eq!(refused(&more, 1_000).await, Code::BadRequest);
        let mut packed = bytes.to_vec();
        packed[0] = 1;
        assert_eq!(refused(&packed, 1_000).await, Code::BadRequest);
        let nonsense = [0, 0, 0, 0, 2, 0xff, 0xff];
        assert_eq!(refused(&nonsense, 1_000).await, Code::BadRequest);
        assert_eq!(refused(&bytes, bytes.len() - 6).await, Code::TooLarge);
        let announced = [0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(refused(&announced, 1_000).await, Code::TooLarge);
    }
}
