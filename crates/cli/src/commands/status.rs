//! `asyncgate status`: how a server is, at a glance.

use std::collections::BTreeMap;

use asyncgate_client::{
    Client, Readiness,
    api::{ConfigRecord, LedgerHead, ListTopicsInput, TopicState},
};
use clap::Args;
use serde::Serialize;

use super::mail::topic_table;
use crate::{
    exit::Exit,
    remote::Common,
    show::{Cell, Style, fields},
};

/// The states of a task in the order of its life, as the metrics name them.
const STATES: [&str; 6] = [
    "queued",
    "leased",
    "running",
    "succeeded",
    "failed",
    "canceled",
];
/// The most topics that are shown.
const TOPICS: u32 = 20;

/// The arguments of `asyncgate status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Tasks, waiting calls and expired leases are those of all tenants, from the server's metrics; they are
missing where the metrics are served on an address of their own. Topics and the ledger are yours.
Exits with 3 when the server does not take new work.

Examples:
  asyncgate status
  asyncgate status --url https://gate.example --json")]
pub struct Status {
    #[command(flatten)]
    common: Common,
}

/// All that is known of a server.
#[derive(Debug, Serialize)]
struct Report {
    url: String,
    version: String,
    instance_id: String,
    readiness: Readiness,
    durability: String,
    profile: String,
    /// Tasks by status, of all tenants.
    tasks: Option<BTreeMap<&'static str, u64>>,
    /// Calls that wait for an event: claims, receivers, readers.
    waiting_calls: Option<u64>,
    leases_expired: Option<u64>,
    /// Transactions that wait to be written.
    waiting_jobs: Option<u64>,
    ledger: Ledger,
    topics: Vec<TopicState>,
    more_topics: bool,
}

#[derive(Debug, Serialize)]
struct Ledger {
    receipts: u64,
    open_obligations: u64,
    link: String,
}

impl Status {
    pub async fn run(self) -> anyhow::Result<()> {
        let report = Report::read(&self.common.client()?).await?;
        self.common.show(&report, || report.describe())?;
        let reason = report.readiness.reason.as_deref();
        match report.readiness.ready {
            true => Ok(()),
            false => Err(Exit::refused(format!(
                "the server does not take new work: {}",
                reason.unwrap_or("it does not say why")
            ))
            .into()),
        }
    }
}

impl Report {
    async fn read(client: &Client) -> anyhow::Result<Self> {
        let topics = ListTopicsInput {
            limit: Some(TOPICS),
            ..ListTopicsInput::default()
        };
        let (readiness, metrics, config, head, topics) = tokio::try_join!(
            client.readiness(),
            client.metrics(),
            client.get_config(),
            client.get_ledger_head(),
            client.list_topics(&topics),
        )?;
        let ConfigRecord {
            version,
            instance_id,
            durability,
            profile,
            ..
        } = config;
        let LedgerHead {
            seq,
            open_obligations,
            link,
            ..
        } = head;
        let sample = |name: &str| metrics.as_ref().and_then(|text| sample(text, name));
        let tasks = STATES.map(|state| {
            let count = sample(&format!("asyncgate_tasks{{status=\"{state}\"}}"));
            Some((state, count?))
        });
        Ok(Self {
            url: client.address().to_owned(),
            version,
            instance_id,
            readiness,
            durability,
            profile,
            tasks: tasks.into_iter().collect(),
            waiting_calls: sample("asyncgate_waiting_calls"),
            leases_expired: sample("asyncgate_leases_expired_total"),
            waiting_jobs: sample("asyncgate_store_waiting_jobs"),
            ledger: Ledger {
                receipts: seq,
                open_obligations,
                link,
            },
            topics: topics.topics,
            more_topics: topics.next_cursor.is_some(),
        })
    }

    fn describe(&self) -> String {
        let ready = match self.readiness.ready {
            true => Cell::new(Style::Green, "yes"),
            false => {
                let missing = self.readiness.missing.join(", ");
                Cell::new(Style::Red, &format!("no: {missing}"))
            }
        };
        let tasks = self.tasks.as_ref().map(|tasks| {
            let counts = STATES.map(|state| format!("{} {state}", tasks[state]));
            counts.join(", ").into()
        });
        let Ledger {
            receipts,
            open_obligations,
            ..
        } = &self.ledger;
        let number = |number: Option<u64>| number.map(|number| number.to_string().into());
        let text = fields::<Cell, _>([
            ("server", Some(self.url.as_str().into())),
            ("version", Some(self.version.as_str().into())),
            ("instance", Some(self.instance_id.as_str().into())),
            ("ready", Some(ready)),
            (
                "durability",
                Some(format!("{} ({})", self.durability, self.profile).into()),
            ),
            ("tasks", tasks),
            ("leases expired", number(self.leases_expired)),
            ("waiting calls", number(self.waiting_calls)),
            ("waiting writes", number(self.waiting_jobs)),
            (
                "ledger",
                Some(format!("{receipts} receipts, {open_obligations} open obligations").into()),
            ),
            ("head", Some(self.ledger.link.as_str().into())),
        ]);
        if self.topics.is_empty() {
            return text;
        }
        let more = if self.more_topics {
            "\nmore: asyncgate mail topics --all"
        } else {
            ""
        };
        format!("{text}\n\n{}{more}", topic_table(&self.topics))
    }
}

/// Returns the value of a sample in the text format of metrics.
fn sample(metrics: &str, name: &str) -> Option<u64> {
    let mut values = metrics.lines().filter_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(' ')?;
        value.split(' ').next()?.parse::<f64>().ok()
    });
    // Counts are whole numbers, and a gauge that is just being changed may be below zero.
    values.next().map(|value| value.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_their_whole_name() {
        let text = "# TYPE a gauge\na_b 7\na 3\nt{status=\"queued\"} 2.0 1700\nneg -1\n";
        assert_eq!(sample(text, "a"), Some(3));
        assert_eq!(sample(text, "a_b"), Some(7));
        assert_eq!(sample(text, "t{status=\"queued\"}"), Some(2));
        assert_eq!(sample(text, "neg"), Some(0));
        assert_eq!(sample(text, "t"), None);
    }
}
