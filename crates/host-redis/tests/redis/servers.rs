//! Redis servers for tests: each has a port and a directory of its own, and ends when it is dropped.

use std::{
    net::Ipv4Addr,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use asyncgate_host_redis::{Address, RedisHost};
use asyncgate_store::conformance::{Program, eventually, free_port};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Returns true if there is a Redis to test with, or says that the test is skipped.
pub fn available() -> bool {
    let found = Command::new("redis-server")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("SKIPPED: there is no redis-server here; `cargo xtask test` installs it");
    }
    found
}

/// One server.
pub struct Server {
    pub port: u16,
    dir: TempDir,
    args: Vec<String>,
    program: Option<Program>,
}

impl Server {
    /// Starts a server that persists nothing.
    pub async fn start(args: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), args).await
    }

    /// Starts a sentinel that watches the master at a port.
    pub async fn start_sentinel(master: u16) -> Self {
        Self::start_sentinel_with(master, &[]).await
    }

    /// Starts a sentinel with further arguments.
    pub async fn start_sentinel_with(master: u16, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "sentinel monitor main 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds main 2000\n\
             sentinel failover-timeout main 2000\n"
        );
        std::fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap().to_owned();
        Self::start_in(dir, &[&[&config, "--sentinel"], args].concat()).await
    }

    async fn start_in(dir: TempDir, args: &[&str]) -> Self {
        let mut server = Self {
            port: free_port(),
            dir,
            args: args.iter().map(ToString::to_string).collect(),
            program: None,
        };
        server.restart().await;
        server
    }

    /// Starts it again on its port.
    pub async fn restart(&mut self) {
        self.kill();
        let mut command = Command::new("redis-server");
        if !self.args.iter().any(|arg| arg == "--sentinel") {
            command.args(["--save", "", "--appendonly", "no"]);
        }
        command
            .args(&self.args)
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1", "--dir"])
            .arg(self.dir.path());
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        command.stdout(log);
        self.program = Some(Program::start(&mut command));
        eventually("the server answers", async || {
            self.command(&["PING"])
                .await
                .is_some_and(|answer| answer.contains("PONG") || answer.contains("NOAUTH"))
        })
        .await;
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.program = None;
    }

    /// Returns the running program.
    pub fn program(&self) -> &Program {
        self.program.as_ref().unwrap()
    }

    /// Returns the address of the server, with a new prefix.
    pub fn address(&self) -> Address {
        address(&format!("redis://127.0.0.1:{}", self.port))
    }

    /// Sends a command, and returns the answer as it is on the wire.
    pub async fn command(&self, words: &[&str]) -> Option<String> {
        let place = (Ipv4Addr::LOCALHOST, self.port);
        let mut stream = TcpStream::connect(place).await.ok()?;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(request.as_bytes()).await.ok()?;
        // The answer to this ends the text.
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").await.ok()?;
        let mut answer = String::new();
        let ends = ["+PONG\r\n", "required.\r\n", "in memory\r\n"];
        while !ends.iter().any(|end| answer.ends_with(end)) {
            let mut part = [0; 4096];
            let read = stream.read(&mut part).await.ok().filter(|read| *read > 0)?;
            answer.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        Some(answer)
    }
}

/// Returns an address with a new prefix, so that hosts do not share rows.
pub fn address(place: &str) -> Address {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mark = if place.contains('?') { '&' } else { '?' };
    format!("{place}{mark}prefix=test{number}").parse().unwrap()
}

/// The arguments of a server that is part of a cluster.
pub const IN_CLUSTER: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "5000",
    "--cluster-require-full-coverage",
    "no",
];

/// Starts three masters that form a cluster.
pub async fn cluster() -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(&IN_CLUSTER).await);
    }
    let ports: Vec<u16> = servers.iter().map(|server| server.port).collect();
    join(&servers, &ports, &[]).await;
    servers
}

/// Forms a cluster of servers that listen at these ports.
pub async fn join(servers: &[Server], ports: &[u16], args: &[&str]) {
    let created = Command::new("redis-cli")
        .args(args)
        .args(["--cluster", "create"])
        .args(ports.iter().map(|port| format!("127.0.0.1:{port}")))
        .arg("--cluster-yes")
        .stdout(Stdio::null())
        .status();
    assert!(created.unwrap().success());
    for server in servers {
        eventually("the cluster is up", async || {
            let info = server.command(&["CLUSTER", "INFO"]).await;
            info.is_some_and(|info| info.contains("cluster_state:ok"))
        })
        .await;
    }
}

/// Waits until the host's server answers.
pub async fn connected(host: RedisHost) -> RedisHost {
    use asyncgate_store::admission::Host;
    eventually("the host is connected", async || host.ping().await.is_ok()).await;
    host
}
