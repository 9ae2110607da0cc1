//! A request's body that must arrive in time.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use asyncgate_engine::Fault;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use crate::status::status;

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// A body that ends with an error if it does not arrive in time. The timer is made only for a body
/// that is not there yet.
#[derive(Debug)]
pub(crate) struct Timely {
    body: Body,
    deadline: Option<Pin<Box<Sleep>>>,
    corr_id: String,
}

impl Timely {
    pub(crate) fn new(body: Body, corr_id: String) -> Self {
        Self {
            body,
            deadline: None,
            corr_id,
        }
    }
}

impl http_body::Body for Timely {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(error))) => {
                let fault = Fault::bad_request("the message did not arrive whole");
                let fault = fault.because(error.to_string());
                Poll::Ready(Some(Err(status(&fault, &self.corr_id))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let deadline = self
                    .deadline
                    .get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
                if deadline.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let fault = Fault::bad_request("the message did not arrive in time");
                Poll::Ready(Some(Err(status(&fault, &self.corr_id))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
