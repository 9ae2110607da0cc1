//! Answers that keep the grant for their memory until they are sent.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use asyncgate_engine::Grant;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Returns the body, which keeps the grant until it has been taken or dropped.
pub fn keep_grant(body: Body, grant: Grant) -> Body {
    if grant.is_empty() {
        return body;
    }
    Body::new(Kept {
        body,
        _grant: grant,
    })
}

/// A body with the grant for its memory.
struct Kept {
    body: Body,
    _grant: Grant,
}

impl HttpBody for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_engine::{Budget, Holder};

    use super::*;

    #[tokio::test]
    async fn a_body_keeps_its_grant_until_it_is_taken() {
        let budget = Budget::new(100_000);
        let grant = budget.take(Holder::Client(None), 5_000).unwrap();
        let body = keep_grant(Body::from(vec![7; 5_000]), grant);
        assert_eq!(body.size_hint().exact(), Some(5_000));
        assert_eq!(budget.taken(), 5_000);
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        assert_eq!((bytes.len(), budget.taken()), (5_000, 0));
    }
}
