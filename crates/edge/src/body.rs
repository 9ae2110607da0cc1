//! Reading the bodies of requests, bounded in bytes and time.

use std::{pin::pin, time::Duration};

use asyncgate_engine::{Bodies, Budget, Engine, Fault, Holder, Remote, TenantId};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, header},
};
use bytes::{Bytes, BytesMut};
use futures_util::future::poll_immediate;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::{Coding, Inflate};

/// The longest time that a whole body may take to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The limits on one body.
#[derive(Debug, Clone)]
pub struct BodyLimits {
    /// The most bytes that it may have, unpacked.
    pub max_bytes: usize,
    /// The settings for all bodies.
    pub bodies: Bodies,
    /// The memory that all bodies share while they come, and who holds it.
    pub budget: Budget,
    /// The sender.
    pub holder: Holder,
}

impl BodyLimits {
    /// Returns the limits of a body that may have `max_bytes`, by the settings in force. Its memory counts for the
    /// address that the current request came from.
    pub fn new(engine: &Engine, max_bytes: usize) -> Self {
        Self {
            max_bytes,
            bodies: engine.settings().bodies,
            budget: engine.budget().clone(),
            holder: Holder::Client(Remote::current().and_then(Remote::ip)),
        }
    }

    /// Lets the memory count for a tenant, whose credential was checked.
    pub fn of(self, tenant: TenantId) -> Self {
        let holder = Holder::Tenant(tenant);
        Self { holder, ..self }
    }
}

/// Returns how a body is compressed, if it is.
///
/// # Errors
/// When its `Content-Encoding` is not known.
pub fn coding(headers: &HeaderMap) -> Result<Option<Coding>, Fault> {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    Coding::named(codings.map(HeaderValue::as_bytes))
}

/// Reads a whole body and unpacks it.
///
/// # Errors
/// When the body is too large, comes too slowly, breaks off or cannot be unpacked.
pub async fn read_body(
    body: Body,
    coding: Option<Coding>,
    limits: BodyLimits,
) -> Result<Bytes, Fault> {
    let read = timeout(BODY_TIMEOUT, collect(body, coding, limits)).await;
    read.unwrap_or_else(|_| Err(too_slow()))
}

async fn collect(
    mut body: Body,
    coding: Option<Coding>,
    limits: BodyLimits,
) -> Result<Bytes, Fault> {
    let limit = limits.max_bytes;
    let mut inflate = coding.map(|coding| Inflate::new(coding, limit, limits.bodies.ratio_cap));
    let mut whole = Bytes::new();
    let mut total = 0;
    // It is given back when the body is there: what happens to it then is bounded elsewhere.
    let mut grant = limits.budget.take_always(limits.holder, 0);
    while let Some(frame) = in_time(limits.bodies, body.frame())
        .await
        .ok_or_else(too_slow)?
    {
        let frame = frame.map_err(|error| {
            Fault::bad_request("the body did not arrive whole").because(error.to_string())
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        total += data.len();
        // The connection reads the rest of a refused body, so that the client sees the answer.
        if total > limit {
            return Err(Fault::too_large(limit));
        }
        if !grant.grow(total) {
            return Err(Fault::crowded("bodies"));
        }
        match &mut inflate {
            Some(inflate) => inflate.feed(&data)?,
            None => whole = join(whole, data),
        }
    }
    inflate.map_or(Ok(whole), Inflate::finish)
}

/// Waits for the next piece of a body for as long as a pause may last; then gives up with nothing.
pub async fn in_time<F: Future>(bodies: Bodies, piece: F) -> Option<F::Output> {
    let mut piece = pin!(piece);
    // Most pieces are there already. Only for one that is not, a timer is worth its price.
    if let Some(piece) = poll_immediate(piece.as_mut()).await {
        return Some(piece);
    }
    timeout(bodies.pause, piece).await.ok()
}

fn too_slow() -> Fault {
    Fault::bad_request("the body did not arrive in time")
}

/// Appends a piece. Most bodies arrive in one piece, which is not copied.
fn join(whole: Bytes, data: Bytes) -> Bytes {
    if whole.is_empty() {
        return data;
    }
    let mut joined = whole
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(shared.as_ref()));
    joined.extend_from_slice(&data);
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use asyncgate_api::Code;
    use futures_util::stream;
    use tokio::time::{Instant, sleep};

    use super::*;

    fn limits(max_bytes: usize) -> BodyLimits {
        BodyLimits {
            max_bytes,
            bodies: Bodies::default(),
            budget: Budget::new(1 << 30),
            holder: Holder::Client(None),
        }
    }

    /// A body of single bytes, each after such a pause.
    fn slow(count: usize, pause: Duration) -> Body {
        Body::from_stream(stream::unfold(count, move |left| async move {
            sleep(pause).await;
            let piece = Ok::<_, Infallible>(Bytes::from_static(b"x"));
            (left > 0).then(|| (piece, left - 1))
        }))
    }

    #[tokio::test]
    async fn a_body_may_be_exactly_as_large_as_the_limit() {
        let read = |bytes| read_body(Body::from(vec![b'x'; bytes]), None, limits(10));
        assert_eq!(read(10).await.unwrap().len(), 10);
        assert_eq!(read(11).await.unwrap_err().code, Code::TooLarge);
    }

    #[tokio::test(start_paused = true)]
    async fn neither_a_long_pause_nor_many_short_ones_hold_a_reader() {
        let second = Duration::from_secs(1);
        let fine = read_body(slow(20, second), None, limits(100)).await;
        assert_eq!(fine.unwrap().len(), 20);
        for (body, most) in [
            (slow(1, Duration::from_secs(6)), Duration::from_secs(5)),
            (slow(100, second), BODY_TIMEOUT),
        ] {
            let begun = Instant::now();
            let fault = read_body(body, None, limits(1_000)).await.unwrap_err();
            assert_eq!(fault.message, "the body did not arrive in time");
            let took = begun.elapsed();
            assert!(took >= most && took < most + second, "{took:?}");
        }
    }
}
