//! Ends many messages in one commit.

use asyncgate_api::{AckBatchOutput, AckInput, AckMessages, AckOutput, AckResult, Operation};
use asyncgate_core::{LeaseId, MessageId, mailbox};
use asyncgate_store::{Stopwatch, mailbox::Reads};

use super::{Execute, Executed};
use crate::{
    Caller, Engine, Fault, Touches,
    batch::CheckedBatch,
    mailbox::{lease, message_id},
};

impl Execute for AckMessages {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let watch = Stopwatch::start();
        let mut batch = CheckedBatch::new("acks", input.acks, check)?;
        let acks = batch.take();
        let reads = Reads {
            messages: acks.iter().map(|(id, _)| *id).collect(),
            ..Reads::default()
        };
        let settled = engine
            .transact(caller.tenant, 0, reads, move |env, snapshot| {
                let (messages, lines) = (snapshot.messages, snapshot.lines);
                Ok(mailbox::ack_all(&env, messages, &acks, lines))
            })
            .await?;
        engine.note_acks(settled.iter().map(Result::as_ref), watch);
        let answers = settled
            .into_iter()
            .map(|one| one.map_err(|rejection| engine.mailbox_fault(rejection)));
        let done = |_| AckResult::Done(AckOutput { ok: true });
        Ok(AckBatchOutput {
            results: batch.answers(engine, &Self::SPEC, answers, done, AckResult::Refused),
        })
    }

    fn touches(input: &Self::Input) -> Touches<'_> {
        Touches::Acks(&input.acks)
    }
}

fn check(input: AckInput) -> Result<(MessageId, Option<LeaseId>), Fault> {
    Ok((message_id(&input.msg_id)?, lease(input.lease.as_deref())?))
}
