//! Stands between a host and an emulator: notes every request, and answers some itself.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::emulators::post;

/// What was noted, and what to answer next.
#[derive(Default)]
struct Notes {
    operations: Vec<String>,
    answers: VecDeque<(u16, String)>,
}

/// A server that passes requests on.
pub struct Tap {
    pub port: u16,
    notes: Arc<Mutex<Notes>>,
    task: JoinHandle<()>,
}

impl Tap {
    /// Passes on to a port.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let notes = Arc::new(Mutex::new(Notes::default()));
        let task = tokio::spawn({
            let notes = Arc::clone(&notes);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, to, Arc::clone(&notes)));
                }
            }
        });
        Self { port, notes, task }
    }

    /// The operations since the last time that somebody asked.
    pub fn noted(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap().operations)
    }

    /// Answers one request itself, after those that it was told about before.
    pub fn answer(&self, status: u16, body: &Value) {
        let answer = (status, body.to_string());
        self.notes.lock().unwrap().answers.push_back(answer);
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, to: u16, notes: Arc<Mutex<Notes>>) -> Option<()> {
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
        let own = {
            let mut notes = notes.lock().unwrap();
            notes.operations.push(operation.clone());
            notes.answers.pop_front()
        };
        let (status, body) = match own {
            Some(own) => own,
            None => post(to, &operation, std::str::from_utf8(&body).ok()?).await?,
        };
        let answer = format!(
            "HTTP/1.1 {status} Words\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}
