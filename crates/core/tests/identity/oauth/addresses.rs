//! Redirect URIs and resources.

use asyncgate_core::identity::oauth::{
    BadRedirect, ErrorCode, check_redirect, is_loopback, origin, resource,
};

#[test]
fn codes_are_sent_over_https_or_to_the_own_machine() {
    for (uri, expected) in [
        ("https://app.example/callback", Ok(())),
        ("https://app.example", Ok(())),
        ("https://app.example:8443/cb?x=1&y=%20", Ok(())),
        ("https://192.0.2.1/cb", Ok(())),
        ("https://[2001:db8::1]:444/cb", Ok(())),
        ("http://127.0.0.1:5000/cb", Ok(())),
        ("http://127.8.9.1/cb", Ok(())),
        ("http://localhost/cb", Ok(())),
        ("http://[::1]:9/cb", Ok(())),
        ("http://app.example/cb", Err(BadRedirect::Scheme)),
        ("http://localhost.evil.example/cb", Err(BadRedirect::Scheme)),
        ("http://127.0.0.1.evil.example/cb", Err(BadRedirect::Scheme)),
        ("http://2130706433/cb", Err(BadRedirect::Scheme)),
        ("http://[2001:db8::1]/cb", Err(BadRedirect::Scheme)),
        ("HTTPS://app.example/cb", Err(BadRedirect::Scheme)),
        ("javascript:alert(1)", Err(BadRedirect::Scheme)),
        ("myapp://callback", Err(BadRedirect::Scheme)),
        ("//app.example/cb", Err(BadRedirect::Scheme)),
        ("", Err(BadRedirect::Scheme)),
        ("https://app.example/cb#", Err(BadRedirect::Fragment)),
        ("https://app.example/cb#frag", Err(BadRedirect::Fragment)),
        (
            "https://app.example\\@evil.example/",
            Err(BadRedirect::Character),
        ),
        ("https://app.example/a b", Err(BadRedirect::Character)),
        (
            "https://app.example/\r\nSet-Cookie:x",
            Err(BadRedirect::Character),
        ),
        ("https://app.example/\u{e9}", Err(BadRedirect::Character)),
        (
            "https://app.example/\"><script>",
            Err(BadRedirect::Character),
        ),
        ("https://user@evil.example/", Err(BadRedirect::Host)),
        ("http://localhost@evil.example/", Err(BadRedirect::Host)),
        ("http://localhost:80@evil.example/", Err(BadRedirect::Host)),
        ("https://", Err(BadRedirect::Host)),
        ("https:///cb", Err(BadRedirect::Host)),
        ("https://?x", Err(BadRedirect::Host)),
        ("https://app.example:/cb", Err(BadRedirect::Host)),
        ("https://app.example:0/cb", Err(BadRedirect::Host)),
        ("https://app.example:65536/cb", Err(BadRedirect::Host)),
        ("https://app.example:+80/cb", Err(BadRedirect::Host)),
        ("https://[::1/cb", Err(BadRedirect::Host)),
        ("https://[::g]/cb", Err(BadRedirect::Host)),
        ("https://[::1]x/cb", Err(BadRedirect::Host)),
        ("https://app_example/%zz*", Err(BadRedirect::Host)),
    ] {
        assert_eq!(check_redirect(uri), expected, "{uri}");
    }
    let long = format!("https://app.example/{}", "x".repeat(2_048));
    assert_eq!(check_redirect(&long), Err(BadRedirect::TooLong));
}

#[test]
fn a_loopback_address_is_told_from_others() {
    for (uri, expected) in [
        ("http://127.0.0.1:5000/cb", true),
        ("https://localhost/cb", true),
        ("http://[::1]/cb", true),
        ("https://app.example/localhost", false),
        ("https://localhost.example/", false),
        ("nonsense", false),
    ] {
        assert_eq!(is_loopback(uri), expected, "{uri}");
    }
}

#[test]
fn the_origin_of_an_address_is_all_before_its_path() {
    for (uri, expected) in [
        ("https://app.example/cb?u=https://x/", "https://app.example"),
        ("https://app.example:8443?x", "https://app.example:8443"),
        ("http://[::1]:9/cb", "http://[::1]:9"),
        ("https://app.example", "https://app.example"),
    ] {
        assert_eq!(origin(uri), expected);
    }
}

#[test]
fn tokens_are_for_this_server_and_what_is_below_it() {
    for own in ["https://gate.example", "https://gate.example/"] {
        for asked in [
            "https://gate.example",
            "https://gate.example/",
            "https://gate.example/mcp",
            "https://gate.example?x=1",
        ] {
            assert_eq!(resource(own, Some(asked)), Ok(Some(asked)), "{asked}");
        }
        for asked in [
            "https://gate.example.evil/",
            "https://gate.example:444/mcp",
            "http://gate.example/mcp",
            "https://gate.example/mcp#x",
            "https://gate.example/m cp",
            "https://evil.example",
            "gate.example",
            "",
        ] {
            let refused = resource(own, Some(asked)).map_err(|refusal| refusal.code);
            assert_eq!(refused, Err(ErrorCode::InvalidTarget), "{asked}");
        }
        assert_eq!(resource(own, None), Ok(None));
    }
}
