//! An access token, got as a person gets one: by the login page of the server and the code that it gives.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::admin::{Admin, principal, text};
use crate::bench::load::http;
use crate::bench::server::Server;

const NAME: &str = "bench";
const PASSWORD: &str = "a-password-for-benchmarks-only";
/// Nobody listens there: the code is taken out of the address.
const CALLBACK: &str = "http://127.0.0.1:9/callback";
/// A secret of the client, and its SHA-256 in base64url, so that only this client can use the code.
const VERIFIER: &str = "dBjftJeZ4CVP-mBk92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "InR7k6aeQegCRGGFUWUog1T2vplUXk5ZWfU4quAPTTk";
const SCOPES: [&str; 2] = ["tasks:read", "tasks:write"];
/// The longest wait for the server's key.
const MOST_PATIENCE: Duration = Duration::from_secs(20);
/// The most pages between the first one and the code.
const MOST_PAGES: usize = 5;

/// Lets a person in, registers a client, and logs the person in with it.
pub fn access_token(admin: &mut Admin, server: &Server) -> Result<String> {
    let person = json!({
        "provider": "local",
        "subject": NAME,
        "password": PASSWORD,
        "principal": principal(),
        "role": "agent",
    });
    admin.make("/v1/admin/identities", &person)?;
    let client = json!({
        "client_name": "bench",
        "redirect_uris": [CALLBACK],
        "scopes": SCOPES,
    });
    let client = text(&admin.make("/admin/oauth/clients", &client)?, "client_id")?;
    let mut browser = Browser {
        addr: server.addr,
        cookies: Vec::new(),
    };
    let code = browser.log_in(&client).context("no code by logging in")?;
    let form = form(&[
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", CALLBACK),
        ("client_id", &client),
        ("code_verifier", VERIFIER),
    ]);
    let mut answer = browser.send("POST", "/oauth/token", &form)?;
    let begun = Instant::now();
    // A new server makes the key that signs tokens in the background, and says so until then.
    while answer.status == 503 && begun.elapsed() < MOST_PATIENCE {
        thread::sleep(Duration::from_millis(100));
        answer = browser.send("POST", "/oauth/token", &form)?;
    }
    if answer.status != 200 {
        bail!("no token for the code: {}", http::shown(&answer.body));
    }
    text(
        &serde_json::from_slice::<Value>(&answer.body)?,
        "access_token",
    )
}

/// As much of a browser as a login needs: it keeps cookies, follows redirects and fills in forms.
struct Browser {
    addr: SocketAddr,
    cookies: Vec<String>,
}

struct Answer {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
}

impl Browser {
    /// Returns the code with which the client is called back.
    fn log_in(&mut self, client: &str) -> Result<String> {
        let query = form(&[
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", CALLBACK),
            ("scope", &SCOPES.join(" ")),
            ("state", "bench"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
        ]);
        let mut answer = self.send("GET", &format!("/oauth/authorize?{query}"), "")?;
        for _ in 0..MOST_PAGES {
            answer = match answer.location {
                Some(place) if place.starts_with(CALLBACK) => return code(&place),
                Some(place) => self.send("GET", &path(&place), "")?,
                None => {
                    let page = String::from_utf8_lossy(&answer.body).into_owned();
                    let page = Page::read(&page).with_context(|| {
                        format!("{}: {}", answer.status, http::shown(&answer.body))
                    })?;
                    self.send("POST", &path(page.action), &page.filled())?
                }
            };
        }
        bail!("the login does not end")
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let mut stream = TcpStream::connect(self.addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let (addr, length, cookies) = (self.addr, body.len(), self.cookies.join("; "));
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nCookie: {cookies}\r\nOrigin: http://{addr}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let frame = http::frame(&bytes)?.context("half an answer")?;
        let head = String::from_utf8_lossy(&bytes[..frame.body.start]).into_owned();
        let header = |line: &str, name: &str| {
            let (found, value) = line.split_once(':')?;
            let wanted = found.eq_ignore_ascii_case(name);
            wanted.then(|| value.trim().to_owned())
        };
        let cookies = head.lines().filter_map(|line| header(line, "set-cookie"));
        let cookies = cookies.filter_map(|cookie| Some(cookie.split(';').next()?.to_owned()));
        self.cookies.extend(cookies);
        Ok(Answer {
            status: frame.status,
            location: head.lines().find_map(|line| header(line, "location")),
            body: bytes[frame.body].to_vec(),
        })
    }
}

/// A form of a page.
struct Page<'a> {
    action: &'a str,
    /// The names of its fields, with their kinds and values.
    fields: Vec<(&'a str, &'a str, &'a str)>,
}

impl<'a> Page<'a> {
    fn read(page: &'a str) -> Option<Self> {
        let form = page.split("<form").nth(1)?;
        let tags = form.split("<input").skip(1);
        let fields = tags.filter_map(|tag| {
            let tag = tag.split('>').next()?;
            let value = |name| attribute(tag, name).unwrap_or_default();
            Some((attribute(tag, "name")?, value("type"), value("value")))
        });
        Some(Self {
            action: attribute(form.split('>').next()?, "action")?,
            fields: fields.collect(),
        })
    }

    /// Returns the form with the name and the password in the fields that are for a person.
    fn filled(&self) -> String {
        let fields = self.fields.iter().map(|(name, kind, value)| match *kind {
            "password" => (*name, PASSWORD),
            "hidden" | "submit" => (*name, *value),
            _ => (*name, NAME),
        });
        form(&fields.collect::<Vec<_>>())
    }
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()
}

/// Returns the path of an address, with its query. An address without a path is relative to the pages of the login.
fn path(address: &str) -> String {
    match address.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]).to_owned(),
        None if address.starts_with('/') => address.to_owned(),
        None => format!("/oauth/{address}"),
    }
}

/// Returns the code in the address that the client is called back with.
fn code(address: &str) -> Result<String> {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    let code = fields.find(|(name, _)| *name == "code");
    let (_, code) = code.with_context(|| format!("called back without a code: {address}"))?;
    Ok(code.to_owned())
}

/// Writes a form: every byte that is not plain is written as two hexadecimal digits.
fn form(fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in fields {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_page_is_filled_in() {
        let page = r#"<p>Hello</p><form method="post" action="/oauth/login"><input type="hidden" name="request" value="a b">
            <input type="text" name="name"><input type="password" name="password"><button>Go</button></form>"#;
        let page = Page::read(page).unwrap();
        assert_eq!(page.action, "/oauth/login");
        let filled = format!("request=a%20b&name={NAME}&password={PASSWORD}");
        assert_eq!(page.filled(), filled);
        assert!(Page::read("<p>no form</p>").is_none());
    }

    #[test]
    fn addresses_give_their_paths_and_codes() {
        assert_eq!(path("http://127.0.0.1:8080/a?b=c"), "/a?b=c");
        assert_eq!(path("/a"), "/a");
        assert_eq!(path("login"), "/oauth/login");
        assert_eq!(path("http://127.0.0.1:8080"), "/");
        let back = format!("{CALLBACK}?state=bench&code=xyz&iss=i");
        assert_eq!(code(&back).unwrap(), "xyz");
        assert!(code(CALLBACK).is_err());
    }
}
