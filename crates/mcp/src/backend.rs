//! The backend of the tools: the engine, or in tests a fake that needs none.

use std::sync::Arc;

use asyncgate_api::{Spec, Toolset};
use asyncgate_edge::BodyLimits;
use asyncgate_engine::{
    Answer, Authenticator, Caller, Engine, Fault, RequestContext, Role, Source, registry,
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

    /// Returns true if a caller has the right to call an operation at all.
    fn may_call(&self, caller: &Self::Caller, operation: usize) -> bool;

    /// Returns the toolset that a caller is shown who does not choose.
    fn usual_toolset(&self, caller: &Self::Caller) -> Toolset;

    /// Returns how many bytes an operation's input may have where others may have `usual`.
    fn input_limit(&self, operation: usize, usual: usize) -> usize;

    /// Counts a fault that stopped a call before its operation, and gives it the code of the
    /// operation's plane.
    fn refuse(&self, operation: usize, fault: Fault) -> Fault;

    /// Counts a fault that stopped a message before anybody knew which operation it calls.
    fn refused_unread(&self, fault: &Fault);

    /// Returns the limits of a body that may have `max_bytes`. Without a caller it is a stranger's.
    fn body_limits(&self, caller: Option<&Self::Caller>, max_bytes: usize) -> BodyLimits;

    /// Notes what is to be told of the limits of a caller whose message called no operation.
    fn note_limits<'a>(&'a self, caller: &'a Self::Caller) -> BoxFuture<'a, ()>;

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

    fn may_call(&self, caller: &Caller, operation: usize) -> bool {
        caller.may_call(registry()[operation].spec)
    }

    fn usual_toolset(&self, caller: &Caller) -> Toolset {
        match caller.role {
            Role::Worker => Toolset::Worker,
            Role::Agent | Role::Admin | Role::System => Toolset::Agent,
        }
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

    fn body_limits(&self, caller: Option<&Caller>, max_bytes: usize) -> BodyLimits {
        let limits = BodyLimits::new(&self.engine, max_bytes);
        match caller {
            Some(caller) => limits.of(caller.tenant),
            None => limits,
        }
    }

    fn note_limits<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        Box::pin(self.engine.note_limits(caller))
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
