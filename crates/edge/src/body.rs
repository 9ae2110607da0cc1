//! Reading the bodies of requests, bounded in bytes and time, and held to a pace.

use std::{pin::pin, time::Duration};

use asyncgate_engine::{Bodies, Budget, Engine, Fault, Grant, Holder, TenantId, TenantTurns, Turn};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, header},
};
use bytes::{Bytes, BytesMut};
use futures_util::future::poll_immediate;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout};

use crate::{Coding, Inflate, Keeper, Pace, Patience, keep_grant};

/// The longest time that a whole body may take to arrive. A large one may take it twice: before its turn, and with it.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// A body beyond this needs a turn of its tenant.
const LARGE_BODY_BYTES: usize = 64 << 10;

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
    /// The sender's tenant, if its credential was checked.
    pub tenant: Option<TenantId>,
    /// The turns at sending large bodies.
    pub turns: TenantTurns,
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
            tenant: None,
            turns: engine.large_bodies().clone(),
        }
    }

    /// Lets the body count for a tenant, whose credential was checked.
    pub fn of(self, tenant: TenantId) -> Self {
        Self {
            holder: Holder::tenant(tenant),
            tenant: Some(tenant),
            ..self
        }
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

/// A whole body. It counts as memory of its sender for as long as any part of it is somewhere.
#[derive(Debug)]
pub struct WholeBody {
    pub bytes: Bytes,
    /// The turn of a large body. While it is kept, few others of the tenant are read, so it is kept until the call is
    /// answered.
    pub turn: Option<Turn>,
}

/// Reads a whole body and unpacks it.
///
/// # Errors
/// When the body is too large, comes too slowly, breaks off or cannot be unpacked.
pub async fn read_body(
    body: Body,
    coding: Option<Coding>,
    limits: BodyLimits,
) -> Result<WholeBody, Fault> {
    let turns = limits.tenant.map(|tenant| (limits.turns.clone(), tenant));
    let mut coming = Coming::new(body, coding, limits);
    let mut turn = None;
    if in_time(coming.read(LARGE_BODY_BYTES)).await? == Part::Some {
        if let Some((turns, tenant)) = turns {
            turn = Some(turns.take(tenant).await);
        }
        in_time(coming.read(usize::MAX)).await?;
    }
    let bytes = coming.finish()?;
    Ok(WholeBody { bytes, turn })
}

async fn in_time<T>(reading: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let read = timeout(BODY_TIMEOUT, reading).await;
    read.unwrap_or_else(|_| Err(too_slow()))
}

/// The part of a body that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Some,
    Whole,
}

/// A body, as far as it was read.
struct Coming {
    body: Body,
    limit: usize,
    inflate: Option<Inflate>,
    whole: Bytes,
    /// The bytes that have come, packed as they are.
    total: usize,
    arrival: Arrival,
    grant: Grant,
}

impl Coming {
    fn new(body: Body, coding: Option<Coding>, limits: BodyLimits) -> Self {
        let (limit, ratio_cap) = (limits.max_bytes, limits.bodies.ratio_cap);
        Self {
            body,
            limit,
            inflate: coding.map(|coding| Inflate::new(coding, limit, ratio_cap)),
            whole: Bytes::new(),
            total: 0,
            arrival: limits.arrival(),
            grant: limits.budget.take_always(limits.holder, 0),
        }
    }

    /// Reads until more than `most` bytes have come, or to the end.
    async fn read(&mut self, most: usize) -> Result<Part, Fault> {
        while let Some(frame) = self
            .arrival
            .wait(self.body.frame())
            .await
            .ok_or_else(too_slow)?
        {
            let frame = frame.map_err(|error| {
                Fault::bad_request("the body did not arrive whole").because(error.to_string())
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.take(data)?;
            if self.total > most {
                return Ok(Part::Some);
            }
        }
        Ok(Part::Whole)
    }

    fn take(&mut self, data: Bytes) -> Result<(), Fault> {
        self.arrival.came(data.len());
        self.total += data.len();
        // The connection reads the rest of a refused body, so that the client sees the answer.
        if self.total > self.limit {
            return Err(Fault::too_large(self.limit));
        }
        match &mut self.inflate {
            Some(inflate) if self.grant.grow(self.total) => inflate.feed(&data),
            None => {
                let whole = std::mem::take(&mut self.whole);
                self.whole = join(whole, data, self.limit, &mut self.grant)?;
                Ok(())
            }
            Some(_) => Err(crowded()),
        }
    }

    /// Unpacks the whole body.
    fn finish(self) -> Result<Bytes, Fault> {
        let Self {
            inflate,
            whole,
            mut grant,
            ..
        } = self;
        let body = inflate.map_or(Ok(whole), Inflate::finish)?;
        if !grant.grow(body.len()) {
            return Err(crowded());
        }
        Ok(keep_grant(body, grant))
    }
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

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);

    fn limits(max_bytes: usize) -> BodyLimits {
        BodyLimits {
            max_bytes,
            bodies: Bodies::default(),
            budget: Budget::new(1 << 30),
            holder: Holder::tenant(TENANT),
            tenant: Some(TENANT),
            turns: TenantTurns::of_each(2),
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
        assert_eq!(read(10).await.unwrap().bytes.len(), 10);
        assert_eq!(read(11).await.unwrap_err().code, Code::TooLarge);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_comes_at_a_pace_or_is_refused() {
        let (second, piece) = (Duration::from_secs(1), &[b'x'; 1_024]);
        let fine = read_body(slow(20, piece, second), None, limits(100_000)).await;
        assert_eq!(fine.unwrap().bytes.len(), 20 * piece.len());
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
        let counted = limits(100_000);
        let taken = counted.budget.clone();
        let whole = read_body(pieces(11), None, counted).await.unwrap();
        assert_eq!(whole.bytes.len(), 33_000);
        assert!(taken.taken() >= 33_000, "it counts until it was read");
        drop(whole);
        assert_eq!(taken.taken(), 0);
        let budget = Budget::new(40_000);
        let few = BodyLimits {
            budget: budget.clone(),
            ..limits(100_000)
        };
        let fault = read_body(pieces(11), None, few).await.unwrap_err();
        assert_eq!((fault.code, budget.taken()), (Code::RateLimit, 0));
    }

    /// Of a tenant's large bodies few are read at a time; the next one comes when one of them is answered. Small ones, and
    /// those of others, do not wait.
    #[tokio::test(start_paused = true)]
    async fn large_bodies_of_a_tenant_wait_for_their_turns() {
        let shared = limits(1 << 20);
        let read = |bytes: usize, limits: &BodyLimits| {
            read_body(Body::from(vec![b'x'; bytes]), None, limits.clone())
        };
        let first = read(200_000, &shared).await.unwrap();
        let second = read(200_000, &shared).await.unwrap();
        assert!(first.turn.is_some() && second.turn.is_some());
        let mut third = pin!(read(200_000, &shared));
        assert!(poll_immediate(third.as_mut()).await.is_none());
        let small = read(LARGE_BODY_BYTES, &shared).await.unwrap();
        assert!(small.turn.is_none());
        let other = shared.clone().of(TenantId::from_bytes([2; 16]));
        assert!(read(200_000, &other).await.unwrap().turn.is_some());
        // However long it waits, it is not too slow.
        sleep(2 * BODY_TIMEOUT).await;
        assert!(poll_immediate(third.as_mut()).await.is_none());
        drop(first.bytes);
        assert!(
            poll_immediate(third.as_mut()).await.is_none(),
            "it is not answered yet"
        );
        drop(first.turn);
        assert_eq!(third.await.unwrap().bytes.len(), 200_000);
    }
}
