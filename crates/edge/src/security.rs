//! The security headers of every answer.

use axum::http::{HeaderMap, HeaderValue, header};

/// The headers that tell browsers what they must not do with an answer.
///
/// Few answers are meant for a browser. If a page gets hold of another one nevertheless, the browser does not run
/// it, frame it, keep it on disk, or pass its address on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityHeaders {
    /// Tells browsers to come by TLS only, from now on.
    pub hsts: bool,
}

impl SecurityHeaders {
    /// Puts the headers on an answer. All values are constants, so nothing is allocated.
    pub fn apply(self, headers: &mut HeaderMap) {
        for (name, value) in [
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (header::REFERRER_POLICY, "no-referrer"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        // A page of ours has said itself what a browser may do with it.
        headers
            .entry(header::CONTENT_SECURITY_POLICY)
            .or_insert(HeaderValue::from_static(
                "default-src 'none'; frame-ancestors 'none'",
            ));
        // A route whose answer everybody may keep has said so itself.
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
        if self.hsts {
            let year = HeaderValue::from_static("max-age=31536000; includeSubDomains");
            headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::StatusCode};

    use super::*;
    use crate::{json_response, set_corr_id};

    #[test]
    fn an_ordinary_answer_has_room_for_them() {
        let mut response = json_response(StatusCode::OK, Body::empty());
        let room = response.headers().capacity();
        set_corr_id(&mut response, "c-1");
        SecurityHeaders { hsts: true }.apply(response.headers_mut());
        assert_eq!(response.headers().len(), 8);
        assert_eq!(response.headers().capacity(), room, "the map has grown");
    }

    #[test]
    fn what_an_answer_says_itself_stays() {
        let mut headers = HeaderMap::new();
        let public = HeaderValue::from_static("public, max-age=300");
        headers.insert(header::CACHE_CONTROL, public.clone());
        let page = HeaderValue::from_static("default-src 'none'; form-action 'self'");
        headers.insert(header::CONTENT_SECURITY_POLICY, page.clone());
        SecurityHeaders { hsts: false }.apply(&mut headers);
        assert_eq!(headers[header::CACHE_CONTROL], public);
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], page);
        assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY));
    }
}
