//! A method for every operation.

use std::borrow::Cow;

use asyncgate_api::*;

use crate::{Client, Error, random, request::Prepared};

impl Client {
    /// Creates a task. Without an `idempotency_key` it gets one that nobody else has, unless the
    /// client was told not to, so that it can be sent again after a lost answer and still makes one
    /// task.
    pub async fn create_task(&self, input: &CreateTaskInput) -> Result<CreateTaskOutput, Error> {
        let key = match &input.idempotency_key {
            Some(_) => None,
            None if self.generates_keys() => random::idempotency_key(),
            None => None,
        };
        let extra = key.as_deref().map(|key| ("idempotency_key", key));
        let repeatable = extra.is_some() || input.idempotency_key.is_some();
        let prepared = Prepared::new::<CreateTask>(input, extra)
            .map_err(|error| error.during(CreateTask::SPEC.name, 0))?;
        self.send(&Prepared {
            repeatable,
            ..prepared
        })
        .await
    }

    /// Creates up to 1,000 tasks, each with an answer of its own. Those without an `idempotency_key` get one, as in
    /// [`Client::create_task`].
    pub async fn create_tasks(&self, input: &CreateTasksInput) -> Result<CreateTasksOutput, Error> {
        let is_named = |task: &CreateTaskInput| task.idempotency_key.is_some();
        let mut named = Cow::Borrowed(input);
        if self.generates_keys() && !input.tasks.readable().all(is_named) {
            for task in named.to_mut().tasks.0.iter_mut().flatten() {
                if task.idempotency_key.is_none() {
                    task.idempotency_key = random::idempotency_key();
                }
            }
        }
        let repeatable = named.tasks.readable().all(is_named);
        let prepared = Prepared::new::<CreateTasks>(&named, None)
            .map_err(|error| error.during(CreateTasks::SPEC.name, 0))?;
        self.send(&Prepared {
            repeatable,
            ..prepared
        })
        .await
    }

    /// Takes tasks to work on. It is sent again after a lost answer: tasks that were given out in
    /// it come back when their leases run out.
    pub async fn lease_next(&self, input: &LeaseNextInput) -> Result<LeaseNextOutput, Error> {
        let prepared = Prepared::new::<LeaseNext>(input, None)
            .map_err(|error| error.during(LeaseNext::SPEC.name, 0))?;
        self.send(&Prepared {
            repeatable: true,
            ..prepared
        })
        .await
    }

    /// Reads a task, perhaps after waiting for its end.
    pub async fn get_task(&self, input: &GetTaskInput) -> Result<TaskRecord, Error> {
        self.call::<GetTask>(input).await
    }

    /// Lists one page of tasks; see [`Client::tasks`] for all of them.
    pub async fn list_tasks(&self, input: &ListTasksInput) -> Result<ListTasksOutput, Error> {
        self.call::<ListTasks>(input).await
    }

    /// Cancels a task.
    pub async fn cancel_task(&self, input: &CancelTaskInput) -> Result<CancelTaskOutput, Error> {
        self.call::<CancelTask>(input).await
    }

    /// Renews a lease.
    pub async fn renew_lease(&self, input: &RenewLeaseInput) -> Result<RenewLeaseOutput, Error> {
        self.call::<RenewLease>(input).await
    }

    /// Renews up to 256 leases, each with an answer of its own, and perhaps waits until one of them is lost.
    pub async fn renew_leases(&self, input: &RenewLeasesInput) -> Result<RenewLeasesOutput, Error> {
        self.call::<RenewLeases>(input).await
    }

    /// Gives a task back undone.
    pub async fn release_lease(&self, input: &ReleaseLeaseInput) -> Result<Done, Error> {
        self.call::<ReleaseLease>(input).await
    }

    /// Reports that work on a task has begun.
    pub async fn start_task(&self, input: &StartTaskInput) -> Result<Done, Error> {
        self.call::<StartTask>(input).await
    }

    /// Reports progress.
    pub async fn report_progress(&self, input: &ReportProgressInput) -> Result<Done, Error> {
        self.call::<ReportProgress>(input).await
    }

    /// Ends a task with success.
    pub async fn complete(&self, input: &CompleteInput) -> Result<CompleteOutput, Error> {
        self.call::<Complete>(input).await
    }

    /// Reports that a task failed.
    pub async fn fail(&self, input: &FailInput) -> Result<FailOutput, Error> {
        self.call::<Fail>(input).await
    }

    /// Reports the end of up to 1,000 tasks, each with an answer of its own.
    pub async fn finish_tasks(&self, input: &FinishTasksInput) -> Result<FinishTasksOutput, Error> {
        self.call::<FinishTasks>(input).await
    }

    /// Lists one page of open obligations; see [`Client::open_obligations`] for all of them.
    pub async fn list_open_obligations(
        &self,
        input: &ListOpenObligationsInput,
    ) -> Result<ListOpenObligationsOutput, Error> {
        self.call::<ListOpenObligations>(input).await
    }

    /// Opens a session in the old way; use [`Client::list_open_obligations`].
    pub async fn bootstrap(&self, input: &BootstrapInput) -> Result<BootstrapOutput, Error> {
        self.call::<Bootstrap>(input).await
    }

    /// Lists one page of an inbox; see [`Client::receipts`] for all of it.
    pub async fn list_receipts(&self, input: &ListReceiptsInput) -> Result<ReceiptPage, Error> {
        self.call::<ListReceipts>(input).await
    }

    /// Lists one page of the receipts of a task, a lease or a type; see [`Client::ledger`] for all.
    pub async fn list_ledger(&self, input: &ListLedgerInput) -> Result<ReceiptPage, Error> {
        self.call::<ListLedger>(input).await
    }

    /// Reads one page of the whole ledger; see [`Client::whole_ledger`] for all of it.
    pub async fn read_ledger(&self, input: &ReadLedgerInput) -> Result<ReceiptPage, Error> {
        self.call::<ReadLedger>(input).await
    }

    /// Reads the signed head of the ledger.
    pub async fn get_ledger_head(&self) -> Result<LedgerHead, Error> {
        self.call::<GetLedgerHead>(&NoInput {}).await
    }

    /// Reads one receipt.
    pub async fn get_receipt(&self, input: &GetReceiptInput) -> Result<ReceiptRecord, Error> {
        self.call::<GetReceipt>(input).await
    }

    /// Acknowledges a receipt.
    pub async fn ack_receipt(&self, input: &AckReceiptInput) -> Result<Done, Error> {
        self.call::<AckReceipt>(input).await
    }

    /// Reads the settings of the server that matter to callers.
    pub async fn get_config(&self) -> Result<ConfigRecord, Error> {
        self.call::<GetConfig>(&NoInput {}).await
    }

    /// Checks that the server is alive.
    pub async fn health(&self) -> Result<HealthRecord, Error> {
        self.call::<GetHealth>(&NoInput {}).await
    }
}
