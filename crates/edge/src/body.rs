//! Reading the bodies of requests, bounded in bytes and time, and held to a pace.

use std::{pin::pin, time::Duration};

use asyncgate_engine::{Bodies, Budget, Engine, Fault, Grant, Holder, TenantId};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, header},
};
use bytes::{Bytes, BytesMut};
use futures_util::future::poll_immediate;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout};

use crate::{Coding, Inflate, Keeper, Pace, Patience};

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
            holder: Holder::stranger(),
        }
    }

    /// Lets the memory count for a tenant, whose credential was checked.
    pub fn of(self, tenant: TenantId) -> Self {
        let holder = Holder::tenant(tenant);
        Self { holder, ..self }
    }

    /// Returns what counts the answers to the sender.
    pub fn keeper(&self) -> Keeper {
        Keeper {
            budget: self.budget.clone(),
            holder: self.holder,
        }
    }

    /// Returns the arrival of a body that begins to come.
    pub fn arrival(&self) -> Arrival {
        Arrival(Patience::new(Pace {
            bytes_per_second: self.bodies.bytes_per_second,
            grace: self.bodies.pause,
        }))
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
    let mut arrival = limits.arrival();
    // It is given back when the body is there: what happens to it then is bounded elsewhere.
    let mut grant = limits.budget.take_always(limits.holder, 0);
    while let Some(frame) = arrival.wait(body.frame()).await.ok_or_else(too_slow)? {
        let frame = frame.map_err(|error| {
            Fault::bad_request("the body did not arrive whole").because(error.to_string())
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        arrival.came(data.len());
        total += data.len();
        // The connection reads the rest of a refused body, so that the client sees the answer.
        if total > limit {
            return Err(Fault::too_large(limit));
        }
        match &mut inflate {
            Some(inflate) if grant.grow(total) => inflate.feed(&data)?,
            None => whole = join(whole, data, limit, &mut grant)?,
            Some(_) => return Err(crowded()),
        }
    }
    inflate.map_or(Ok(whole), Inflate::finish)
}

/// A body that comes. It must come at a pace: whoever sends a byte now and then holds memory and a connection.
#[derive(Debug)]
pub struct Arrival(Patience);

impl Arrival {
    /// Waits for the next piece for as long as patience lasts; then gives up with nothing.
    pub async fn wait<F: Future>(&mut self, piece: F) -> Option<F::Output> {
        let mut piece = pin!(piece);
        // Most pieces are there already. Only for one that is not, a timer is worth its price.
        if let Some(piece) = poll_immediate(piece.as_mut()).await {
            return Some(piece);
        }
        let begun = Instant::now();
        let piece = timeout(self.0.left(), piece).await.ok()?;
        self.0.waited(begun.elapsed());
        Some(piece)
    }

    /// Notes that so many bytes have come.
    pub fn came(&mut self, bytes: usize) {
        self.0.moved(bytes);
    }
}

fn too_slow() -> Fault {
    Fault::bad_request("the body did not arrive in time")
}

fn crowded() -> Fault {
    Fault::crowded("bodies")
}

/// Appends a piece. Most bodies arrive in one piece, which is not copied. The grant covers the memory that is reserved,
/// which is up to twice the bytes that have come.
fn join(whole: Bytes, data: Bytes, limit: usize, grant: &mut Grant) -> Result<Bytes, Fault> {
    if whole.is_empty() {
        return grant.grow(data.len()).then_some(data).ok_or_else(crowded);
    }
    let total = whole.len() + data.len();
    let mut joined = whole
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(shared.as_ref()));
    if joined.capacity() < total {
        let reserved = (2 * joined.len()).clamp(total, limit.max(total));
        if !grant.grow(reserved) {
            return Err(crowded());
        }
        joined.reserve(reserved - joined.len());
    }
    joined.extend_from_slice(&data);
    Ok(joined.freeze())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use asyncgate_api::Code;
    use futures_util::stream;
    use tokio::time::sleep;

    use super::*;

    fn limits(max_bytes: usize) -> BodyLimits {
        BodyLimits {
            max_bytes,
            bodies: Bodies::default(),
            budget: Budget::new(1 << 30),
            holder: Holder::tenant(TenantId::from_bytes([1; 16])),
        }
    }

    /// A body of so many pieces, each after such a pause.
    fn slow(count: usize, piece: &'static [u8], pause: Duration) -> Body {
        Body::from_stream(stream::unfold(count, move |left| async move {
            sleep(pause).await;
            let piece = Ok::<_, Infallible>(Bytes::from_static(piece));
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
    async fn a_body_comes_at_a_pace_or_is_refused() {
        let (second, piece) = (Duration::from_secs(1), &[b'x'; 1_024]);
        let fine = read_body(slow(20, piece, second), None, limits(100_000)).await;
        assert_eq!(fine.unwrap().len(), 20 * piece.len());
        let grace = Bodies::default().pause;
        for (body, most) in [
            (slow(1, piece, grace + second), grace),
            // Signs of life buy no time.
            (slow(100, b"x", second), grace + second),
            (slow(100, &piece[..10], second / 10), grace + second),
            (slow(100, piece, second), BODY_TIMEOUT),
        ] {
            let begun = Instant::now();
            let fault = read_body(body, None, limits(1 << 20)).await.unwrap_err();
            assert_eq!(fault.message, "the body did not arrive in time");
            let took = begun.elapsed();
            assert!(took + second > most && took < most + second, "{took:?}");
        }
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_joined_and_its_reserve_is_counted() {
        let pieces = |count| slow(count, &[b'x'; 3_000], Duration::ZERO);
        let whole = read_body(pieces(11), None, limits(100_000)).await.unwrap();
        assert_eq!(whole.len(), 33_000);
        let budget = Budget::new(40_000);
        let few = BodyLimits {
            budget: budget.clone(),
            ..limits(100_000)
        };
        let fault = read_body(pieces(11), None, few).await.unwrap_err();
        assert_eq!((fault.code, budget.taken()), (Code::RateLimit, 0));
    }
}
