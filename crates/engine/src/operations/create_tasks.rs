//! Hands over many tasks in one commit.

use asyncgate_api::{
    CreateResult, CreateTasks, CreateTasksInput, CreateTasksOutput, Operation as _,
};
use asyncgate_core::task::Created;
use asyncgate_store::ReadSet;

use super::{
    Execute, Executed,
    create_task::{answer, new_task, weight},
};
use crate::{
    Caller, Engine, Fault, Settings, Touches,
    batch::{CheckedBatch, MAX_BATCH_BYTES},
    caveats::named_for,
};

impl Execute for CreateTasks {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let mut batch = CheckedBatch::new("tasks", input.tasks, |task| {
            new_task(caller, task).map_err(|fault| named_for(caller, fault))
        })?;
        let requests = batch.take();
        let weight = requests.iter().map(weight).sum();
        let reads = ReadSet::to_create_all(&requests);
        let created = engine
            .transact(caller.tenant, weight, reads, move |env, snapshot| {
                Ok(snapshot.create_all(env, requests.clone()))
            })
            .await?;
        let is_new = |created: &&Created| !created.duplicate;
        let new = created.iter().flatten().filter(is_new).count();
        engine.metrics.created.inc_by(new as u64);
        let answers = created.into_iter().map(|one| {
            one.map_err(|rejection| {
                let fault = Fault::from(rejection);
                engine.note_used_up(caller, &Self::SPEC, &fault);
                fault
            })
        });
        let done = |created: Created| CreateResult::Created(answer(&created));
        let results = batch.answers(engine, &Self::SPEC, answers, done, CreateResult::Refused);
        Ok(CreateTasksOutput { results })
    }

    fn touches(input: &CreateTasksInput) -> Touches<'_> {
        Touches::Tasks(&input.tasks)
    }

    fn max_input_bytes(_settings: &Settings) -> Option<usize> {
        Some(MAX_BATCH_BYTES)
    }
}
