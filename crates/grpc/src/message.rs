//! Messages in gRPC's frames: a byte for compression, four for the length, and the message.
//!
//! A call of the mailbox is one small message each way, so it is read out of the frame that it came in
//! and written as one frame and a trailer, without the buffers that a stream of messages needs.

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use asyncgate_api::Code;
use asyncgate_edge::{BODY_TIMEOUT, BodyLimits};
use asyncgate_engine::{Fault, Grant};
use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use prost::Message;
use tokio::time::timeout;

const PREFIX_BYTES: usize = 5;
/// The bytes of a stream after which reading pauses to handle what has come.
const MAX_FILL_BYTES: usize = 1 << 20;
const NOT_ONE_MESSAGE: &str = "a message must have its length before it and end with it, and a call that is not a \
                    stream must have one";
pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// Reads the one message of a request. It must arrive in the time that any body has.
pub(crate) async fn read<M: Message + Default>(body: Body, limits: BodyLimits) -> Result<M, Fault> {
    let whole = timeout(BODY_TIMEOUT, Messages::new(body, limits).only());
    whole.await.map_err(|_| late())?
}

fn late() -> Fault {
    Fault::bad_request("the message did not arrive in time")
}

/// The messages of a request as they come.
#[derive(Debug)]
pub(crate) struct Messages {
    body: Body,
    /// The limits on each message.
    limits: BodyLimits,
    /// The bytes that have come and are not read yet.
    bytes: BytesMut,
    /// The memory for them.
    grant: Grant,
    ended: bool,
}

impl Messages {
    pub(crate) fn new(body: Body, limits: BodyLimits) -> Self {
        Self {
            body,
            grant: limits.budget.take_always(limits.holder, 0),
            limits,
            bytes: BytesMut::new(),
            ended: false,
        }
    }

    /// Returns the next messages: as many as are there, but no more than `most`. Returns none when the
    /// request has ended.
    pub(crate) async fn next<M: Message + Default>(
        &mut self,
        most: usize,
    ) -> Result<Vec<M>, Fault> {
        let mut found = Vec::new();
        loop {
            while found.len() < most
                && let Some(message) = self.cut()?
            {
                found.push(decode(message)?);
            }
            match (found.is_empty(), self.ended) {
                (false, _) => return Ok(found),
                (true, true) if self.bytes.is_empty() => return Ok(found),
                (true, true) => return Err(Fault::bad_request(NOT_ONE_MESSAGE)),
                (true, false) => self.fill().await?,
            }
        }
    }

    /// Reads the only message of a request.
    async fn only<M: Message + Default>(mut self) -> Result<M, Fault> {
        let mut arrival = self.limits.arrival();
        while !self.ended && !self.is_more_than_one() {
            let had = self.bytes.len();
            arrival.wait(self.fill()).await.ok_or_else(late)??;
            arrival.came(self.bytes.len() - had);
        }
        match self.cut()? {
            Some(message) if self.bytes.is_empty() => decode(message),
            Some(_) | None => Err(Fault::bad_request(NOT_ONE_MESSAGE)),
        }
    }

    /// Takes the bytes that have come, and waits only if there are none.
    async fn fill(&mut self) -> Result<(), Fault> {
        poll_fn(|cx| {
            let had = self.bytes.len();
            while self.bytes.len() - had < MAX_FILL_BYTES {
                match Pin::new(&mut self.body).poll_frame(cx) {
                    // A frame without data is a trailer, which means nothing here.
                    Poll::Ready(Some(Ok(frame))) => {
                        let data = frame.into_data().unwrap_or_default();
                        if !self.grant.grow(self.bytes.len() + data.len()) {
                            return Poll::Ready(Err(Fault::crowded("messages")));
                        }
                        self.bytes.extend_from_slice(&data);
                        self.check_length()?;
                    }
                    Poll::Ready(Some(Err(error))) => {
                        let fault = Fault::bad_request("the message did not arrive whole");
                        return Poll::Ready(Err(fault.because(error.to_string())));
                    }
                    Poll::Ready(None) => {
                        self.ended = true;
                        break;
                    }
                    Poll::Pending if self.bytes.len() == had => return Poll::Pending,
                    Poll::Pending => break,
                }
                if self.body.is_end_stream() {
                    self.ended = true;
                    break;
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Returns the announced length of the next message.
    fn length(&self) -> Option<usize> {
        let [_, length @ ..] = *self.bytes.first_chunk::<PREFIX_BYTES>()?;
        usize::try_from(u32::from_be_bytes(length)).ok()
    }

    /// Refuses a message that is too large as soon as its length is known.
    fn check_length(&self) -> Result<(), Fault> {
        let limit = self.limits.max_bytes;
        if self.length().is_none_or(|length| length <= limit) {
            return Ok(());
        }
        let message = format!("the message is larger than {limit} bytes");
        Err(Fault::new(Code::TooLarge, message).with("limit", limit))
    }

    fn is_more_than_one(&self) -> bool {
        let length = self.length();
        length.is_some_and(|length| self.bytes.len() > PREFIX_BYTES + length)
    }

    /// Takes the next message out of the bytes, if it is whole.
    fn cut(&mut self) -> Result<Option<Bytes>, Fault> {
        self.check_length()?;
        let Some(length) = self.length() else {
            return Ok(None);
        };
        if self.bytes.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        let framed = self.bytes.split_to(PREFIX_BYTES + length).freeze();
        if framed[0] != 0 {
            let message = "the message is compressed, but no encoding is named";
            return Err(Fault::bad_request(message));
        }
        Ok(Some(framed.slice(PREFIX_BYTES..)))
    }
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, Fault> {
    M::decode(message).map_err(|error| {
        Fault::bad_request("the message cannot be decoded").because(error.to_string())
    })
}

/// Frames messages, one after the other.
pub(crate) fn framed<'a, M: Message + 'a>(messages: impl IntoIterator<Item = &'a M>) -> Bytes {
    let mut bytes = BytesMut::new();
    for message in messages {
        let length = message.encoded_len();
        bytes.reserve(PREFIX_BYTES + length);
        bytes.put_u8(0);
        // Messages are bounded far below the largest length that fits into four bytes.
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        message.encode_raw(&mut bytes);
    }
    bytes.freeze()
}

/// Answers with one message, in its frame.
pub(crate) fn one(framed: Bytes) -> Response<Body> {
    answer(Body::new(One {
        message: Some(framed),
        ended: false,
    }))
}

/// Answers with frames for as long as they come. The last one is the trailer.
pub(crate) fn many(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Response<Body> {
    answer(Body::new(Many(Box::pin(frames))))
}

fn answer(body: Body) -> Response<Body> {
    let mut response = asyncgate_edge::response(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response
}

/// Returns the trailer of a successful answer.
pub(crate) fn success() -> HeaderMap {
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
    use std::time::Duration;

    use asyncgate_api::Code;
    use asyncgate_engine::{Bodies, Budget, Holder, TenantTurns};
    use futures_util::{StreamExt as _, stream};
    use tokio::time::Instant;

    use super::*;
    use crate::pb::AckRequest;

    fn ack() -> AckRequest {
        AckRequest {
            msg_id: "m".repeat(40),
            lease: Some("l".to_owned()),
        }
    }

    /// Returns a body that arrives in parts of `size` bytes.
    fn parts(bytes: &[u8], size: usize) -> Body {
        let parts: Vec<_> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        let parts = parts.into_iter().map(Ok::<_, Infallible>);
        Body::from_stream(futures_util::stream::iter(parts))
    }

    fn limits(max_bytes: usize) -> BodyLimits {
        BodyLimits {
            max_bytes,
            bodies: Bodies::default(),
            budget: Budget::new(1 << 30),
            holder: Holder::stranger(),
            tenant: None,
            turns: TenantTurns::of_each(1),
        }
    }

    async fn refused(bytes: &[u8], limit: usize) -> Code {
        let read = read::<AckRequest>(parts(bytes, 7), limits(limit)).await;
        read.unwrap_err().code
    }

    #[tokio::test]
    async fn a_message_is_read_however_it_is_cut() {
        let bytes = framed([&ack()]);
        for size in 1..=bytes.len() {
            let found: AckRequest = read(parts(&bytes, size), limits(1_000)).await.unwrap();
            assert_eq!(found, ack(), "parts of {size}");
        }
        let empty: AckRequest = read(parts(&[0; 5], 5), limits(1_000)).await.unwrap();
        assert_eq!(empty, AckRequest::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stops_half_way_is_given_up_after_a_pause() {
        let half = stream::iter([Ok::<_, Infallible>(framed([&ack()]).slice(..9))]);
        let body = Body::from_stream(half.chain(stream::pending()));
        let begun = Instant::now();
        let fault = read::<AckRequest>(body, limits(1_000)).await.unwrap_err();
        assert_eq!(fault.message, "the message did not arrive in time");
        assert!(
            begun.elapsed() < Duration::from_secs(6),
            "{:?}",
            begun.elapsed()
        );
    }

    #[tokio::test]
    async fn a_stream_is_read_however_it_is_cut() {
        let sent: Vec<_> = (0..5)
            .map(|n| AckRequest {
                msg_id: "m".repeat(n),
                lease: None,
            })
            .collect();
        let bytes = framed(&sent);
        for size in 1..=bytes.len() {
            let mut messages = Messages::new(parts(&bytes, size), limits(1_000));
            let mut found: Vec<AckRequest> = Vec::new();
            loop {
                let next = messages.next(2).await.unwrap();
                assert!(next.len() <= 2);
                if next.is_empty() {
                    break;
                }
                found.extend(next);
            }
            assert_eq!(found, sent, "parts of {size}");
        }
        let mut torn = Messages::new(parts(&bytes[..bytes.len() - 1], 3), limits(1_000));
        while let Ok(next) = torn.next::<AckRequest>(2).await {
            assert!(!next.is_empty(), "the end was not missed");
        }
    }

    #[tokio::test]
    async fn anything_but_one_whole_message_is_refused() {
        let bytes = framed([&ack()]);
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
