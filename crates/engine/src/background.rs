//! The work that goes on beside calls.

use futures_util::future::BoxFuture;

use crate::Engine;

/// Work that goes on until the engine drains.
pub type Background = for<'a> fn(&'a Engine) -> BoxFuture<'a, ()>;

/// Returns all background work with its names: it acts on the deadlines of tasks and messages, signs ledgers and meters
/// tenants from time to time, sends what is in the outbox, writes audit entries, and forgets what identity has kept long
/// enough.
pub fn background() -> &'static [(&'static str, Background)] {
    // A static, and boxes: so all of it is compiled here and not where it is awaited.
    static WORK: [(&str, Background); 7] = [
        ("deadlines", |engine| Box::pin(engine.watch_deadlines())),
        ("scanner", |engine| Box::pin(engine.watch_messages())),
        ("signer", |engine| Box::pin(engine.sign_ledgers())),
        ("meter", |engine| Box::pin(engine.meter_tenants())),
        ("courier", |engine| Box::pin(engine.send_dispatches())),
        ("audit", |engine| Box::pin(engine.write_audit())),
        ("audit retention", |engine| {
            Box::pin(engine.forget_old_identity())
        }),
    ];
    &WORK
}
