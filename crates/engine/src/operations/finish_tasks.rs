//! Takes the reports of many tasks in one commit.

use asyncgate_api::{FinishItem, FinishResult, FinishTasks, FinishTasksOutput, Operation as _};
use asyncgate_core::{
    Principal,
    task::{Ending, Finished, Hold, Report},
};
use asyncgate_store::ReadSet;

use super::{Execute, Executed, complete, fail};
use crate::{
    Caller, Engine, Fault, Settings,
    authorise::Named,
    batch::{CheckedBatch, MAX_BATCH_BYTES},
    input,
};

impl Execute for FinishTasks {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let named = Named::worker(input.worker_kind, input.worker_id, input.worker_instance_id);
        let worker = caller.acting(named)?;
        let mut batch = CheckedBatch::new("items", input.items, |item| ending(&worker, item))?;
        let endings = batch.take();
        let weight = endings.iter().map(weight).sum();
        let reads = ReadSet::to_hold(endings.iter().map(|ending| ending.task_id));
        let reported: Vec<_> = endings
            .iter()
            .map(|ending| {
                (
                    ending.task_id,
                    matches!(ending.report, Report::Completed(_)),
                )
            })
            .collect();
        let finished = engine
            .transact(caller.tenant, weight, reads, move |env, snapshot| {
                Ok(snapshot.finish_all(env, endings.clone()))
            })
            .await?;
        let answer = |((task_id, is_success), finished): (_, Result<Finished, _>)| {
            let finished = finished?;
            Ok::<_, Fault>(match is_success {
                true => FinishResult::Completed(complete::answer(engine, task_id, &finished)),
                false => FinishResult::Failed(fail::answer(&finished)),
            })
        };
        let answers = reported.into_iter().zip(finished).map(answer);
        let (spec, refused) = (&Self::SPEC, FinishResult::Refused);
        Ok(FinishTasksOutput {
            results: batch.answers(engine, spec, answers, |answer| answer, refused),
        })
    }

    fn max_input_bytes(_settings: &Settings) -> Option<usize> {
        Some(MAX_BATCH_BYTES)
    }
}

fn ending(worker: &Principal, item: FinishItem) -> Result<Ending, Fault> {
    let report = match (item.complete, item.fail) {
        (Some(success), None) => Report::Completed(complete::completion(success)?),
        (None, Some(failing)) => Report::Failed(fail::failure(failing)?),
        (None, None) | (Some(_), Some(_)) => {
            let message = "give exactly one of complete and fail";
            return Err(Fault::bad_request(message).with("field", "complete"));
        }
    };
    Ok(Ending {
        task_id: input::id("task_id", &item.task_id)?,
        hold: Hold {
            worker: worker.clone(),
            lease_id: input::id("lease_id", &item.lease_id)?,
        },
        report,
    })
}

fn weight(ending: &Ending) -> usize {
    match &ending.report {
        Report::Completed(completion) => complete::weight(completion),
        Report::Failed(failure) => failure.error.len(),
    }
}
