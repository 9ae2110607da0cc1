//! Just enough HTTP/1.1: requests as bytes, answers cut out by `Content-Length`.

use anyhow::{Context, Result, bail};

use super::Frame;

/// A request up to the point where its path and body differ from call to call.
#[derive(Clone, Debug)]
pub struct Head {
    /// Headers after the request line, without `Content-Length`.
    headers: String,
}

impl Head {
    pub fn new(host: &str, key: &str) -> Self {
        let headers = format!(
            "Host: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        );
        Self { headers }
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\n{}\r\n", self.headers).into_bytes()
    }

    pub fn post(&self, path: &str, body: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        self.write_post(&mut out, &[path], &[body]);
        out
    }

    /// Appends a request whose path and body are given in parts, so that ids are copied once.
    pub fn write_post(&self, out: &mut Vec<u8>, path: &[&str], body: &[&str]) {
        let length: usize = body.iter().map(|part| part.len()).sum();
        out.extend_from_slice(b"POST ");
        path.iter()
            .for_each(|part| out.extend_from_slice(part.as_bytes()));
        out.extend_from_slice(b" HTTP/1.1\r\n");
        out.extend_from_slice(self.headers.as_bytes());
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(length.to_string().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        body.iter()
            .for_each(|part| out.extend_from_slice(part.as_bytes()));
    }
}

/// Cuts one answer off the input.
pub fn frame(input: &[u8]) -> Result<Option<Frame>> {
    let Some(end) = position(input, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = &input[..end];
    let status = head
        .get(9..12)
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let status: u16 = status.with_context(|| format!("not an HTTP answer: {}", shown(head)))?;
    let start = end + 4;
    let len = start + content_length(head)?;
    Ok((input.len() >= len).then_some(Frame {
        len,
        status,
        body: start..len,
    }))
}

/// Returns the text of the first `"name":"..."` in a JSON body, for ids, which have no escapes.
pub fn field<'a>(body: &'a [u8], quoted: &str) -> Option<&'a str> {
    let start = position(body, quoted.as_bytes())? + quoted.len();
    let end = start + body[start..].iter().position(|&byte| byte == b'"')?;
    std::str::from_utf8(&body[start..end]).ok()
}

/// Shortens an answer for an error message.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned()
}

fn content_length(head: &[u8]) -> Result<usize> {
    const NAME: &[u8] = b"content-length:";
    for line in head.split(|&byte| byte == b'\n') {
        if line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
            let value = std::str::from_utf8(&line[NAME.len()..]).unwrap_or_default();
            return value
                .trim()
                .parse()
                .with_context(|| format!("bad Content-Length {value:?}"));
        }
    }
    bail!("an answer without Content-Length: {}", shown(head));
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|&byte| byte == first) {
        let start = from + at;
        if haystack[start..].starts_with(needle) {
            return Some(start);
        }
        from = start + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] =
        b"HTTP/1.1 201 Created\r\nX-Corr-Id: c\r\ncontent-length: 17\r\n\r\n{\"task_id\":\"abc\"}";

    #[test]
    fn an_answer_is_cut_only_when_it_is_whole() {
        for cut in 0..ANSWER.len() {
            assert_eq!(frame(&ANSWER[..cut]).unwrap(), None, "after {cut} bytes");
        }
        let two = [ANSWER, b"HTTP/1.1 200 OK\r\n"].concat();
        let found = frame(&two).unwrap().unwrap();
        assert_eq!((found.len, found.status), (ANSWER.len(), 201));
        assert_eq!(field(&two[found.body], "\"task_id\":\""), Some("abc"));
    }

    #[test]
    fn an_answer_that_cannot_be_cut_is_an_error() {
        assert!(frame(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(frame(b"HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(frame(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n").is_err());
    }

    #[test]
    fn a_field_that_is_not_there_is_none() {
        assert_eq!(field(b"{\"tasks\":[]}", "\"task_id\":\""), None);
        assert_eq!(field(b"{\"task_id\":\"cut", "\"task_id\":\""), None);
    }

    #[test]
    fn a_request_in_parts_has_the_length_of_its_body() {
        let mut out = Vec::new();
        Head::new("h", "k").write_post(
            &mut out,
            &["/v1/tasks/", "7", "/complete"],
            &["{\"a\":", "1}"],
        );
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with(
                "POST /v1/tasks/7/complete HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("Content-Length: 7\r\n\r\n{\"a\":1}"),
            "{text}"
        );
    }
}
