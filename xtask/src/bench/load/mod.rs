//! The load generator: one thread, one epoll set, prebuilt requests.
//!
//! It shares the machine with the server that it measures, so it must cost far less than the server: one
//! read and one write per request, no allocation on the way, and no parsing beyond what the next request
//! needs.

mod connection;
mod driver;
pub mod http;
pub mod http2;

pub use driver::{Plan, Tally, drive};

use std::ops::Range;

use anyhow::Result;

/// One complete answer at the start of a connection's input.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of bytes of the input that it takes.
    pub len: usize,
    /// The HTTP status; protocols without one use 200.
    pub status: u16,
    pub body: Range<usize>,
}

/// The next step of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The unit of work goes on with another request.
    Continue,
    /// The unit is finished; the next one starts at once, or when the pace allows.
    Finished,
}

/// The requests of each connection, and the reading of their answers.
pub trait Workload {
    /// Names of the kinds of requests; each has its own histogram.
    fn kinds(&self) -> &'static [&'static str];

    /// Appends the connection's next request and returns its kind; `None` ends the connection.
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize>;

    /// Finds one complete answer at the start of the input, if it is there.
    fn frame(&self, input: &[u8]) -> Result<Option<Frame>> {
        http::frame(input)
    }

    /// Takes the answer. An error ends the whole run.
    fn answer(&mut self, connection: usize, kind: usize, status: u16, body: &[u8]) -> Result<Then>;
}
