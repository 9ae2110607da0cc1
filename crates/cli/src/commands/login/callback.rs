//! The end of a login: the browser comes to a port of this machine with a code.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::exit::Exit;

/// The most bytes of a request that are read. A code fits into a small part of it.
const MAX_BYTES: usize = 16 << 10;
/// The longest time that a browser may take for its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the browser must bring so that it ends the login that was begun here.
#[derive(Debug)]
pub struct Callback {
    /// The secret that the login began with.
    pub state: String,
    /// The name of the server.
    pub issuer: String,
}

/// What a request to the port means.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// The login ended with this code.
    Code(String),
    /// The login was refused, with this reason.
    Refused(String),
    /// It has nothing to do with the login.
    Stranger,
}

impl Callback {
    /// Waits until the browser comes with a code. Others that come to the port are sent away.
    pub async fn wait(&self, listener: &TcpListener) -> anyhow::Result<String> {
        loop {
            let (mut stream, _) = listener.accept().await?;
            let Ok(Some(target)) = timeout(PATIENCE, target(&mut stream)).await else {
                continue;
            };
            let came = self.read(&target);
            let (status, text) = match &came {
                Came::Code(_) => ("200 OK", "You are logged in. You can close this page."),
                Came::Refused(_) => ("200 OK", "You are not logged in. You can close this page."),
                Came::Stranger => ("404 Not Found", "There is nothing here."),
            };
            // The browser may be gone already, which changes nothing.
            let _ = timeout(PATIENCE, answer(&mut stream, status, text)).await;
            match came {
                Came::Code(code) => return Ok(code),
                Came::Refused(why) => return Err(Exit::refused(why).into()),
                Came::Stranger => {}
            }
        }
    }

    /// Reads the path and query of a request.
    fn read(&self, target: &str) -> Came {
        let Some(query) = target.strip_prefix("/callback?") else {
            return Came::Stranger;
        };
        let field = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(own, _)| *own == name)?;
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8().ok()?;
            Some(value.into_owned())
        };
        // Without the secret it is somebody else's login, or an attempt to put one in its place.
        if field("state").as_deref() != Some(&self.state) {
            return Came::Stranger;
        }
        if field("iss").is_some_and(|issuer| issuer != self.issuer) {
            return Came::Refused("the answer to the login is another server's".to_owned());
        }
        match (field("code"), field("error")) {
            (Some(code), None) => Came::Code(code),
            (_, Some(error)) => {
                let why = field("error_description").unwrap_or(error);
                Came::Refused(format!("the login was refused: {why}"))
            }
            (None, None) => Came::Stranger,
        }
    }
}

/// Reads the target of a request's first line.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1_024];
        let read = stream.read(&mut part).await.ok()?;
        bytes.extend_from_slice(part.get(..read)?);
        if read == 0 || bytes.len() > MAX_BYTES {
            return None;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    let line = text.lines().next()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    Some(target.to_owned())
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) -> std::io::Result<()> {
    let page = format!("<!doctype html><title>AsyncGate</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callback() -> Callback {
        Callback {
            state: "s1".to_owned(),
            issuer: "http://gate".to_owned(),
        }
    }

    #[test]
    fn only_the_login_that_was_begun_ends() {
        for (target, came) in [
            (
                "/callback?code=c%2D1&state=s1",
                Came::Code("c-1".to_owned()),
            ),
            (
                "/callback?code=c&state=s1&iss=http%3A%2F%2Fgate",
                Came::Code("c".to_owned()),
            ),
            ("/callback?code=c&state=other", Came::Stranger),
            ("/callback?code=c", Came::Stranger),
            ("/callback?state=s1", Came::Stranger),
            ("/favicon.ico", Came::Stranger),
            (
                "/callback?code=c&state=s1&iss=http%3A%2F%2Fevil",
                Came::Refused("the answer to the login is another server's".to_owned()),
            ),
            (
                "/callback?error=access_denied&error_description=not+known&state=s1",
                Came::Refused("the login was refused: not known".to_owned()),
            ),
        ] {
            assert_eq!(callback().read(target), came, "{target}");
        }
    }

    #[tokio::test]
    async fn strangers_are_sent_away_and_the_login_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = tokio::spawn(async move { callback().wait(&listener).await });
        for (target, status) in [
            ("/favicon.ico", "404"),
            ("/callback?code=c&state=wrong", "404"),
            ("/callback?code=c&state=s1", "200"),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
        }
        assert_eq!(waiting.await.unwrap().unwrap(), "c");
    }
}
