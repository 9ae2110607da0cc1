//! `asyncgate verify --data-dir`: checks the files of a data directory against the ledgers in them.

use std::path::Path;

use asyncgate_api::LedgerHead;
use asyncgate_cli::{Checks, Exit, Progress, Verified};
use asyncgate_core::{Head, TenantId, Timestamp};
use asyncgate_ledger::{ChainReport, ChainVerifier, Report, Standings};
use asyncgate_store::{Error, SeqPage};
use asyncgate_store_sqlite::{Finding, LogError, OpenError, SqliteFile};

use crate::node::DATABASE;

/// The number of receipts that are read at a time.
const PAGE: usize = 1_000;

/// Checks the log, the database, for each tenant its ledger, tasks and messages, and the records and audit logs. A server may run
/// on the directory meanwhile.
pub fn check_data_dir(dir: &Path, checks: &mut Checks) -> anyhow::Result<Vec<Verified>> {
    let path = dir.join(DATABASE);
    let mut file = SqliteFile::open(&path).map_err(|error| {
        if let OpenError::Log(LogError::Frame { .. } | LogError::Header { .. }) = error {
            return Exit::broken(error.to_string()).into();
        }
        anyhow::Error::new(error).context(format!("{}", path.display()))
    })?;
    let mut progress = Progress::start();
    file.check_pages(move || progress.at(|| "checking the database".to_owned()))
        .map_err(|found| finding("the database", found))?;
    let mut verified = Vec::new();
    for tenant in file.tenants().map_err(unread)? {
        verified.push(Verified {
            ledger: check_ledger(&mut file, tenant, checks)?,
            chains: Some(check_messages(&mut file, tenant)?),
        });
    }
    let mut progress = Progress::start();
    file.check_identity(|rows| progress.at(|| format!("{rows} records and audit entries")))
        .map_err(|found| finding("identity", found))?;
    file.check_outbox()
        .map_err(|found| finding("the outbox", found))?;
    file.check_indexes()
        .map_err(|found| finding("an index", found))?;
    Ok(verified)
}

/// Checks a tenant's ledger, and that each of its tasks stands as the receipts say.
fn check_ledger(
    file: &mut SqliteFile,
    tenant: TenantId,
    checks: &mut Checks,
) -> anyhow::Result<Report> {
    let head = file.head(tenant).map_err(unread)?;
    let mut ledger = checks.ledger(tenant);
    let mut standings = Standings::default();
    let mut progress = Progress::start();
    let (mut after, mut receipt_bytes) = (0, 0);
    while after < head.seq {
        // The head was read first: receipts that a running server adds meanwhile come after it.
        let limit = PAGE.min(usize::try_from(head.seq - after).unwrap_or(PAGE));
        let found = file
            .receipts(tenant, SeqPage { after, limit })
            .map_err(unread)?;
        if found.is_empty() {
            break;
        }
        for found in &found {
            let record = asyncgate_ledger::record(tenant, &found.receipt, found.link);
            ledger.push(&record)?;
            standings.push(&found.receipt);
            receipt_bytes += found.receipt.stored_bytes();
            after = record.seq;
        }
        progress.at(|| format!("{after} of {} receipts", head.seq));
    }
    let report = ledger.finish(&unsigned(tenant, head))?;
    file.check_tasks(
        tenant,
        |task| standings.check(task),
        |tasks| progress.at(|| format!("{tasks} of {} tasks", report.tasks)),
    )
    .map_err(|found| finding("a task", found))?;
    file.check_usage(tenant, report.tasks, receipt_bytes)
        .map_err(|found| finding("a counter", found))?;
    if let Some(task) = standings.missing() {
        let message = format!("a task is broken: tenant {tenant}, task {task}: it has no row");
        return Err(Exit::broken(message).into());
    }
    Ok(report)
}

/// Checks the messages that are still stored: each agrees with its hashes and its neighbours.
fn check_messages(file: &mut SqliteFile, tenant: TenantId) -> anyhow::Result<ChainReport> {
    let heads = file.chains(tenant).map_err(unread)?;
    let mut verifier = ChainVerifier::default();
    let mut progress = Progress::start();
    file.check_messages(
        tenant,
        |message| verifier.push(message).map_err(|broken| broken.to_string()),
        |messages| progress.at(|| format!("{messages} messages")),
    )
    .map_err(|found| finding("a message", found))?;
    let broken = |found| Exit::broken(format!("a chain of messages is broken: {found}")).into();
    verifier.finish(&heads).map_err(broken)
}

/// Returns the head that the file itself has. Only the signatures in the ledger vouch for it.
fn unsigned(tenant: TenantId, head: Head) -> LedgerHead {
    let signed_at = Timestamp::from_millis(0);
    LedgerHead {
        tenant_id: tenant.to_string(),
        seq: head.seq,
        link: head.link.to_string(),
        open_obligations: head.open_obligations,
        signed_at: signed_at.to_string(),
        signed_at_millis: signed_at.as_millis(),
        public_key: None,
        signature: None,
    }
}

fn finding(part: &str, found: Finding) -> anyhow::Error {
    match found {
        Finding::Wrong(found) => Exit::broken(format!("{part} is broken: {found}")).into(),
        Finding::Store(error) => error.into(),
    }
}

fn unread(error: Error) -> anyhow::Error {
    match error {
        Error::Corrupt(_) => Exit::broken(error.to_string()).into(),
        Error::Busy | Error::Unavailable(_) | Error::Unknown(_) | Error::Conflict => error.into(),
    }
}
