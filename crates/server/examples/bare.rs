//! A server that does nothing but HTTP: what axum alone reaches, on the runtime and the allocator of the
//! product. It reads a body and answers with as many bytes as `POST /v1/limits/check` does.
//!
//!     cargo run --release -p asyncgate-server --example bare

#![expect(clippy::print_stdout, reason = "the address is the point")]

use axum::{Router, body::Bytes, http::header, routing::post};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ANSWER: &str = r#"{"allowed":true,"policy":"bench","key":"client-00001","limit":1000000000,"remaining":999999999,"reset_at":1731690000,"retry_after_secs":null,"tokens":999999999.0,"provenance":{"source":"store","backend":"memory","failure_mode":null,"cache_age_secs":null}}"#;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let answer = async |body: Bytes| {
        let json = [(header::CONTENT_TYPE, "application/json")];
        (json, if body.is_empty() { "{}" } else { ANSWER })
    };
    let router = Router::new().route("/v1/limits/check", post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await
}
