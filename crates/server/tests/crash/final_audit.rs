//! The audit at the end of a test: everything, from the beginning, through every way of reading.

use std::collections::BTreeSet;

use asyncgate_core::{Receipt, ReceiptType};
use serde_json::{Value, json};

use crate::ask::{Ask, Verdict};
use crate::audit::{Audit, granted};
use crate::chain::Told;
use crate::harness::Server;
use crate::journal::{Ack, Journal, OWNERS};

impl Audit {
    /// Checks all that can be checked without a journal: links, stories, tasks, obligations, sums, and
    /// heads that somebody kept.
    pub fn check_whole(mut self, server: &Server, heads: &[Ack]) -> Verdict<()> {
        let mut ask = Ask::new(server);
        self.read_on(&mut ask)?;
        self.check_acks(heads)?;
        for (id, story) in &self.stories {
            story.agrees(&ask.get(&format!("/v1/tasks/{id}"))?)?;
            let told = self.told[id].iter().map(|n| &self.receipts[*n]);
            let target = format!("/v1/receipts/ledger?task_id={id}");
            lists(&mut ask, &target, "receipts", told)?;
        }
        for (receipt, link) in self.receipts.iter().zip(&self.links) {
            let found = ask.get(&format!("/v1/receipts/{}", receipt.id))?;
            if found["link"] != link.to_string() {
                return Err(format!("receipt {} has another link", receipt.seq()));
            }
        }
        self.check_tasks(&mut ask)?;
        self.check_lists(&mut ask)?;
        self.check_sums(&mut ask)
    }

    /// Reads everything again from the beginning, and checks that it is what was seen before, that it
    /// agrees with the journal and with itself.
    pub fn check_all(&self, server: &Server, journal: &Journal) -> Verdict<()> {
        let mut ask = Ask::new(server);
        let mut again = Self::default();
        again.read_on(&mut ask)?;
        if (&again.receipts, &again.links) != (&self.receipts, &self.links) {
            return Err("the ledger is not what it was".to_owned());
        }
        again.check_acks(&journal.since(0))?;
        again.check_tasks(&mut ask)?;
        again.check_lists(&mut ask)?;
        again.check_sums(&mut ask)
    }

    /// Every task in the list agrees with its receipts, and no key stands for two.
    fn check_tasks(&self, ask: &mut Ask<'_>) -> Verdict<()> {
        let mut keys = BTreeSet::new();
        let mut seen = 0;
        let mut cursor = String::new();
        loop {
            let page = ask.get(&format!("/v1/tasks?limit=200{cursor}"))?;
            for task in page["tasks"].as_array().into_iter().flatten() {
                let id = task["task_id"].as_str().unwrap_or_default();
                let story = self.stories.get(id).ok_or("a task without receipts")?;
                story.agrees(task)?;
                seen += 1;
                let key = task["idempotency_key"].as_str().map(str::to_owned);
                if let Some(key) = key.filter(|key| !keys.insert(key.clone())) {
                    return Err(format!("two tasks have the key {key}"));
                }
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        if seen != self.stories.len() {
            return Err(format!("{seen} tasks, {} stories", self.stories.len()));
        }
        Ok(())
    }

    /// What is listed as owed to an agent, as addressed to it, and by type, is what the ledger says.
    fn check_lists(&self, ask: &mut Ask<'_>) -> Verdict<()> {
        for owner in OWNERS {
            let owed = self.open.iter().filter(|(_, (_, owed))| owed == owner);
            let owed = owed.map(|(seq, _)| &self.receipts[*seq as usize - 1]);
            let target = format!("/v1/obligations/open?principal_id={owner}");
            lists(ask, &target, "open_obligations", owed)?;
            let sent = self.receipts.iter().filter(|sent| *sent.to.id == *owner);
            let target = format!("/v1/receipts?principal_id={owner}");
            lists(ask, &target, "receipts", sent)?;
        }
        for kind in ReceiptType::ALL {
            let of_kind = self.receipts.iter();
            let of_kind = of_kind.filter(|receipt| receipt.receipt_type == kind);
            let target = format!("/v1/receipts/ledger?receipt_type={}", kind.as_str());
            lists(ask, &target, "receipts", of_kind)?;
        }
        Ok(())
    }

    /// Sends every create with a key again: what was answered is known, and what was not becomes one
    /// task. Then takes all there is to take: exactly what is queued, and nothing that has ended.
    pub fn check_by_acting(mut self, server: &Server, journal: &Journal) -> Verdict<usize> {
        let mut ask = Ask::new(server);
        for ack in journal.since(0) {
            let Ack::Created { id: first, wish } = ack else {
                continue;
            };
            granted(&ask.get(&format!("/v1/tasks/{first}"))?, &wish)?;
            if wish.key.is_none() {
                continue;
            }
            let (status, answer) = ask.post("/v1/tasks", &wish.input())?;
            if status != 200 || answer["task_id"] != first || answer["duplicate"] != true {
                return Err(format!("the key of {first} does not hold: {answer}"));
            }
        }
        for wish in journal.unanswered() {
            let (status, answer) = ask.post("/v1/tasks", &wish.input())?;
            if !matches!(status, 200 | 201) {
                return Err(format!("{wish:?} is refused: {answer}"));
            }
        }
        self.read_on(&mut ask)?;
        let taken = self.take_all(&mut ask)?;
        self.read_on(&mut ask)?;
        self.check_tasks(&mut ask)?;
        self.check_lists(&mut ask)?;
        self.check_sums(&mut ask)?;
        Ok(taken)
    }

    fn take_all(&self, ask: &mut Ask<'_>) -> Verdict<usize> {
        let stories = self.stories.iter();
        let mut queued: BTreeSet<String> = stories
            .filter(|(_, story)| story.status == "queued")
            .map(|(id, _)| id.clone())
            .collect();
        let count = queued.len();
        let claim = json!({"worker_id": "auditor", "max_tasks": 100});
        loop {
            let (_, answer) = ask.post("/v1/leases/claim", &claim)?;
            let tasks = answer["tasks"].as_array().cloned().unwrap_or_default();
            if tasks.is_empty() {
                break;
            }
            for task in &tasks {
                let id = id(&task["task_id"]);
                if !queued.remove(&id) {
                    let ended = self.stories.get(&id).is_some_and(|story| story.has_ended());
                    return Err(format!("{id} is not queued, ended: {ended}, yet claimable"));
                }
            }
        }
        if queued.is_empty() {
            Ok(count)
        } else {
            Err(format!("queued, yet not claimable: {queued:?}"))
        }
    }
}

/// Checks that a list of receipts, through all its pages, is exactly this.
fn lists<'a>(
    ask: &mut Ask<'_>,
    target: &str,
    items: &str,
    expected: impl Iterator<Item = &'a Receipt>,
) -> Verdict<()> {
    let mut listed: Vec<Receipt> = Vec::new();
    loop {
        let since = listed.last().map_or(String::new(), |last| {
            format!("&since_receipt_id={}", last.id)
        });
        let page = ask.get(&format!("{target}&limit=200{since}"))?;
        for item in page[items].as_array().into_iter().flatten() {
            let record = serde_json::from_value(item.clone());
            let record = record.map_err(|error| format!("{target}: {error}"))?;
            listed.push(Told::read(&record)?.receipt);
        }
        if page["next_cursor"].is_null() {
            break;
        }
    }
    if listed.iter().eq(expected) {
        Ok(())
    } else {
        Err(format!("{target}: not what the ledger says: {listed:?}"))
    }
}

fn id(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
