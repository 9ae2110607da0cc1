//! Verifying a ledger receipt by receipt.
//!
//! Invariant: after [`Verifier::push`] has accepted a receipt, everything up to it is a ledger that
//! the rules could have written and whose links are right. Only its signed head, or a head that
//! somebody kept, shows that it is *the* ledger and not another one.

use std::collections::HashSet;

use asyncgate_api::{LedgerHead, ReceiptRecord};
use asyncgate_core::{
    Head, LeaseId, Link, ReceiptId, ReceiptType, Seq, TaskId, TenantId, Timestamp,
    receipt::{can_terminate, is_terminal, opens_obligation},
};

use crate::{
    Break, KeyUse, Kind, PublicKey, Report,
    digest::{Digest, Digester},
    line::Line,
    seal,
};

/// Facts known about a ledger from another source than the ledger itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expectations {
    /// The key that must have signed the head. Without it any key is accepted, and the signature only
    /// shows that the holder of *some* key vouches for the ledger.
    pub public_key: Option<PublicKey>,
    /// A head that was seen earlier; the ledger must contain it.
    pub known_head: Option<KnownHead>,
}

/// The end of a ledger at an earlier time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHead {
    /// The place of its last receipt.
    pub seq: Seq,
    /// The link of that receipt.
    pub link: Link,
}

/// The facts about a receipt that later receipts may refer to. There is one for each receipt, so
/// it is kept small.
#[derive(Debug)]
struct Entry {
    id: ReceiptId,
    receipt_type: ReceiptType,
    task_id: Option<TaskId>,
    /// The lease that an acceptance gives.
    lease_id: Option<LeaseId>,
    discharged: bool,
}

/// Checks the receipts of a tenant's ledger, from the first on, and then its head.
#[derive(Debug)]
pub struct Verifier {
    tenant: TenantId,
    expectations: Expectations,
    digester: Digester,
    head: Head,
    entries: Vec<Entry>,
    keys: HashSet<u128>,
    tasks: u64,
    first_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    signed_by: Vec<KeyUse>,
}

impl Verifier {
    /// Creates a verifier that has seen no receipt yet.
    pub fn new(tenant: TenantId, expectations: Expectations) -> Self {
        Self {
            tenant,
            expectations,
            digester: Digester::new(tenant),
            head: Head::default(),
            entries: Vec::new(),
            keys: HashSet::new(),
            tasks: 0,
            first_at: None,
            last_at: None,
            signed_by: Vec::new(),
        }
    }

    /// Checks the next receipt. After a break the verifier cannot be used any more.
    pub fn push(&mut self, record: &ReceiptRecord) -> Result<(), Break> {
        let digest = self.digester.digest(&Line::from(record), self.head.link)?;
        self.follow(&digest)
    }

    /// Returns the number of accepted receipts.
    pub const fn receipts(&self) -> u64 {
        self.head.seq
    }

    /// Checks the head, and returns the report on the whole ledger.
    pub fn finish(self, record: &LedgerHead) -> Result<Report, Break> {
        let key = self.check_head(record)?;
        self.check_trust(key)?;
        if let Some(known) = self.expectations.known_head {
            self.check_known_at_the_end(known)?;
        }
        Ok(self.report(record, key))
    }

    /// Accepts a receipt that is sound on its own, if it may follow the receipts before it.
    pub(crate) fn follow(&mut self, digest: &Digest) -> Result<(), Break> {
        self.check_place(digest)
            .and_then(|()| self.check_subject(digest))
            .and_then(|()| self.check_parents(digest))
            .and_then(|()| self.check_once(digest))
            .and_then(|()| self.check_signed(digest))
            .map_err(|found| found.in_receipt(digest.seq))?;
        self.take(digest);
        Ok(())
    }

    fn check_place(&self, digest: &Digest) -> Result<(), Break> {
        let expected = self.head.seq + 1;
        if digest.seq != expected {
            let message = format!("receipt {expected} must stand here, not {}", digest.seq);
            return Err(Break::new(Kind::Gap, message));
        }
        // `follows` is only a claim in a file (see `file.rs`): here it is compared with the true link.
        if digest.follows != self.head.link || digest.link != digest.claimed {
            let message = format!(
                "its link is {}, but after what stands before it must be {}",
                digest.claimed, digest.link
            );
            return Err(Break::new(Kind::Link, message));
        }
        // Equal times are fine: many receipts of one commit share them.
        if let Some(last) = self.last_at.filter(|last| digest.created_at < *last) {
            let message = format!(
                "it was written at {}, before the receipt before it at {last}",
                digest.created_at
            );
            return Err(Break::new(Kind::TimeRunsBack, message));
        }
        match self.expectations.known_head {
            Some(known) if known.seq == digest.seq && known.link != digest.link => {
                Err(other_ledger(known, digest.link))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that the receipt's task and lease exist. A task's id carries the place of its assignment, a
    /// lease's id that of its acceptance.
    fn check_subject(&self, digest: &Digest) -> Result<(), Break> {
        let needs_task = opens_obligation(digest.receipt_type)
            || is_terminal(digest.receipt_type)
            || digest.receipt_type == ReceiptType::TaskResultReady;
        match digest.task_id {
            None if needs_task => {
                let message = format!("a {} must name its task", digest.receipt_type.as_str());
                return Err(Break::new(Kind::UnknownTask, message));
            }
            Some(task) if !self.task_is_known(digest, task) => {
                let message = format!("no receipt up to here assigned the task {task}");
                return Err(Break::new(Kind::UnknownTask, message));
            }
            None | Some(_) => {}
        }
        let gives_lease = digest.receipt_type == ReceiptType::TaskAccepted;
        match digest.lease_id {
            None if gives_lease => {
                let message = "a task.accepted must name its lease";
                Err(Break::new(Kind::UnknownLease, message))
            }
            Some(lease) if !self.lease_is_known(digest, lease) => {
                let message = format!("no receipt up to here gave the lease {lease} on its task");
                Err(Break::new(Kind::UnknownLease, message))
            }
            None | Some(_) => Ok(()),
        }
    }

    fn task_is_known(&self, digest: &Digest, task: TaskId) -> bool {
        if opens_obligation(digest.receipt_type) {
            return task.seq() == digest.seq;
        }
        self.entry(task.seq()).is_some_and(|entry| {
            opens_obligation(entry.receipt_type) && entry.task_id == Some(task)
        })
    }

    fn lease_is_known(&self, digest: &Digest, lease: LeaseId) -> bool {
        if digest.receipt_type == ReceiptType::TaskAccepted {
            return lease.seq() == digest.seq;
        }
        self.entry(lease.seq())
            .is_some_and(|entry| entry.lease_id == Some(lease) && entry.task_id == digest.task_id)
    }

    fn check_parents(&self, digest: &Digest) -> Result<(), Break> {
        let receipt_type = digest.receipt_type;
        let must_have = match receipt_type {
            ReceiptType::TaskFailed | ReceiptType::TaskCanceled => Some("the obligation it ends"),
            ReceiptType::TaskResultReady => Some("the end it tells of"),
            ReceiptType::TaskAssigned
            | ReceiptType::TaskAccepted
            | ReceiptType::TaskStarted
            | ReceiptType::TaskProgress
            | ReceiptType::TaskRetryScheduled
            // A success may come without proof, and then discharges nothing.
            | ReceiptType::TaskCompleted
            | ReceiptType::LeaseExpired
            | ReceiptType::LeaseReleased
            | ReceiptType::SystemAnomaly
            | ReceiptType::ReceiptAcknowledged
            | ReceiptType::LedgerSigned => None,
        };
        if let Some(what) = must_have.filter(|_| digest.parents.is_empty()) {
            let message = format!("a {} must name {what} as its parent", receipt_type.as_str());
            return Err(Break::new(Kind::WrongParent, message));
        }
        for (n, parent) in digest.parents.iter().enumerate() {
            self.check_parent(digest, *parent)?;
            // A parent named twice would discharge its obligation twice.
            if digest.parents[..n].contains(parent) {
                let message = format!("it names the parent {parent} twice");
                return Err(Break::new(Kind::WrongParent, message));
            }
        }
        Ok(())
    }

    fn check_parent(&self, digest: &Digest, parent: ReceiptId) -> Result<(), Break> {
        let entry = self
            .entry(parent.seq())
            .filter(|entry| entry.id == parent)
            .ok_or_else(|| {
                let message = format!("its parent {parent} is no earlier receipt of this ledger");
                Break::new(Kind::UnknownParent, message)
            })?;
        let ends = is_terminal(digest.receipt_type);
        let fits = if ends {
            can_terminate(digest.receipt_type, entry.receipt_type)
        } else if digest.receipt_type == ReceiptType::TaskResultReady {
            is_terminal(entry.receipt_type)
        } else {
            // Other receipts may follow any receipt.
            return Ok(());
        };
        let (name, parent_name) = (digest.receipt_type.as_str(), entry.receipt_type.as_str());
        if !fits {
            let message = format!(
                "a {name} cannot have the {parent_name} at {} as its parent",
                parent.seq()
            );
            return Err(Break::new(Kind::WrongParent, message));
        }
        if entry.task_id != digest.task_id {
            let message = format!("its parent at {} is about another task", parent.seq());
            return Err(Break::new(Kind::WrongParent, message));
        }
        if ends && entry.discharged {
            let message = format!("the obligation at {} was discharged before", parent.seq());
            return Err(Break::new(Kind::DischargedTwice, message));
        }
        Ok(())
    }

    fn check_once(&self, digest: &Digest) -> Result<(), Break> {
        if digest.key.is_some_and(|key| self.keys.contains(&key)) {
            let message = format!(
                "the same {} of this task, worker and lease stands in the ledger already",
                digest.receipt_type.as_str()
            );
            return Err(Break::new(Kind::Repeated, message));
        }
        Ok(())
    }

    fn check_signed(&self, digest: &Digest) -> Result<(), Break> {
        let Some((signed, _)) = digest.signed.filter(|(signed, _)| *signed != self.head) else {
            return Ok(());
        };
        let (what, said, was) = difference(&signed, &self.head);
        let message = format!("the signed head has {what} {said}, but the ledger had {was} there");
        Err(Break::new(Kind::SignedHead, message))
    }

    fn take(&mut self, digest: &Digest) {
        for parent in &digest.parents {
            let place = index(parent.seq());
            let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
                continue;
            };
            // The checks before accept only open obligations; the test makes the count independent of them.
            if can_terminate(digest.receipt_type, entry.receipt_type) && !entry.discharged {
                entry.discharged = true;
                self.head.open_obligations = self.head.open_obligations.saturating_sub(1);
            }
        }
        if opens_obligation(digest.receipt_type) {
            self.head.open_obligations += 1;
            self.tasks += 1;
        }
        let gives_lease = digest.receipt_type == ReceiptType::TaskAccepted;
        // Entries stand in the order of places without gaps, so a place is an index.
        self.entries.push(Entry {
            id: digest.id,
            receipt_type: digest.receipt_type,
            task_id: digest.task_id,
            lease_id: digest.lease_id.filter(|_| gives_lease),
            discharged: false,
        });
        self.keys.extend(digest.key);
        if let Some((signed, key)) = &digest.signed {
            count(&mut self.signed_by, *key, signed.seq);
        }
        self.first_at.get_or_insert(digest.created_at);
        self.last_at = Some(digest.created_at);
        // The claimed link: `check_place` has found it equal to the right one.
        self.head.seq = digest.seq;
        self.head.link = digest.claimed;
    }

    fn entry(&self, seq: Seq) -> Option<&Entry> {
        self.entries.get(index(seq)?)
    }

    fn check_head(&self, record: &LedgerHead) -> Result<Option<PublicKey>, Break> {
        if record.tenant_id != self.tenant.to_string() {
            let message = format!(
                "the head is of tenant {:?}, but the ledger is that of {}",
                record.tenant_id, self.tenant
            );
            return Err(Break::new(Kind::Tenant, message));
        }
        let stated = seal::stated(record)?;
        if stated != self.head {
            let (what, said, is) = difference(&stated, &self.head);
            // The first difference names the kind; the others follow from it.
            let kind = if stated.seq != self.head.seq {
                Kind::HeadSeq
            } else if stated.link != self.head.link {
                Kind::HeadLink
            } else {
                Kind::HeadOpenObligations
            };
            let message = format!("the head has {what} {said}, but the receipts come to {is}");
            return Err(Break::new(kind, message));
        }
        seal::signer(self.tenant, &stated, record)
    }

    fn check_trust(&self, key: Option<PublicKey>) -> Result<(), Break> {
        match (self.expectations.public_key, key) {
            (Some(trusted), Some(key)) if trusted != key => {
                let message = format!("the head is signed with {key}, not with {trusted}");
                Err(Break::new(Kind::UntrustedKey, message))
            }
            (Some(trusted), None) => {
                let message = format!("the head is not signed, but must be with {trusted}");
                Err(Break::new(Kind::Unsigned, message))
            }
            (Some(_), Some(_)) | (None, _) => Ok(()),
        }
    }

    fn check_known_at_the_end(&self, known: KnownHead) -> Result<(), Break> {
        if known.seq > self.head.seq {
            let message = format!(
                "the ledger ends at {}, but it went on to {} when its head was known",
                self.head.seq, known.seq
            );
            return Err(Break::new(Kind::KnownHead, message));
        }
        // A head at 0 has no receipt at which `check_place` could compare it.
        if known.seq == 0 && known.link != Link::START {
            return Err(other_ledger(known, Link::START));
        }
        Ok(())
    }

    fn report(mut self, record: &LedgerHead, key: Option<PublicKey>) -> Report {
        if let Some(key) = key {
            count(&mut self.signed_by, key, self.head.seq);
        }
        Report {
            tenant_id: self.tenant.to_string(),
            receipts: self.head.seq,
            link: self.head.link.to_string(),
            tasks: self.tasks,
            open_obligations: self.head.open_obligations,
            signatures: self.signed_by.iter().map(|used| used.signatures).sum(),
            signed_by: key.map(|key| key.to_string()),
            signed_at: record.signed_at.clone(),
            keys: self.signed_by,
            first_at: self.first_at.map(|at| at.to_string()),
            last_at: self.last_at.map(|at| at.to_string()),
        }
    }
}

fn index(seq: Seq) -> Option<usize> {
    usize::try_from(seq.checked_sub(1)?).ok()
}

fn other_ledger(known: KnownHead, link: Link) -> Break {
    let message = format!(
        "this is another ledger than the known one: at {} its link is {link}, but it was {}",
        known.seq, known.link
    );
    Break::new(Kind::KnownHead, message)
}

/// Returns the first value in which two heads differ: its name, and both values.
fn difference(said: &Head, is: &Head) -> (&'static str, String, String) {
    if said.seq != is.seq {
        return ("seq", said.seq.to_string(), is.seq.to_string());
    }
    if said.link != is.link {
        return ("link", said.link.to_string(), is.link.to_string());
    }
    (
        "open_obligations",
        said.open_obligations.to_string(),
        is.open_obligations.to_string(),
    )
}

fn count(uses: &mut Vec<KeyUse>, key: PublicKey, seq: Seq) {
    let public_key = key.to_string();
    match uses.iter_mut().find(|used| used.public_key == public_key) {
        Some(used) => {
            used.last_seq = seq;
            used.signatures += 1;
        }
        None => uses.push(KeyUse {
            public_key,
            first_seq: seq,
            last_seq: seq,
            signatures: 1,
        }),
    }
}
