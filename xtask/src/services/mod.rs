//! Programs that tests and benchmarks need beside the server: installed if missing, started on a
//! private port and directory of the loopback interface, stopped when dropped.

mod apt;
mod beanstalkd;
mod dynamodb;
mod nats;
mod postgres;
mod redis;

pub use beanstalkd::Beanstalkd;
pub use dynamodb::DynamoDb;
pub use nats::Nats;
pub use postgres::Postgres;
pub use redis::Redis;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// A port that was free a moment ago. Another program may take it first; then the start fails loudly.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// Waits until something accepts connections, as programs that report nothing on start require.
fn await_port(addr: SocketAddr, name: &str) -> Result<()> {
    let started = Instant::now();
    while TcpStream::connect(addr).is_err() {
        if started.elapsed() > Duration::from_secs(10) {
            bail!("{name} does not listen on {addr}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
