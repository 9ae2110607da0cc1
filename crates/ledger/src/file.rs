//! Verifying an export: its lines are digested in parallel, and followed one after the other.
//!
//! A receipt's link depends on the link before it, but the file contains every link. So each line is
//! digested with the link that the line before it claims. The claim is checked when the digests are
//! followed in order.

use std::{
    io::Read,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use asyncgate_api::LedgerHead;
use asyncgate_core::{Link, TenantId};

use crate::{
    Break, Expectations, Failure, Kind, Report, Verifier,
    blocks::{self, Blocks, last_line, lines},
    digest::{self, Digest, Digester},
    line::Parsed,
};

/// Blocks that wait for one thread.
const QUEUED: usize = 4;

/// The progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Receipts found good.
    pub receipts: u64,
    /// Bytes read off the file.
    pub bytes: u64,
}

/// Verifies an export on as many threads as there are cores.
pub fn verify_export<R: Read + Send>(
    source: R,
    expectations: Expectations,
) -> Result<Report, Failure> {
    verify_export_with(source, expectations, |_| {})
}

/// Does the same as [`verify_export`], and reports its progress from time to time.
pub fn verify_export_with<R: Read + Send>(
    source: R,
    expectations: Expectations,
    mut progress: impl FnMut(Progress),
) -> Result<Report, Failure> {
    let mut blocks = Blocks::new(source);
    let (header, rest) = blocks::header(&mut blocks)?;
    let tenant: TenantId = header.tenant_id.parse().map_err(|_| {
        let message = format!(
            "the header's tenant_id must be a UUID, not {:?}",
            header.tenant_id
        );
        Break::new(Kind::NotAnExport, message).on_line(1)
    })?;
    // Hashing and parsing take most of the time and run on all cores; following is cheap and in order.
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (blocks_to, blocks_from) = sync_channel::<Work>(QUEUED);
            let (done_to, done_from) = sync_channel::<Done>(QUEUED);
            scope.spawn(move || digest_blocks(tenant, &blocks_from, &done_to));
            to.push(blocks_to);
            from.push(done_from);
        }
        scope.spawn(move || hand_out(blocks, rest, &to));
        let verifier = Verifier::new(tenant, expectations);
        follow(verifier, from, &mut progress)
    })
}

/// Whole lines and the line before them, or the reason why there are no more.
type Work = Result<(Vec<u8>, Vec<u8>), Failure>;

/// The digests of a block of lines.
struct Done {
    bytes: usize,
    items: Vec<Result<Item, Failure>>,
}

enum Item {
    Receipt(Digest),
    Head(LedgerHead),
}

/// Hands blocks to the workers in turn. It ends with the file, or when the follower has stopped.
fn hand_out<R: Read>(mut blocks: Blocks<R>, first: Vec<u8>, workers: &[SyncSender<Work>]) {
    let mut next = Ok(Some(first));
    let mut before = Vec::new();
    // In turn, so that the follower knows without numbers which worker has the next block.
    for worker in workers.iter().cycle() {
        let work = match next {
            Ok(Some(block)) => {
                let last = last_line(&block).to_vec();
                let before = std::mem::replace(&mut before, last);
                Ok((before, block))
            }
            Ok(None) => return,
            Err(failure) => Err(failure),
        };
        let ended = work.is_err();
        if worker.send(work).is_err() || ended {
            return;
        }
        next = blocks.next();
    }
}

fn digest_blocks(tenant: TenantId, work: &Receiver<Work>, done: &SyncSender<Done>) {
    let mut digester = Digester::new(tenant);
    for work in work {
        let result = match work {
            Ok((before, block)) => digest_block(&mut digester, &before, &block),
            Err(failure) => Done {
                bytes: 0,
                items: vec![Err(failure)],
            },
        };
        if done.send(result).is_err() {
            return;
        }
    }
}

/// Digests lines up to the first broken one.
fn digest_block(digester: &mut Digester, before: &[u8], block: &[u8]) -> Done {
    let mut link = match before {
        [] => Link::START,
        line => digest::claimed_link(line),
    };
    // A receipt is seldom shorter than half a KiB.
    let mut items = Vec::with_capacity(block.len() / 512);
    for line in lines(block) {
        let item = digest_line(digester, line, link);
        if let Ok(Item::Receipt(digest)) = &item {
            link = digest.claimed;
        }
        let broken = item.is_err();
        items.push(item.map_err(Failure::from));
        if broken {
            break;
        }
    }
    let bytes = block.len();
    Done { bytes, items }
}

fn digest_line(digester: &mut Digester, line: &[u8], link: Link) -> Result<Item, Break> {
    match Parsed::parse(line)? {
        Parsed::Receipt(line) => digester.digest(&line, link).map(Item::Receipt),
        Parsed::Head(head) => Ok(Item::Head(head)),
    }
}

/// Follows the digests in the order of the file, up to the first break.
fn follow(
    mut verifier: Verifier,
    workers: Vec<Receiver<Done>>,
    progress: &mut impl FnMut(Progress),
) -> Result<Report, Failure> {
    let (mut line, mut bytes) = (1, 0);
    let mut head = None;
    for worker in workers.iter().cycle() {
        // The worker whose turn it is has ended, so the file has too.
        let Ok(done) = worker.recv() else { break };
        for item in done.items {
            line += 1;
            step(&mut verifier, &mut head, item).map_err(|failure| place(failure, line))?;
        }
        bytes += done.bytes as u64;
        progress(Progress {
            receipts: verifier.receipts(),
            bytes,
        });
    }
    let head = head.ok_or_else(|| no_head().on_line(line))?;
    Ok(verifier
        .finish(&head)
        .map_err(|found| found.on_line(line))?)
}

fn step(
    verifier: &mut Verifier,
    head: &mut Option<LedgerHead>,
    item: Result<Item, Failure>,
) -> Result<(), Failure> {
    // A read error is passed on as it is: the bytes behind it may be anything.
    // Only one head, and it is the last line: bytes behind it are covered by no signature.
    if head.is_some() && !matches!(item, Err(Failure::Read(_))) {
        return Err(after_the_head().into());
    }
    match item? {
        Item::Receipt(digest) => verifier.follow(&digest)?,
        Item::Head(found) => *head = Some(found),
    }
    Ok(())
}

/// Adds the number of the line to a break: workers find breaks without knowing it.
pub(crate) fn place(failure: Failure, line: u64) -> Failure {
    match failure {
        Failure::Broken(found) => found.on_line(line).into(),
        Failure::Read(error) => error.into(),
    }
}

pub(crate) fn no_head() -> Break {
    let message = "the file ends here without a signed head: it was cut short";
    Break::new(Kind::Truncated, message)
}

pub(crate) fn after_the_head() -> Break {
    Break::new(Kind::AfterTheHead, "nothing may follow the signed head")
}
