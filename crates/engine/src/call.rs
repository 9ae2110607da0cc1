//! The one way to run an operation.
//!
//! Every call passes [`pass`] exactly once, whatever its form: JSON and forms (REST, MCP), typed values
//! (gRPC), the opening of a stream, Envoy's descriptors, and the server's own questions for clients
//! that show no credential.
//!
//! Invariant: the steps have one order. The caller's role, scopes and conditions, readiness for new work, the limits of calls,
//! decoding, the rules about what the input touches, the limits of messages and tasks, the operation. A caller without
//! the right learns nothing about its input, and input that cannot be read has been paid for.

use std::{
    pin::pin,
    sync::{Mutex, PoisonError},
};

use asyncgate_api::{Code, Operation, Spec};
use asyncgate_core::identity::Scopes;
use asyncgate_store::Stopwatch;
use futures_util::future::BoxFuture;
use tracing::Instrument as _;

use crate::{
    Answer, Answered, Caller, Engine, Fault, Grant, Holder, Source, Touches,
    call_limits::Brought,
    caveats::{Wanted, named_for},
    input,
    metrics::{OK, span},
    operations::Execute,
    rate_headers::{Header, ReportedLimit, headers, note},
    registry::place,
    tenant_turns::Turn,
};

/// The message to a caller whose new work is refused.
pub(crate) const NO_NEW_WORK: &str = "the server takes no new work at the moment; try again";
/// The time after which new work is worth another try, in seconds.
const NO_NEW_WORK_RETRY: u32 = 5;
/// Inputs beyond this take turns: to read one takes as long as many small calls.
const LARGE_INPUT_BYTES: usize = 64 << 10;
/// The room for an encoded answer. Most are shorter.
const USUAL_ANSWER_BYTES: usize = 1_024;
/// The most bytes of room that an encoded answer keeps without need.
const MAX_SPARE_BYTES: usize = 64 << 10;

/// The part of a call that each operation has of its own, from encoded input to encoded output. Everything else is
/// compiled once for all operations.
type Work = for<'a> fn(&'a Engine, &'a Caller, Source<'a>, &'a Admitted) -> Answered<'a>;

/// Runs an operation on input as a facade received it, and encodes its output.
pub(crate) fn answer<'a, O: Execute>(
    engine: &'a Engine,
    caller: &'a Caller,
    source: Source<'a>,
) -> Answered<'a> {
    let place = const { place::<O>() };
    Box::pin(answer_with(
        engine,
        caller,
        source,
        &O::SPEC,
        place,
        work::<O>,
    ))
}

async fn answer_with(
    engine: &Engine,
    caller: &Caller,
    source: Source<'_>,
    spec: &Spec,
    place: usize,
    work: Work,
) -> Result<Answer, Fault> {
    let admitted = Admitted::default();
    let work = work(engine, caller, source, &admitted);
    let done = pass(engine, caller, spec, place, &admitted, work).await;
    let (mut answer, mut headers) = done?;
    // The last header of a name wins: an operation that was asked about a limit tells of that
    // one, not of the caller's.
    headers.append(&mut answer.headers);
    Ok(Answer { headers, ..answer })
}

fn work<'a, O: Execute>(
    engine: &'a Engine,
    caller: &'a Caller,
    source: Source<'a>,
    admitted: &'a Admitted,
) -> Answered<'a> {
    Box::pin(async move {
        let turn = large_input_turn(engine, caller, source.len()).await;
        let input = input::decode::<O>(source)?;
        drop(turn);
        let touches = O::touches(&input);
        admit(engine, caller, &O::SPEC, admitted, touches).await?;
        let _turn = page_turn(engine, caller, &O::SPEC).await;
        let answer = encode::<O>(&O::execute(engine, caller, input).await?)?;
        held(engine, caller, &O::SPEC, answer)
    })
}

/// Runs an operation for a facade whose protocol has types of its own. `input` is the facade's result of
/// decoding; a failure is refused in its turn, after the caller's role was checked.
pub fn execute<'a, O: Execute>(
    engine: &'a Engine,
    caller: &'a Caller,
    input: Result<O::Input, Fault>,
) -> impl Future<Output = Result<O::Output, Fault>> + Send + 'a {
    let operate = move |input| O::execute(engine, caller, input);
    run::<O, _, _>(engine, caller, || input, operate)
}

/// An operation that a facade calls with typed values.
pub trait Typed: Operation {
    /// Runs the operation, as [`execute`] does.
    fn run<'a>(
        engine: &'a Engine,
        caller: &'a Caller,
        input: Result<Self::Input, Fault>,
    ) -> BoxFuture<'a, Result<Self::Output, Fault>>;
}

/// Compiles the typed forms of operations here, so that a facade does not compile the operations again.
macro_rules! typed {
    ($($operation:ident),+ $(,)?) => {
        $(impl Typed for asyncgate_api::$operation {
            fn run<'a>(
                engine: &'a Engine,
                caller: &'a Caller,
                input: Result<Self::Input, Fault>,
            ) -> BoxFuture<'a, Result<Self::Output, Fault>> {
                Box::pin(execute::<Self>(engine, caller, input))
            }
        })+
    };
}

typed!(
    SendMessage,
    SendMessages,
    ReceiveMessages,
    AckMessage,
    AckMessages,
    NackMessage,
    ExtendMessage,
    PeekMessages,
    GetMessage,
    DeleteMessage,
    RedriveMessage,
    PurgeTopic,
    ListTopics,
    ListDeadLetters,
    ReprocessDeadLetters,
    GetMailboxHeads,
);

/// Takes a call of any form through all steps. `decode` gives the input, and `operate` does the work.
pub(crate) async fn run<O, W, R>(
    engine: &Engine,
    caller: &Caller,
    decode: impl FnOnce() -> Result<O::Input, Fault> + Send,
    operate: impl FnOnce(O::Input) -> W + Send,
) -> Result<R, Fault>
where
    O: Execute,
    W: Future<Output = Result<R, Fault>> + Send,
    R: Send,
{
    let admitted = Admitted::default();
    let work = Box::pin(async {
        let input = decode()?;
        let touches = O::touches(&input);
        admit(engine, caller, &O::SPEC, &admitted, touches).await?;
        operate(input).await
    });
    let place = const { place::<O>() };
    let (output, _) = pass(engine, caller, &O::SPEC, place, &admitted, work).await?;
    Ok(output)
}

/// What is known of a call that may go on: the scopes by which the caller may call, and what is to be told of its
/// limits. Empty before that, and after a refusal that tells of the limits itself.
#[derive(Default)]
pub(crate) struct Admitted(Mutex<Option<(Scopes, Vec<ReportedLimit>)>>);

impl Admitted {
    fn put(&self, scopes: Scopes, told: Vec<ReportedLimit>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((scopes, told));
    }

    fn take(&self) -> Option<(Scopes, Vec<ReportedLimit>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Takes a call through all steps that operations share. Returns the headers that tell of the caller's limits with what
/// `work` gave. The work is boxed, so that this is compiled once for each kind of result and not for each operation.
async fn pass<R>(
    engine: &Engine,
    caller: &Caller,
    spec: &Spec,
    place: usize,
    admitted: &Admitted,
    work: BoxFuture<'_, Result<R, Fault>>,
) -> Result<(R, Vec<Header>), Fault> {
    let watch = Stopwatch::start();
    // Pinned where it is made: to move it would copy kilobytes.
    let running = pin!(async {
        begin(engine, caller, spec, admitted).await?;
        let done = work.await;
        let Some((_, told)) = admitted.take() else {
            return done.map(|done| (done, Vec::new()));
        };
        let mut headers = headers(&told);
        match done {
            Ok(done) => {
                note(&headers);
                Ok((done, headers))
            }
            Err(mut fault) => {
                headers.append(&mut fault.headers);
                Err(Fault { headers, ..fault })
            }
        }
    });
    let outcome = running
        .instrument(span::of(engine, spec))
        .await
        .map_err(|fault| engine.refuse(spec, named_for(caller, fault)));
    if let Err(fault) = &outcome {
        note(&fault.headers);
        engine.note_used_up(caller, spec, fault);
        check_listed(spec, fault.code);
        engine.note_refused(caller, spec, fault);
    }
    let code = outcome
        .as_ref()
        .map_or_else(|fault| fault.code.as_str(), |_| OK);
    engine.metrics.observe(place, code, watch);
    outcome
}

/// Does what comes before the input is read.
async fn begin(
    engine: &Engine,
    caller: &Caller,
    spec: &Spec,
    admitted: &Admitted,
) -> Result<(), Fault> {
    match check_first(engine, caller, spec) {
        Ok(scopes) => {
            let told = engine.charge(caller, spec).await?;
            admitted.put(scopes, told);
            Ok(())
        }
        Err(fault) => {
            let headers = engine.limit_headers(caller).await;
            Err(Fault { headers, ..fault })
        }
    }
}

/// Does what comes between the input and the operation.
async fn admit(
    engine: &Engine,
    caller: &Caller,
    spec: &Spec,
    admitted: &Admitted,
    touches: Touches<'_>,
) -> Result<(), Fault> {
    check_touches(engine, spec, touches)?;
    // Without scopes nothing is allowed, so a call that skipped its first steps would end here.
    let (scopes, told) = admitted
        .take()
        .ok_or_else(|| Fault::new(Code::Internal, "the call did not begin as it should"))?;
    let brought = Brought::of(touches);
    if let Some(caveats) = &caller.credential.caveats {
        let wanted = Wanted::of(touches);
        // Boxed, so that the futures of calls without conditions stay small.
        Box::pin(engine.check_wanted(caller, caveats, spec, scopes, wanted)).await?;
    }
    let told = engine.charge_brought(caller, brought, told).await?;
    admitted.put(scopes, told);
    Ok(())
}

/// Makes the checks that come before any charge. Returns the scopes by which the caller may call.
fn check_first(engine: &Engine, caller: &Caller, spec: &Spec) -> Result<Scopes, Fault> {
    let scopes = check_role(caller, spec)?;
    engine.check_caveats(caller, spec, scopes)?;
    check_accepting(engine, spec)?;
    Ok(scopes)
}

fn check_role(caller: &Caller, spec: &Spec) -> Result<Scopes, Fault> {
    let allowed = caller.authorise(spec.access);
    span::note_authorised(allowed.is_ok());
    allowed
}

/// Refuses new work while the server takes none. Everything else goes on.
fn check_accepting(engine: &Engine, spec: &Spec) -> Result<(), Fault> {
    if spec.brings_work && !engine.is_accepting() {
        let fault = Fault::new(Code::Unavailable, NO_NEW_WORK).with("reason", "degraded");
        return Err(fault.retry_after(NO_NEW_WORK_RETRY));
    }
    Ok(())
}

/// Refuses a decoded call for what it touches. This is the place for every rule about topics, task types
/// and bytes.
pub(crate) fn check_touches(
    engine: &Engine,
    spec: &Spec,
    touches: Touches<'_>,
) -> Result<(), Fault> {
    span::note_touches(engine, spec, touches);
    match touches {
        Touches::Topic(topic) => input::check_name("topic", topic),
        // Messages and tasks are checked one by one: an unfit one refuses only itself.
        Touches::Nothing
        | Touches::Send(_)
        | Touches::Sends(_)
        | Touches::Message(_)
        | Touches::Acks(_)
        | Touches::Task { .. }
        | Touches::Tasks(_) => Ok(()),
    }
}

/// Stops a test in which an operation fails with a code that its spec does not list: documents say that
/// it never does.
fn check_listed(spec: &Spec, code: Code) {
    debug_assert!(
        spec.codes().contains(&code),
        "{} failed with {}, which is not among its refusals",
        spec.name,
        code.as_str()
    );
}

/// Waits for the turn to read an input of so many bytes, if it is large. Only one thread reads large inputs at a time, so
/// that the others serve the rest.
async fn large_input_turn(engine: &Engine, caller: &Caller, bytes: usize) -> Option<Turn> {
    if bytes <= LARGE_INPUT_BYTES {
        return None;
    }
    Some(engine.large_inputs.take(caller.tenant).await)
}

/// Waits for the turn of an operation that answers with a page. Between its rows and its bytes a page takes several
/// times its size.
async fn page_turn(engine: &Engine, caller: &Caller, spec: &Spec) -> Option<Turn> {
    if !spec.pages {
        return None;
    }
    Some(engine.pages.take(caller.tenant).await)
}

/// Counts an answer of so many bytes among those that wait to be read, until the grant is dropped.
///
/// # Errors
/// When a page has no room, which can be asked for again. The answer to anything else must be told, whatever it takes.
pub fn hold(engine: &Engine, caller: &Caller, spec: &Spec, bytes: usize) -> Result<Grant, Fault> {
    let (budget, holder) = (engine.budget(), Holder::tenant(caller.tenant));
    if spec.pages {
        let granted = budget.take(holder, bytes);
        granted.ok_or_else(|| Fault::crowded("answers"))
    } else {
        Ok(budget.take_always(holder, bytes))
    }
}

fn held(engine: &Engine, caller: &Caller, spec: &Spec, answer: Answer) -> Result<Answer, Fault> {
    let mut json = answer.json;
    // While it was written it grew by doubling. It may wait for long, so a large one gives back what it does not need.
    if json.capacity() - json.len() > MAX_SPARE_BYTES {
        json.shrink_to_fit();
    }
    let grant = hold(engine, caller, spec, json.len())?;
    Ok(Answer {
        json,
        grant: Some(grant),
        ..answer
    })
}

fn encode<O: Execute>(output: &O::Output) -> Result<Answer, Fault> {
    let mut json = Vec::with_capacity(USUAL_ANSWER_BYTES);
    serde_json::to_writer(&mut json, output).map_err(|error| {
        Fault::new(Code::Internal, "the answer could not be encoded").because(error.to_string())
    })?;
    let created = O::created(output);
    debug_assert!(O::SPEC.creates || !created, "{} creates", O::SPEC.name);
    Ok(Answer {
        created,
        headers: O::headers(output),
        json,
        grant: None,
    })
}
