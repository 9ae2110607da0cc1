//! The one list of operations. Facades mount what stands here and nothing else.

use std::pin::{Pin, pin};

use asyncgate_api::{self as api, Spec};
use asyncgate_store::Stopwatch;
use futures_util::future::BoxFuture;
use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use tracing::Instrument as _;

use crate::{
    Caller, Engine, Fault, Settings, input,
    metrics::{OK, span},
    operations::Execute,
};

/// Every operation, in the order documents list them.
pub fn registry() -> &'static [Entry] {
    ENTRIES
}

const ENTRIES: &[Entry] = &[
    entry::<api::CreateTask>(),
    entry::<api::GetTask>(),
    entry::<api::ListTasks>(),
    entry::<api::CancelTask>(),
    entry::<api::ListOpenObligations>(),
    entry::<api::Bootstrap>(),
    entry::<api::ListReceipts>(),
    entry::<api::ListLedger>(),
    entry::<api::ReadLedger>(),
    entry::<api::GetLedgerHead>(),
    entry::<api::GetReceipt>(),
    entry::<api::AckReceipt>(),
    entry::<api::LeaseNext>(),
    entry::<api::RenewLease>(),
    entry::<api::ReleaseLease>(),
    entry::<api::StartTask>(),
    entry::<api::ReportProgress>(),
    entry::<api::Complete>(),
    entry::<api::Fail>(),
    entry::<api::SendMessage>(),
    entry::<api::SendMessages>(),
    entry::<api::ReceiveMessages>(),
    entry::<api::AckMessage>(),
    entry::<api::AckMessages>(),
    entry::<api::NackMessage>(),
    entry::<api::ExtendMessage>(),
    entry::<api::PeekMessages>(),
    entry::<api::PurgeTopic>(),
    entry::<api::ListTopics>(),
    entry::<api::ListDeadLetters>(),
    entry::<api::ReprocessDeadLetters>(),
    entry::<api::GetMailboxHeads>(),
    entry::<api::CheckNonces>(),
    entry::<api::IncrementCounter>(),
    entry::<api::CheckRevocations>(),
    entry::<api::Revoke>(),
    entry::<api::ListRevocations>(),
    entry::<api::Unrevoke>(),
    entry::<api::GetHostHealth>(),
    entry::<api::VerifyWarrant>(),
    entry::<api::CheckLimits>(),
    entry::<api::ListPolicies>(),
    entry::<api::SetTier>(),
    entry::<api::GetTier>(),
    entry::<api::ListTiers>(),
    entry::<api::ClearTier>(),
    entry::<api::GetConfig>(),
    entry::<api::GetHealth>(),
];

/// Where an operation stands in the registry.
const fn place<O: Execute>() -> usize {
    let mut place = 0;
    while !is_same(ENTRIES[place].spec.name, O::SPEC.name) {
        place += 1;
    }
    place
}

const fn is_same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut same = left.len() == right.len();
    let mut at = 0;
    while same && at < left.len() {
        same = left[at] == right[at];
        at += 1;
    }
    same
}

/// An operation's input as a facade received it.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A JSON object.
    Json(&'a [u8]),
    /// `name=value` pairs, percent-encoded, as in a query string.
    Form(&'a str),
}

/// A success: the output, already encoded, and whether something new came to be.
#[derive(Debug)]
pub struct Answer {
    /// The output as JSON.
    pub json: Vec<u8>,
    /// True when the call created something (HTTP 201).
    pub created: bool,
    /// What HTTP tells beside the body.
    pub headers: Vec<(&'static str, String)>,
}

/// Runs an operation: decodes, authorises, does it, encodes.
pub type Call = for<'a> fn(&'a Engine, &'a Caller, Source<'a>) -> Answered<'a>;

/// What a [`Call`] answers with.
pub type Answered<'a> = BoxFuture<'a, Result<Answer, Fault>>;

/// One operation as facades see it.
#[derive(Debug)]
pub struct Entry {
    /// Name, place and promises.
    pub spec: &'static Spec,
    /// The JSON Schema of the input.
    pub input_schema: fn() -> Schema,
    /// The JSON Schema of the output.
    pub output_schema: fn() -> Schema,
    /// How many bytes the input may have, if that is more than others may.
    pub max_input_bytes: fn(&Settings) -> Option<usize>,
    /// Runs it.
    pub call: Call,
}

impl Entry {
    /// How many bytes the input may have where others may have `usual`.
    pub fn input_limit(&self, engine: &Engine, usual: usize) -> usize {
        let own = (self.max_input_bytes)(&engine.settings());
        own.map_or(usual, |own| own.max(usual))
    }
}

const fn entry<O: Execute>() -> Entry {
    Entry {
        spec: &O::SPEC,
        input_schema: schema::<O::Input>,
        output_schema: output_schema::<O::Output>,
        max_input_bytes: O::max_input_bytes,
        call: |engine, caller, source| Box::pin(call::<O>(engine, caller, source)),
    }
}

async fn call<O: Execute>(
    engine: &Engine,
    caller: &Caller,
    source: Source<'_>,
) -> Result<Answer, Fault> {
    let answering = pin!(async {
        authorise::<O>(engine, caller)?;
        let mut headers = engine.charge(caller, &O::SPEC).await?;
        // Later ones win: what an operation tells of a limit that was asked for counts.
        match answer::<O>(engine, caller, source).await {
            Ok(mut answer) => {
                headers.append(&mut answer.headers);
                Ok(Answer { headers, ..answer })
            }
            Err(mut fault) => {
                headers.append(&mut fault.headers);
                Err(Fault { headers, ..fault })
            }
        }
    });
    observed::<O, _>(engine, answering).await
}

/// Most answers are shorter.
const USUAL_ANSWER_BYTES: usize = 1_024;

async fn answer<O: Execute>(
    engine: &Engine,
    caller: &Caller,
    source: Source<'_>,
) -> Result<Answer, Fault> {
    let input = input::decode::<O::Input>(source)?;
    let output = O::execute(engine, caller, input).await?;
    let mut json = Vec::with_capacity(USUAL_ANSWER_BYTES);
    serde_json::to_writer(&mut json, &output).map_err(|error| {
        Fault::new(api::Code::Internal, "the answer could not be encoded")
            .because(error.to_string())
    })?;
    Ok(Answer {
        created: O::created(&output),
        headers: O::headers(&output),
        json,
    })
}

/// Runs an operation as [`Entry::call`] does, for a facade whose protocol has types of its own:
/// nothing is decoded or encoded.
pub async fn execute<O: Execute>(
    engine: &Engine,
    caller: &Caller,
    input: O::Input,
) -> Result<O::Output, Fault> {
    let running = pin!(async {
        authorise::<O>(engine, caller)?;
        engine.charge(caller, &O::SPEC).await?;
        O::execute(engine, caller, input).await
    });
    observed::<O, _>(engine, running).await
}

/// Operations that bring new work. They are the first to be turned away when the server is not well,
/// so that what is there can be worked off.
const BRINGS_WORK: [&str; 3] = ["create_task", "mailbox_send", "mailbox_send_batch"];

/// When to try again with new work, in seconds.
const NOT_ACCEPTING_RETRY: u32 = 5;

/// Whether a caller may call an operation now.
pub fn authorise<O: Execute>(engine: &Engine, caller: &Caller) -> Result<(), Fault> {
    let authorised = caller.authorise(O::SPEC.access);
    span::note_authorised(authorised.is_ok());
    authorised?;
    if !engine.is_accepting() && BRINGS_WORK.contains(&O::SPEC.name) {
        let message = "the server takes no new work at the moment; try again";
        return Err(Fault::new(api::Code::Unavailable, message).retry_after(NOT_ACCEPTING_RETRY));
    }
    Ok(())
}

/// Counts how an operation ends, and calls its error what its plane calls it. It is given where the operation
/// is, not the operation: to move thousands of bytes about would cost as much as many an operation does.
async fn observed<O: Execute, T>(
    engine: &Engine,
    running: Pin<&mut impl Future<Output = Result<T, Fault>>>,
) -> Result<T, Fault> {
    let watch = Stopwatch::start();
    let answer = running
        .instrument(span::of(engine, &O::SPEC))
        .await
        .map_err(|fault| engine.refuse(&O::SPEC, fault));
    let code = answer
        .as_ref()
        .map_or_else(|fault| fault.code.as_str(), |_| OK);
    let place = const { place::<O>() };
    engine.metrics.observe(place, code, watch);
    answer
}

fn schema<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
}

fn output_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_routes_and_tools_are_unique() {
        let (mut names, mut routes, mut tools) = (HashSet::new(), HashSet::new(), HashSet::new());
        for entry in registry() {
            let spec = entry.spec;
            assert!(names.insert(spec.name), "{}", spec.name);
            assert!(
                routes.insert((spec.method.as_str(), spec.path)),
                "{}",
                spec.path
            );
            assert!(
                spec.tool.is_none_or(|tool| tools.insert(tool)),
                "{:?}",
                spec.tool
            );
        }
    }

    #[test]
    fn what_brings_work_exists() {
        for name in BRINGS_WORK {
            assert!(
                registry().iter().any(|entry| entry.spec.name == name),
                "{name}"
            );
        }
    }

    #[test]
    fn path_fields_are_input_fields() {
        for entry in registry() {
            let schema = (entry.input_schema)();
            for field in entry.spec.path_fields() {
                assert!(
                    schema.pointer(&format!("/properties/{field}")).is_some(),
                    "{field}"
                );
            }
        }
    }
}
