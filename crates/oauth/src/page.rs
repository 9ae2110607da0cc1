//! The pages that people see. They have no scripts, load nothing, and cannot be framed.

use asyncgate_core::{
    admission::sha256,
    identity::{OauthClient, Scopes, oauth::origin},
};
use asyncgate_edge::response;
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::pending::Pending;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:26rem;margin:4rem auto;padding:0 1rem}\
label{display:block;margin:1rem 0 .25rem}input{box-sizing:border-box;width:100%;padding:.5rem;font:inherit}\
button,a.b{display:inline-block;margin:1rem .5rem 0 0;padding:.5rem 1rem;font:inherit}\
p.e{border-left:4px solid #b00;padding-left:.75rem}code{overflow-wrap:anywhere}";

/// A way to log in, as a page offers it.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// The provider's name in the settings.
    pub(crate) provider: String,
    /// The address to go to, if it may be a plain link.
    pub(crate) link: String,
}

/// Returns the page on which a person types a name and a password. `trouble` says what was wrong with the last try.
pub(crate) fn login(
    status: StatusCode,
    pending: &Pending,
    client: &OauthClient,
    sealed: &str,
    trouble: Option<&str>,
) -> Response<Body> {
    let trouble = trouble.map_or_else(String::new, |text| {
        format!("<p class=\"e\" role=\"alert\">{}</p>", escaped(text))
    });
    let body = format!(
        "<h1>Log in</h1>{about}{trouble}\
         <form method=\"post\" action=\"login\">\
         <input type=\"hidden\" name=\"login\" value=\"{sealed}\">\
         <label for=\"username\">Name</label>\
         <input id=\"username\" name=\"username\" autocomplete=\"username\" required autofocus>\
         <label for=\"password\">Password</label>\
         <input id=\"password\" name=\"password\" type=\"password\" autocomplete=\"current-password\" required>\
         <button type=\"submit\">Log in</button></form>",
        about = about(pending, client),
        sealed = escaped(sealed),
    );
    page(status, &body, &Forms::ToClient(pending))
}

/// Returns the page on which a person chooses a provider.
pub(crate) fn choose(
    pending: &Pending,
    client: &OauthClient,
    choices: &[Choice],
) -> Response<Body> {
    let links = choices.iter().map(|choice| {
        format!(
            "<p><a class=\"b\" href=\"{}\">Log in with {}</a></p>",
            escaped(&choice.link),
            escaped(&choice.provider),
        )
    });
    let links: String = links.collect();
    let body = format!("<h1>Log in</h1>{}{links}", about(pending, client));
    page(StatusCode::OK, &body, &Forms::None)
}

/// Returns the page on which a person agrees that a client which nobody has looked at goes on.
pub(crate) fn agree(
    pending: &Pending,
    client: &OauthClient,
    sealed: &str,
    choices: &[Choice],
) -> Response<Body> {
    let buttons = choices.iter().map(|choice| {
        let name = escaped(&choice.provider);
        format!("<button name=\"provider\" value=\"{name}\">Allow, and log in with {name}</button>")
    });
    let buttons: String = buttons.collect();
    let body = format!(
        "<h1>Do you know this program?</h1>{about}\
         <p>{stranger}; nobody here has looked at it. Go on only if you have just asked for this.</p>\
         <form method=\"post\" action=\"consent\">\
         <input type=\"hidden\" name=\"login\" value=\"{sealed}\">{buttons}\
         <button name=\"deny\" value=\"1\">Cancel</button></form>",
        about = about(pending, client),
        stranger = stranger(client),
        sealed = escaped(sealed),
    );
    page(StatusCode::OK, &body, &Forms::ToProvider(pending))
}

/// Says who asks, for what, and where the person is sent then.
fn about(pending: &Pending, client: &OauthClient) -> String {
    format!(
        "<p><strong>{name}</strong> asks to act for you: {scopes}.</p>\
         <p>You will be sent to <code>{target}</code>.</p>",
        name = escaped(&client.name),
        scopes = escaped(&words(pending.request.scopes)),
        target = escaped(origin(&pending.request.redirect_uri)),
    )
}

/// Says how a client became known that nobody vouches for.
fn stranger(client: &OauthClient) -> String {
    match &client.document {
        None => "The program registered itself".to_owned(),
        Some(address) => format!(
            "The program is described by a document at <code>{}</code>",
            escaped(origin(address))
        ),
    }
}

fn words(scopes: Scopes) -> String {
    let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    names.join(", ")
}

/// Where a browser ends up after it sent the form of a page. Browsers hold that against the page's policy.
enum Forms<'a> {
    /// There is no form.
    None,
    /// At the client.
    ToClient(&'a Pending),
    /// At a provider, or at the client if the person does not agree.
    ToProvider(&'a Pending),
}

fn page(status: StatusCode, body: &str, forms: &Forms<'_>) -> Response<Body> {
    let text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>AsyncGate</title>\
         <style>{STYLE}</style></head><body>{body}</body></html>"
    );
    let mut response = response(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    if let Ok(policy) = HeaderValue::from_str(&policy(forms)) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Returns what a browser may do with a page: apply its style, and send its form here and on from here.
fn policy(forms: &Forms<'_>) -> String {
    let style = BASE64_STANDARD.encode(sha256(STYLE.as_bytes()));
    let forms = match forms {
        Forms::None => "'none'".to_owned(),
        Forms::ToClient(pending) => format!("'self' {}", source(pending)),
        // Where a provider has its pages is not known before it was asked.
        Forms::ToProvider(pending) => format!("'self' https: {}", source(pending)),
    };
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action {forms}; base-uri 'none'; \
         frame-ancestors 'none'"
    )
}

/// Names the client's place in a policy, which cannot name an IPv6 address.
fn source(pending: &Pending) -> &str {
    let origin = origin(&pending.request.redirect_uri);
    match origin.contains('[') {
        true => "http:",
        false => origin,
    }
}

/// Writes a text so that it is nothing but text in a page.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_nothing_but_text() {
        let hostile = "<script>alert('x')</script>\"&";
        assert_eq!(
            escaped(hostile),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"
        );
    }
}
