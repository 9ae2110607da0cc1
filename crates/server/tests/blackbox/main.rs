//! The real binary, seen from outside: every test starts `asyncgate`, talks HTTP or stdio to it, and
//! knows nothing of what is inside.
//!
//! Each test has its own directory and port. What must come in time is polled for with a deadline;
//! no test sleeps to get two things into an order.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too, measures what callers would wait, and says what it skips"
)]

mod admission;
#[cfg(feature = "dynamodb")]
mod admission_dynamodb;
mod admission_redis;
mod bytes;
mod call_limits;
mod calls;
mod cli;
mod clock;
mod contract;
mod contracts;
mod credentials;
mod crowds;
mod domains;
mod drain;
mod envoy;
mod examples;
mod faults;
mod first_trial;
mod gates;
mod generated_clients;
mod grpc;
mod happy;
mod harness;
mod headers;
mod http;
mod identity_cli;
mod ingress;
mod input;
mod integrity;
mod journal;
mod leases;
mod lifecycle;
mod limits;
mod lists;
mod mail;
mod mail_cli;
mod mcp;
mod mcp_bridge;
mod mcp_conformance;
mod mcp_official;
mod mcp_tools;
mod oauth;
mod observe;
mod packed;
mod profile;
mod protocol;
mod proxies;
mod quotas;
mod raw_http2;
mod readiness;
mod readme;
mod receipts;
mod reload;
mod restart;
mod revocation;
mod secrets;
mod secrets_search;
mod secrets_story;
mod settings;
mod slow;
mod sockets;
mod start;
mod stdio;
mod task_batches;
mod tls;
mod tls_clients;
mod tls_exchange;
mod token_key;
mod unread;
mod vectors;
mod waiting;
mod warrants;
mod worker_cli;
