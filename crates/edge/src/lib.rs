//! The edge between HTTP and the engine: everything that a facade does before and after an operation.
//!
//! REST, MCP, gRPC and the server's own routes read credentials, correlation ids and bodies here, and
//! write answers and log faults here, so that a client meets the same rules whichever way it comes.
//! Rules of a single protocol stay in its facade.

mod answer;
mod body;
mod challenge;
mod forwarded;
mod inflate;
mod keep;
mod pace;
mod request;
mod security;

pub use answer::{
    add_headers, answer, error_body, error_response, json_response, log_fault, response,
    set_corr_id, status,
};
pub use body::{Arrival, BODY_TIMEOUT, BodyLimits, WholeBody, coding, read_body};
pub use challenge::Challenge;
pub use forwarded::forwarded_for;
pub use inflate::{Coding, Inflate};
pub use keep::{Keeper, keep_grant};
pub use pace::{Pace, Patience};
pub use request::{CORR_ID, correlate, correlated, request_context};
pub use security::SecurityHeaders;
