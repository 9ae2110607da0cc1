//! A proxy between a host and an emulator: it notes every request, can answer some itself, and can hold them back.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use asyncgate_store::conformance::eventually;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use crate::emulators::post;

/// The requests that came, and the answers that the proxy gives itself.
#[derive(Default)]
struct Notes {
    operations: Vec<String>,
    answers: VecDeque<(u16, String)>,
}

/// A server that forwards requests.
pub struct Proxy {
    pub port: u16,
    notes: Arc<Mutex<Notes>>,
    held: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy that forwards to a port.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let notes = Arc::new(Mutex::new(Notes::default()));
        let (held, gate) = watch::channel(false);
        let task = tokio::spawn({
            let notes = Arc::clone(&notes);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, to, Arc::clone(&notes), gate.clone()));
                }
            }
        });
        Self {
            port,
            notes,
            held,
            task,
        }
    }

    /// From now on requests are noted, but neither forwarded nor answered.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Forwards or answers the requests that were held back.
    pub fn release(&self) {
        self.held.send_replace(false);
    }

    /// Waits until so many requests have come.
    pub async fn until(&self, requests: usize) {
        eventually(&format!("{requests} requests"), async || {
            self.notes.lock().unwrap().operations.len() >= requests
        })
        .await;
    }

    /// Returns the operations that came since the last call.
    pub fn operations(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap().operations)
    }

    /// Answers one request itself, in the order of these calls.
    pub fn answer(&self, status: u16, body: &Value) {
        let answer = (status, body.to_string());
        self.notes.lock().unwrap().answers.push_back(answer);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    to: u16,
    notes: Arc<Mutex<Notes>>,
    mut held: watch::Receiver<bool>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut operation, mut len) = (String::new(), 0);
        loop {
            let mut line = String::new();
            stream
                .read_line(&mut line)
                .await
                .ok()
                .filter(|it| *it > 0)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                match line.trim_end().is_empty() {
                    true => break,
                    false => continue,
                }
            };
            match name {
                "content-length" => len = value.parse().ok()?,
                "x-amz-target" => operation = value.split('.').nth(1)?.to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; len];
        stream.read_exact(&mut body).await.ok()?;
        let prepared = {
            let mut notes = notes.lock().unwrap();
            notes.operations.push(operation.clone());
            notes.answers.pop_front()
        };
        held.wait_for(|held| !held).await.ok()?;
        let (status, body) = match prepared {
            Some(prepared) => prepared,
            None => post(to, &operation, std::str::from_utf8(&body).ok()?).await?,
        };
        let answer = format!(
            "HTTP/1.1 {status} Words\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}
