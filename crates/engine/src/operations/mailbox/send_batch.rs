//! Sends many messages.

use asyncgate_api::{Operation, SendBatchInput, SendBatchOutput, SendMessages, SendResult};

use super::{
    Execute, Executed,
    send::{answer, check},
};
use crate::{
    Caller, Engine, Settings, Touches,
    batch::{CheckedBatch, MAX_BATCH_BYTES},
};

impl Execute for SendMessages {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let mut batch = CheckedBatch::new("messages", input.messages, check)?;
        let (outgoing, modes): (Vec<_>, Vec<_>) = batch.take().into_iter().unzip();
        let sent = engine.send(caller.tenant, outgoing).await?;
        let answers = modes.into_iter().zip(sent);
        let answers = answers.map(|(mode, sent)| answer(engine, mode, sent));
        let (spec, done) = (&Self::SPEC, SendResult::Sent);
        Ok(SendBatchOutput {
            results: batch.answers(engine, spec, answers, done, SendResult::Refused),
        })
    }

    fn touches(input: &SendBatchInput) -> Touches<'_> {
        Touches::Sends(&input.messages)
    }

    fn max_input_bytes(_settings: &Settings) -> Option<usize> {
        Some(MAX_BATCH_BYTES)
    }
}
