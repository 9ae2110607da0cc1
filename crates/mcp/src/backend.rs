//! The backend of the tools: the engine, or in tests a fake that needs none.

use std::sync::Arc;

use asyncgate_api::Spec;
use asyncgate_engine::{
    Answer, Authenticator, Bodies, Caller, Engine, Fault, RequestContext, Source, registry,
};
use futures_util::future::BoxFuture;
use schemars::Schema;

/// An operation as the tool list needs it. Its place in the list is its number.
#[derive(Debug)]
pub(crate) struct Listed {
    pub spec: &'static Spec,
    pub input: Schema,
    pub output: Schema,
}

/// Runs operations by their number.
pub(crate) trait Backend: Send + Sync + 'static {
    /// The identity that a call runs under.
    type Caller: Send + Sync + 'static;

    /// Returns every operation, in a fixed order.
    fn operations(&self) -> Vec<Listed>;

    /// Runs one operation with a JSON object as its input.
    fn call<'a>(
        &'a self,
        operation: usize,
        caller: &'a Self::Caller,
        input: &'a [u8],
    ) -> BoxFuture<'a, Result<Answer, Fault>>;

    /// Returns how many bytes an operation's input may have where others may have `usual`.
    fn input_limit(&self, operation: usize, usual: usize) -> usize;

    /// Counts a fault that stopped a call before its operation, and gives it the code of the
    /// operation's plane.
    fn refuse(&self, operation: usize, fault: Fault) -> Fault;

    /// Counts a fault that stopped a message before anybody knew which operation it calls.
    fn refused_unread(&self, fault: &Fault);

    /// Returns the settings for bodies.
    fn bodies(&self) -> Bodies;

    /// Makes a correlation id.
    fn corr_id(&self) -> Arc<str>;
}

/// Turns a request's credential into a caller.
pub(crate) trait Guard<C>: Send + Sync + 'static {
    fn check<'a>(&'a self, request: &RequestContext<'a>) -> BoxFuture<'a, Result<C, Fault>>;
}

impl Guard<Caller> for Arc<dyn Authenticator> {
    fn check<'a>(&'a self, request: &RequestContext<'a>) -> BoxFuture<'a, Result<Caller, Fault>> {
        self.authenticate(request)
    }
}

/// The engine and its registry.
#[derive(Debug)]
pub(crate) struct EngineBackend {
    engine: Arc<Engine>,
}

impl EngineBackend {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

impl Backend for EngineBackend {
    type Caller = Caller;

    fn operations(&self) -> Vec<Listed> {
        operations()
    }

    fn call<'a>(
        &'a self,
        operation: usize,
        caller: &'a Caller,
        input: &'a [u8],
    ) -> BoxFuture<'a, Result<Answer, Fault>> {
        (registry()[operation].call)(&self.engine, caller, Source::Json(input))
    }

    fn input_limit(&self, operation: usize, usual: usize) -> usize {
        registry()[operation].input_limit(&self.engine, usual)
    }

    fn refuse(&self, operation: usize, fault: Fault) -> Fault {
        self.engine.refuse(registry()[operation].spec, fault)
    }

    fn refused_unread(&self, fault: &Fault) {
        self.engine.note_refusal(fault);
    }

    fn bodies(&self) -> Bodies {
        self.engine.settings().bodies
    }

    fn corr_id(&self) -> Arc<str> {
        self.engine.corr_id()
    }
}

/// Returns the registry's operations.
pub(crate) fn operations() -> Vec<Listed> {
    let listed = registry().iter().map(|entry| Listed {
        spec: entry.spec,
        input: (entry.input_schema)(),
        output: (entry.output_schema)(),
    });
    listed.collect()
}
