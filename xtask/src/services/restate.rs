//! Restate, which syncs its log before it answers as it comes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::npm::Set;
use super::running::{Running, free_address};

/// The server, and the library for services that it calls.
pub const PACKAGES: Set = Set {
    name: "restate",
    packages: &[
        "@restatedev/restate-server@1.7.12",
        "@restatedev/restate-sdk@1.17.2",
    ],
    program: "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server",
};

/// A server, which listens for calls at its address, and where it is told of services.
#[derive(Debug)]
pub struct Restate {
    pub server: Running,
    pub admin: SocketAddr,
}

impl Restate {
    /// Starts a server with its files in `dir`.
    pub fn start(dir: &Path) -> Result<Self> {
        let binary = PACKAGES.install()?.join(PACKAGES.program);
        let (ingress, admin) = (free_address()?, free_address()?);
        let mut command = Command::new(binary);
        command
            .args(["--node-name", "bench", "--base-dir"])
            .arg(dir)
            .env("RESTATE_LISTEN_MODE", "tcp")
            .env("RESTATE_BIND_ADDRESS", free_address()?.to_string())
            .env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string())
            .env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string())
            .env("DO_NOT_TRACK", "1");
        let server = Running::start(&mut command, ingress)?;
        Ok(Self { server, admin })
    }
}

/// Returns an address for a service.
pub fn service_address() -> Result<SocketAddr> {
    Ok(free_address()?)
}
