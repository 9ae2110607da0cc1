//! The audit at the end of a test: everything, from the beginning, through every way of reading.

use std::collections::BTreeSet;

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

    /// What is listed as owed to an agent, and as addressed to it, is what the ledger says.
    fn check_lists(&self, ask: &mut Ask<'_>) -> Verdict<()> {
        for owner in OWNERS {
            let owed = self.open.values().filter(|(_, owed)| owed == owner);
            let owed: Vec<String> = owed.map(|(id, _)| id.to_string()).collect();
            let target = format!("/v1/obligations/open?principal_id={owner}");
            same(&target, &owed, &list(ask, &target, "open_obligations")?)?;
            let sent = self.receipts.iter().filter(|sent| sent.to.id == owner);
            let sent: Vec<String> = sent.map(|sent| sent.id.to_string()).collect();
            let target = format!("/v1/receipts?principal_id={owner}");
            same(&target, &sent, &list(ask, &target, "receipts")?)?;
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

/// The ids of a list of receipts, through all its pages.
fn list(ask: &mut Ask<'_>, target: &str, items: &str) -> Verdict<Vec<String>> {
    let mut listed: Vec<String> = Vec::new();
    loop {
        let since = listed
            .last()
            .map(|last| format!("&since_receipt_id={last}"));
        let page = ask.get(&format!("{target}&limit=200{}", since.unwrap_or_default()))?;
        for item in page[items].as_array().into_iter().flatten() {
            let told = item["hash"].as_str().map(str::to_owned);
            let record = serde_json::from_value(item.clone()).map_err(|e| e.to_string())?;
            if told.as_ref() != Some(&Told::read(&record)?.receipt.hash()) {
                return Err(format!("{target}: a wrong hash in {item}"));
            }
            listed.push(id(&item["receipt_id"]));
        }
        if page["next_cursor"].is_null() {
            return Ok(listed);
        }
    }
}

fn same(target: &str, counted: &[String], listed: &[String]) -> Verdict<()> {
    if counted == listed {
        Ok(())
    } else {
        Err(format!("{target}: counted {counted:?}, listed {listed:?}"))
    }
}

fn id(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
