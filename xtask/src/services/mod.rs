//! Programs that tests and benchmarks need beside the server: installed if missing, started on a
//! private port and directory of the loopback interface, stopped when dropped.

mod apt;
pub mod authlib;
pub mod beanstalkd;
pub mod clients;
pub mod conformance;
pub mod dynamodb;
pub mod mcp;
pub mod nats;
mod npm;
mod pip;
mod postgres;
pub mod pymacaroons;
pub mod queues;
pub mod redis;
pub mod restate;
mod running;

pub use postgres::Postgres;
