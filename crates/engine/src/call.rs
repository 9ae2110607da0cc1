//! The one way to run an operation.
//!
//! Every call passes [`run`] exactly once, whatever its form: JSON and forms (REST, MCP), typed values
//! (gRPC), the opening of a stream, Envoy's descriptors, and the server's own questions for clients
//! that show no credential.
//!
//! Invariant: the steps have one order. The caller's role, scopes and conditions, readiness for new work, the limits of calls,
//! decoding, the rules about what the input touches, the limits of messages and tasks, the operation. A caller without
//! the right learns nothing about its input, and input that cannot be read has been paid for.

use std::pin::pin;

use asyncgate_api::{Code, Spec};
use asyncgate_core::identity::Scopes;
use asyncgate_store::Stopwatch;
use tracing::Instrument as _;

use crate::{
    Answer, Caller, Engine, Fault, Grant, Holder, Source, Touches,
    call_limits::Brought,
    caveats::{Wanted, named_for},
    input,
    metrics::{OK, span},
    operations::Execute,
    rate_headers::{Header, headers, note},
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

/// Runs an operation on input as a facade received it, and encodes its output.
pub(crate) fn answer<'a, O: Execute>(
    engine: &'a Engine,
    caller: &'a Caller,
    source: Source<'a>,
) -> impl Future<Output = Result<Answer, Fault>> + Send + 'a {
    run::<O, _, _, _>(
        engine,
        caller,
        source.len(),
        move || input::decode(source),
        move |input| async move {
            let _turn = page_turn(engine, caller, &O::SPEC).await;
            let answer = encode::<O>(&O::execute(engine, caller, input).await?)?;
            held(engine, caller, &O::SPEC, answer)
        },
        |mut answer, mut headers| {
            // The last header of a name wins: an operation that was asked about a limit tells of that
            // one, not of the caller's.
            headers.append(&mut answer.headers);
            Answer { headers, ..answer }
        },
    )
}

/// Runs an operation for a facade whose protocol has types of its own. `input` is the facade's result of
/// decoding; a failure is refused in its turn, after the caller's role was checked.
pub fn execute<'a, O: Execute>(
    engine: &'a Engine,
    caller: &'a Caller,
    input: Result<O::Input, Fault>,
) -> impl Future<Output = Result<O::Output, Fault>> + Send + 'a {
    run::<O, _, _, _>(
        engine,
        caller,
        0,
        || input,
        move |input| O::execute(engine, caller, input),
        |output, _| output,
    )
}

/// Takes a call through all steps. `decode` gives the input by reading so many `bytes`, `operate` does the work, and
/// `finish` adds to its result the headers that tell of the caller's limits.
///
/// The forms of a call return this future as it is. To await it in a future of their own would copy
/// kilobytes once more, which costs as much as many an operation does.
pub(crate) async fn run<O, W, R, T>(
    engine: &Engine,
    caller: &Caller,
    bytes: usize,
    decode: impl FnOnce() -> Result<O::Input, Fault>,
    operate: impl FnOnce(O::Input) -> W,
    finish: impl FnOnce(R, Vec<Header>) -> T,
) -> Result<T, Fault>
where
    O: Execute,
    W: Future<Output = Result<R, Fault>>,
{
    let watch = Stopwatch::start();
    // Pinned where it is made, for the same reason.
    let running = pin!(async {
        let scopes = match check_first(engine, caller, &O::SPEC) {
            Ok(scopes) => scopes,
            Err(fault) => {
                let headers = engine.limit_headers(caller).await;
                return Err(Fault { headers, ..fault });
            }
        };
        let mut told = engine.charge(caller, &O::SPEC).await?;
        let checked = |input| check_touches(engine, &O::SPEC, O::touches(&input)).map(|()| input);
        let decoded = match bytes > LARGE_INPUT_BYTES {
            // Boxed, so that the futures of other calls stay small.
            true => Box::pin(large_input(engine, caller, decode)).await,
            false => decode(),
        };
        let done = match decoded.and_then(checked) {
            Ok(input) => {
                let brought = Brought::of(O::touches(&input));
                if let Some(caveats) = &caller.credential.caveats {
                    let wanted = Wanted::of(O::touches(&input));
                    // Boxed, so that the futures of calls without conditions stay small.
                    Box::pin(engine.check_wanted(caller, caveats, &O::SPEC, scopes, wanted))
                        .await?;
                }
                told = engine.charge_brought(caller, brought, told).await?;
                operate(input).await
            }
            Err(fault) => Err(fault),
        };
        let mut headers = headers(&told);
        match done {
            Ok(done) => {
                note(&headers);
                Ok(finish(done, headers))
            }
            Err(mut fault) => {
                headers.append(&mut fault.headers);
                Err(Fault { headers, ..fault })
            }
        }
    });
    let outcome = running
        .instrument(span::of(engine, &O::SPEC))
        .await
        .map_err(|fault| engine.refuse(&O::SPEC, named_for(caller, fault)));
    if let Err(fault) = &outcome {
        note(&fault.headers);
        engine.note_used_up(caller, &O::SPEC, fault);
        check_listed(&O::SPEC, fault.code);
        engine.note_refused(caller, &O::SPEC, fault);
    }
    let code = outcome
        .as_ref()
        .map_or_else(|fault| fault.code.as_str(), |_| OK);
    let place = const { place::<O>() };
    engine.metrics.observe(place, code, watch);
    outcome
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

/// Reads a large input when it is the tenant's turn. Only one thread does so at a time, so that the others serve the rest.
async fn large_input<T>(
    engine: &Engine,
    caller: &Caller,
    decode: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let _turn = engine.large_inputs.take(caller.tenant).await;
    decode()
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
