//! Lists as streams: pages are fetched as they are read.
//!
//! A stream ends after the last page, or after its first error. The `limit` of its input is the size
//! of a page, not the number of items.

use std::{collections::VecDeque, time::Duration};

use asyncgate_api::*;
use futures_util::stream::{self, BoxStream, StreamExt};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{Client, Error, Kind};

/// Items of a list, in its order.
pub type Items<T> = BoxStream<'static, Result<T, Error>>;

/// The longest wait that the server grants.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Client {
    /// Streams all tasks that match, newest first, from the input's `cursor` on.
    pub fn tasks(&self, input: ListTasksInput) -> Items<TaskRecord> {
        self.items::<ListTasks, _>(
            input,
            |page| Page::new(page.tasks, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Streams all receipts of an inbox, in ledger order.
    pub fn receipts(&self, input: ListReceiptsInput) -> Items<ReceiptRecord> {
        self.items::<ListReceipts, _>(
            input,
            |page| Page::new(page.receipts, page.next_cursor),
            |input, cursor| input.since_receipt_id = Some(cursor),
        )
    }

    /// Streams all receipts of a task, a lease or a type, in ledger order.
    pub fn ledger(&self, input: ListLedgerInput) -> Items<ReceiptRecord> {
        self.items::<ListLedger, _>(
            input,
            |page| Page::new(page.receipts, page.next_cursor),
            |input, cursor| input.since_receipt_id = Some(cursor),
        )
    }

    /// Streams every receipt of the tenant, in ledger order.
    pub fn whole_ledger(&self, input: ReadLedgerInput) -> Items<ReceiptRecord> {
        self.items::<ReadLedger, _>(
            input,
            |page| Page::new(page.receipts, page.next_cursor),
            |input, cursor| input.since_receipt_id = Some(cursor),
        )
    }

    /// Streams all open obligations, in ledger order.
    pub fn open_obligations(&self, input: ListOpenObligationsInput) -> Items<ReceiptRecord> {
        self.items::<ListOpenObligations, _>(
            input,
            |page| Page::new(page.open_obligations, page.next_cursor),
            |input, cursor| input.since_receipt_id = Some(cursor),
        )
    }

    /// Waits until a task has ended, and returns it. After `limit` it returns the task as it is then.
    pub async fn wait_for_task(
        &self,
        input: &GetTaskInput,
        limit: Duration,
    ) -> Result<TaskRecord, Error> {
        let end = Instant::now().checked_add(limit);
        let mut input = input.clone();
        loop {
            let left = end.map_or(MAX_WAIT, |end| {
                end.saturating_duration_since(Instant::now())
            });
            // Rounded up: with a wait of 0 seconds the last part of a second would be a tight loop.
            let seconds = left.min(MAX_WAIT).as_millis().div_ceil(1_000);
            input.wait_seconds = u32::try_from(seconds).ok();
            let asked = Instant::now();
            let task = self.get_task(&input).await?;
            if has_ended(task.status) || left <= MAX_WAIT && asked.elapsed() >= left {
                return Ok(task);
            }
            if asked.elapsed() < left.min(MAX_WAIT) / 2 {
                // A server that is shutting down answers waiting calls at once. Do not ask in a loop.
                tokio::time::sleep(Duration::from_millis(200).min(left)).await;
            }
        }
    }

    pub(crate) fn items<O: Operation, T>(
        &self,
        input: O::Input,
        open: fn(O::Output) -> Page<T>,
        turn: fn(&mut O::Input, String),
    ) -> Items<T>
    where
        O::Input: Serialize + Clone + Sync,
        O::Output: DeserializeOwned,
        T: Send + 'static,
    {
        let reader = Reader::<O, T> {
            client: self.clone(),
            input,
            turn,
            read: VecDeque::new(),
            last: None,
            done: false,
        };
        stream::unfold(reader, move |mut reader| async move {
            let item = reader.next(open).await.transpose()?;
            Some((item, reader))
        })
        .boxed()
    }
}

/// Returns true if a task in this state will not change any more.
pub fn has_ended(status: TaskStatus) -> bool {
    match status {
        TaskStatus::Queued | TaskStatus::Leased | TaskStatus::Running => false,
        TaskStatus::Succeeded | TaskStatus::Failed | TaskStatus::Canceled => true,
    }
}

pub(crate) struct Page<T> {
    items: VecDeque<T>,
    /// Returns the cursor of the next page.
    next: Option<String>,
}

impl<T> Page<T> {
    pub fn new(items: Vec<T>, next: Option<String>) -> Self {
        Self {
            items: items.into(),
            next,
        }
    }
}

struct Reader<O: Operation, T> {
    client: Client,
    input: O::Input,
    turn: fn(&mut O::Input, String),
    /// The items that were fetched and not returned yet.
    read: VecDeque<T>,
    last: Option<String>,
    done: bool,
}

impl<O: Operation, T> Reader<O, T>
where
    O::Input: Serialize,
    O::Output: DeserializeOwned,
{
    async fn next(&mut self, open: fn(O::Output) -> Page<T>) -> Result<Option<T>, Error> {
        // A filter that matches rarely can leave a page empty although there is a next one.
        while self.read.is_empty() && !self.done {
            let page = self.client.call::<O>(&self.input).await;
            let page = open(page.inspect_err(|_| self.done = true)?);
            self.read = page.items;
            let Some(next) = page.next else {
                self.done = true;
                break;
            };
            if self.last.as_ref() == Some(&next) {
                self.done = true;
                let message = "the server names the same page twice";
                return Err(Error::new(Kind::Protocol, message).during(O::SPEC.name, 1));
            }
            (self.turn)(&mut self.input, next.clone());
            self.last = Some(next);
        }
        Ok(self.read.pop_front())
    }
}
