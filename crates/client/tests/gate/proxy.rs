//! A proxy that breaks what passes through it, request by request, as it is told.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The fate of one request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The connection is closed and the server sees nothing.
    DropBefore,
    /// The server does it, and the connection is closed before the answer.
    DropAfter,
    /// The server does it, and half of the answer comes back.
    HalfAnswer,
    /// The server sees nothing, and nobody answers.
    Silence,
    /// The server sees nothing, and this is the answer.
    Answer(&'static str),
    /// The server sees nothing, and the last answer that had tasks in it comes again.
    Replay,
}

pub const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-type: application/json\r\ncontent-length: 84\r\n\r\n{\"error\":\"unavailable\",\"code\":\"UNAVAILABLE\",\"message\":\"not now\",\"corr_id\":\"proxied\"}";
pub const BUSY_FOR_AN_HOUR: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 3600\r\ncontent-type: application/json\r\ncontent-length: 84\r\n\r\n{\"error\":\"unavailable\",\"code\":\"UNAVAILABLE\",\"message\":\"not now\",\"corr_id\":\"proxied\"}";
pub const BUSY_NOW: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 84\r\n\r\n{\"error\":\"unavailable\",\"code\":\"UNAVAILABLE\",\"message\":\"not now\",\"corr_id\":\"proxied\"}";
pub const NO_HOST: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 94\r\n\r\n{\"error\":\"host_unavailable\",\"code\":\"HOST_UNAVAILABLE\",\"message\":\"not now\",\"corr_id\":\"proxied\"}";
pub const OVER: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: 83\r\n\r\n{\"error\":\"rate_limit\",\"code\":\"RATE_LIMIT\",\"message\":\"too many\",\"corr_id\":\"proxied\"}";
pub const GARBAGE: &str = "SSH-2.0-OpenSSH_9.9\r\n\r\n";

#[derive(Clone)]
pub struct Proxy {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// By a part of the request line, used up in order.
    faults: Mutex<VecDeque<(&'static str, Fault)>>,
    /// The request lines that came, with their bodies.
    seen: Mutex<Vec<String>>,
    /// The last claim that was answered with tasks.
    claimed: Mutex<Vec<u8>>,
    /// The server that requests go to, unless it is down. A change closes every connection.
    upstream: watch::Sender<Option<SocketAddr>>,
    /// The number of connections that came while the server was down.
    turned_away: watch::Sender<usize>,
}

impl Proxy {
    pub async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = Self {
            addr: listener.local_addr().expect("an address"),
            shared: Arc::new(Shared {
                faults: Mutex::default(),
                seen: Mutex::default(),
                claimed: Mutex::default(),
                upstream: watch::Sender::new(Some(upstream)),
                turned_away: watch::Sender::new(0),
            }),
        };
        let shared = Arc::clone(&proxy.shared);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&shared), connection));
            }
        });
        proxy
    }

    /// The next request whose line contains `part` suffers `fault`.
    pub fn next(&self, part: &'static str, fault: Fault) {
        let mut faults = self.shared.faults.lock().expect("no panic");
        faults.push_back((part, fault));
    }

    /// Sends requests elsewhere, or nowhere, from now on; open connections are closed.
    pub fn lead_to(&self, upstream: Option<SocketAddr>) {
        self.shared.upstream.send_replace(upstream);
    }

    /// Waits until somebody found the server down.
    pub async fn until_turned_away(&self) {
        let mut turned_away = self.shared.turned_away.subscribe();
        let counted = turned_away.wait_for(|count| *count > 0).await;
        counted.expect("the proxy is there");
    }

    /// The requests that came, whose line contains `part`.
    pub fn seen(&self, part: &str) -> Vec<String> {
        let seen = self.shared.seen.lock().expect("no panic");
        let line = |request: &&String| request.lines().next().unwrap_or("").contains(part);
        seen.iter().filter(line).cloned().collect()
    }
}

async fn serve(shared: Arc<Shared>, connection: TcpStream) {
    let mut upstream = shared.upstream.subscribe();
    let target = *upstream.borrow_and_update();
    let Some(target) = target else {
        shared.turned_away.send_modify(|count| *count += 1);
        return;
    };
    tokio::select! {
        _ = upstream.changed() => {}
        _ = pass(&shared, connection, target) => {}
    }
}

async fn pass(shared: &Shared, mut client: TcpStream, target: SocketAddr) -> Option<()> {
    let mut server = TcpStream::connect(target).await.ok()?;
    loop {
        let request = message(&mut client).await?;
        let text = String::from_utf8_lossy(&request);
        let line = text.lines().next().unwrap_or_default().to_owned();
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let seen = format!("{line}\n{body}");
        shared.seen.lock().expect("no panic").push(seen);
        match fault_for(shared, &line) {
            None if line.contains("/stream") => {
                // It has no end: what comes is passed on.
                server.write_all(&request).await.ok()?;
                copy_bidirectional(&mut client, &mut server).await.ok()?;
                return None;
            }
            None => {
                server.write_all(&request).await.ok()?;
                let answer = message(&mut server).await?;
                if line.contains("/claim") && !answer.ends_with(b"[]}") {
                    shared.claimed.lock().expect("no panic").clone_from(&answer);
                }
                client.write_all(&answer).await.ok()?;
            }
            Some(Fault::Replay) => {
                let answer = shared.claimed.lock().expect("no panic").clone();
                client.write_all(&answer).await.ok()?;
            }
            Some(Fault::DropBefore) => return None,
            Some(Fault::DropAfter) => {
                server.write_all(&request).await.ok()?;
                message(&mut server).await?;
                return None;
            }
            Some(Fault::HalfAnswer) => {
                server.write_all(&request).await.ok()?;
                let answer = message(&mut server).await?;
                let half = answer.len() - 5;
                client.write_all(&answer[..half]).await.ok()?;
                return None;
            }
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::Answer(answer)) => {
                client.write_all(answer.as_bytes()).await.ok()?;
                if !answer.starts_with("HTTP") {
                    return None;
                }
            }
        }
    }
}

fn fault_for(shared: &Shared, line: &str) -> Option<Fault> {
    let mut faults = shared.faults.lock().expect("no panic");
    let place = faults.iter().position(|(part, _)| line.contains(part))?;
    faults.remove(place).map(|(_, fault)| fault)
}

/// Reads one request or answer. None of ours is chunked.
async fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(0, |value| value.trim().parse().expect("a length"));
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(bytes)
}
