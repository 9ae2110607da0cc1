//! Macaroons, caveats and tokens, seen from outside: published vectors, every bit flipped, random forms, and
//! another implementation.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]
#![expect(clippy::print_stderr, reason = "a test that cannot run here says so")]

mod build;
mod caveats;
mod forms;
mod id_tokens;
mod pymacaroons;
mod tokens;
mod vectors;
