//! The cookie that binds a login to the browser in which it began.

use axum::http::{HeaderMap, HeaderValue, header};

/// The beginning of the name of every such cookie. The rest is the beginning of the login's id, so that several logins
/// can be under way in one browser.
const PREFIX: &str = "asyncgate_login_";
/// The characters of the login's id in the name.
const ID_CHARS: usize = 12;
/// The time for which a browser keeps it, in seconds.
pub(crate) const LIFE_SECS: i64 = 600;

/// Returns the name of the cookie of a login; nothing if the id is none that this server gave out.
fn name(id: &str) -> Option<String> {
    let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let start = id.get(..ID_CHARS)?;
    let plain = start.bytes().all(is_ours);
    plain.then(|| format!("{PREFIX}{start}"))
}

/// Returns the value of the cookie of a login.
pub(crate) fn read<'a>(headers: &'a HeaderMap, id: &str) -> Option<&'a str> {
    let name = name(id)?;
    let lines = headers.get_all(header::COOKIE).into_iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(given, _)| *given == name)
        .map(|(_, value)| value)
}

/// Sets the cookie of a login. No script can read it, and no other site can have it sent with a form.
pub(crate) fn set(headers: &mut HeaderMap, id: &str, value: &str, secure: bool) {
    put(headers, id, value, LIFE_SECS, secure);
}

/// Removes the cookie of a login.
pub(crate) fn clear(headers: &mut HeaderMap, id: &str, secure: bool) {
    put(headers, id, "", 0, secure);
}

fn put(headers: &mut HeaderMap, id: &str, value: &str, life_secs: i64, secure: bool) {
    let Some(name) = name(id) else {
        return;
    };
    let secure = if secure { "; Secure" } else { "" };
    let line =
        format!("{name}={value}; Path=/; Max-Age={life_secs}; HttpOnly; SameSite=Lax{secure}");
    if let Ok(mut line) = HeaderValue::from_str(&line) {
        line.set_sensitive(true);
        headers.append(header::SET_COOKIE, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "abcdefghijklmnopq";

    #[test]
    fn a_cookie_is_for_this_browser_and_this_server() {
        let mut headers = HeaderMap::new();
        set(&mut headers, ID, "value", true);
        let line = headers[header::SET_COOKIE].to_str().unwrap();
        assert_eq!(
            line,
            "asyncgate_login_abcdefghijkl=value; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"
        );
        let mut headers = HeaderMap::new();
        clear(&mut headers, ID, false);
        let line = headers[header::SET_COOKIE].to_str().unwrap();
        assert!(line.contains("Max-Age=0") && !line.contains("Secure"));
    }

    #[test]
    fn it_is_found_among_others() {
        let mut headers = HeaderMap::new();
        let first = "a=b; asyncgate_login_abcdefghijkl=one";
        headers.append(header::COOKIE, HeaderValue::from_static(first));
        headers.append(header::COOKIE, HeaderValue::from_static("c=d"));
        assert_eq!(read(&headers, ID), Some("one"));
        assert_eq!(read(&headers, "zbcdefghijklmnopq"), None);
        for odd in [
            "",
            "short",
            "abcdefghij;x",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert_eq!(read(&headers, odd), None, "{odd}");
        }
    }
}
