//! Throws one message away.

use asyncgate_api::{AckOutput, DeleteMessage};
use asyncgate_core::mailbox::{Decision, Kind, delete};

use super::{Execute, Executed, one_message, the_message};
use crate::{Caller, Engine, Touches, mailbox::message_id};

impl Execute for DeleteMessage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id = message_id(&input.msg_id)?;
        let (settled, was_dead) = engine
            .transact(
                caller.tenant,
                0,
                one_message(id),
                move |env, mut snapshot| {
                    let message = the_message(&mut snapshot);
                    let kind = message.as_ref().map(|message| message.standing().kind);
                    let decided = delete(&env, message, snapshot.lines)?;
                    Ok(Decision {
                        changes: decided.changes,
                        output: (decided.output, kind == Some(Kind::Dead)),
                    })
                },
            )
            .await?;
        if !settled.repeated {
            let (waiting, dead) = (u64::from(!was_dead), u64::from(was_dead));
            engine.drain_meter.note(engine.now(), 1);
            engine.note_purge(caller.tenant, &settled.trace.topic, waiting, dead);
        }
        Ok(AckOutput { ok: true })
    }

    fn touches(input: &Self::Input) -> Touches<'_> {
        Touches::Message(&input.msg_id)
    }
}
