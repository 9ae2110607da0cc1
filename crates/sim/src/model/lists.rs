//! Checking lists against the history: complete, in order, and nobody else's.

use asyncgate_api::{
    BootstrapOutput, LedgerHead, ListOpenObligationsOutput, ListTasksOutput, ReceiptPage,
    ReceiptRecord, RelationshipRecord,
};
use asyncgate_core::{LeaseId, Link, Principal, Receipt, ReceiptType, Seq, task::Status};
use asyncgate_engine::Role;

use super::{Gains, Model, answers::Answered, oracle::Question, times::shows};
use crate::{
    cast::tenant_id,
    step::Op,
    violation::{Checked, broken, hold},
};

// Pages are small, so that lists have several of them.
/// The page size when none is asked for.
pub const DEFAULT_LIMIT: u32 = 3;
/// The largest page.
pub const MAX_LIMIT: u32 = 8;

impl Model {
    pub(super) fn listed_tasks(&self, answered: &Answered<'_>) -> Checked {
        let output: ListTasksOutput = answered.read()?;
        let Question { actor, asked, .. } = answered.question;
        let admin = actor.caller.role == Role::Admin;
        let everyone = admin && !asked.has("principal_id");
        let principal = answered.question.principal();
        let before = asked.parsed("cursor");
        let before = before.map(|id: asyncgate_core::TaskId| id.seq());
        let task_type = asked.text("type");
        let wanted = asked.text("status").and_then(Status::parse);
        let tenant = &self.tenants[actor.tenant];
        let expected = tenant.tasks.values().rev().map(|story| &story.task);
        let expected = expected.filter(|task| {
            let own = principal.as_ref().is_ok_and(|p| p.is(&task.created_by));
            (everyone || own)
                && wanted.is_none_or(|status| status == task.status())
                && task_type.is_none_or(|wanted| wanted == task.spec.task_type)
                && before.is_none_or(|before| task.id.seq() < before)
        });
        let limit = limit(asked.number("limit"));
        let mut expected = expected;
        let page: Vec<_> = expected.by_ref().take(limit).collect();
        let more = expected.next().is_some();
        hold(
            page.len() == output.tasks.len() && more == output.next_cursor.is_some(),
            "lists are complete",
            || format!("{} tasks, should be {}", output.tasks.len(), page.len()),
        )?;
        for (record, task) in output.tasks.iter().zip(page) {
            self.check_record(record, task)?;
        }
        Ok(())
    }

    pub(super) fn listed_obligations(&self, answered: &Answered<'_>, gains: &mut Gains) -> Checked {
        let output: ListOpenObligationsOutput = answered.read()?;
        let Question { actor, asked, .. } = answered.question;
        let Ok(principal) = answered.question.principal() else {
            return broken("authorisation", "obligations of another");
        };
        let assigned = |record: &ReceiptRecord| record.receipt_type == "task.assigned";
        let own = output
            .open_obligations
            .iter()
            .all(|record| assigned(record) && record.to.id == *principal.id);
        hold(own, "obligations are assignments", || {
            principal.id.as_ref().to_owned()
        })?;
        if answered.exact {
            let party = self.tenants[actor.tenant].party(principal.kind, &principal.id);
            let open = party.into_iter().flat_map(|party| &party.open);
            let seqs: Vec<Seq> = open.copied().collect();
            let after = self.place(actor.tenant, asked.text("since_receipt_id"));
            self.check_page(
                actor.tenant,
                &output.open_obligations,
                &page(&seqs, after, limit(asked.number("limit"))),
            )?;
            self.check_known(actor.tenant, &principal, &output.relationship)?;
        }
        gain(&output.open_obligations, gains);
        Ok(())
    }

    pub(super) fn listed_bootstrap(&self, answered: &Answered<'_>, gains: &mut Gains) -> Checked {
        let output: BootstrapOutput = answered.read()?;
        let Question { actor, asked, .. } = answered.question;
        let Ok(principal) = answered.question.principal() else {
            return broken("authorisation", "inbox of another");
        };
        let records = &output.attention.inbox_receipts;
        if answered.exact {
            let tenant = &self.tenants[actor.tenant];
            let seqs = tenant.inbox(&principal);
            let most = limit(asked.number("max_items"));
            // Without a place, the newest ones are given.
            let expected = match asked.text("since_receipt_id") {
                Some(since) => page(seqs, self.place(actor.tenant, Some(since)), most),
                None => seqs[seqs.len().saturating_sub(most)..].to_vec(),
            };
            self.check_page(actor.tenant, records, &expected)?;
            for record in records {
                let (at, shown) = (tenant.delivered.get(&record.seq), &record.delivered_at);
                let told = at.zip(shown.as_deref());
                hold(
                    told.is_some_and(|(at, shown)| shows(shown, *at)),
                    "first delivery",
                    || format!("{} at {shown:?}, should be {at:?}", record.seq),
                )?;
            }
            self.check_known(actor.tenant, &principal, &output.relationship)?;
        }
        gain(records, gains);
        Ok(())
    }

    pub(super) fn listed_receipts(&self, answered: &Answered<'_>, gains: &mut Gains) -> Checked {
        let output: ReceiptPage = answered.read()?;
        let Question {
            actor, asked, op, ..
        } = answered.question;
        let tenant = &self.tenants[actor.tenant];
        let after = self.place(actor.tenant, asked.text("since_receipt_id"));
        let inbox = answered.question.principal();
        let inbox = inbox.map_or(&[][..], |principal| tenant.inbox(&principal));
        let task = asked
            .text("task_id")
            .and_then(|id| self.task(actor.tenant, id));
        let kind = asked.text("receipt_type").and_then(ReceiptType::parse);
        let lease: Option<LeaseId> = asked.parsed("lease_id");
        let under_lease = |receipt: &Receipt| {
            !asked.has("lease_id") || (lease.is_some() && receipt.lease_id == lease)
        };
        let seqs: Vec<Seq> = if op == Op::INBOX {
            inbox.to_vec()
        } else if asked.has("task_id") {
            task.map(|story| story.receipts.clone()).unwrap_or_default()
        } else {
            // The receipts under a lease are looked for among those of its task, from the acceptance on.
            let accepted = tenant.ledger.iter().find(|receipt| under_lease(receipt));
            let of = tenant.ledger.iter().filter(|receipt| {
                kind.is_none_or(|kind| receipt.receipt_type == kind)
                    && (!asked.has("lease_id")
                        || accepted.is_some_and(|accepted| {
                            receipt.task_id == accepted.task_id && receipt.seq() >= accepted.seq()
                        }))
            });
            of.map(|receipt| receipt.seq()).collect()
        };
        let mut expected = page(&seqs, after, limit(asked.number("limit")));
        expected.retain(|seq| under_lease(&tenant.ledger[*seq as usize - 1]));
        let reads = task.is_some_and(|story| answered.question.may_read(&story.task).is_ok());
        if op == Op::LEDGER && actor.caller.role != Role::Admin && !reads {
            expected.retain(|seq| {
                let receipt = &tenant.ledger[*seq as usize - 1];
                let me = &actor.caller.principal;
                receipt.to.is(me) || receipt.from.is(me)
            });
        }
        self.check_page(actor.tenant, &output.receipts, &expected)?;
        gain(&output.receipts, gains);
        Ok(())
    }

    pub(super) fn read_receipt(&self, answered: &Answered<'_>) -> Checked {
        let output: ReceiptRecord = answered.read()?;
        let tenant = answered.question.actor.tenant;
        self.check_page(tenant, std::slice::from_ref(&output), &[output.seq])
    }

    pub(super) fn read_head(&self, answered: &Answered<'_>) -> Checked {
        let output: LedgerHead = answered.read()?;
        let tenant = &self.tenants[answered.question.actor.tenant];
        let same = output.seq == tenant.ledger.len() as Seq
            && output.open_obligations == tenant.open_count() as u64
            && output.link.parse::<Link>().is_ok()
            && output.tenant_id == tenant_id(answered.question.actor.tenant).to_string()
            && output.signature.is_some();
        hold(same, "truthful observability", || format!("{output:?}"))
    }

    /// Checks that a page has exactly these receipts, unchanged.
    fn check_page(&self, number: usize, records: &[ReceiptRecord], expected: &[Seq]) -> Checked {
        let seqs = || records.iter().map(|record| record.seq);
        hold(
            seqs().eq(expected.iter().copied()),
            "lists are complete",
            || format!("{:?}, should be {expected:?}", seqs().collect::<Vec<_>>()),
        )?;
        let tenant = tenant_id(number).to_string();
        for record in records {
            let found = self.receipt(number, &record.receipt_id);
            let same = found.is_some_and(|receipt| {
                record.receipt_type == receipt.receipt_type.as_str()
                    && record.body.get() == receipt.body.text()
                    && record.parents.len() == receipt.parents.len()
                    && record.to.id == *receipt.to.id
                    && record.from.id == *receipt.from.id
                    && record.tenant_id == tenant
            });
            hold(same, "receipts immutable", || record.receipt_id.clone())?;
        }
        Ok(())
    }

    fn check_known(
        &self,
        number: usize,
        principal: &Principal,
        record: &RelationshipRecord,
    ) -> Checked {
        let party = self.tenants[number].party(principal.kind, &principal.id);
        let known = party.and_then(|party| party.known.as_ref());
        let same = known.is_some_and(|known| {
            shows(&record.first_seen_at, known.first_seen_at)
                && record.sessions_count == known.sessions_count
        });
        hold(same, "relationship", || format!("{record:?}"))
    }

    fn place(&self, number: usize, since: Option<&str>) -> Seq {
        let receipt = since.and_then(|id| self.receipt(number, id));
        receipt.map_or(0, |receipt| receipt.seq())
    }
}

pub(super) fn limit(asked: Option<usize>) -> usize {
    asked
        .unwrap_or(DEFAULT_LIMIT as usize)
        .min(MAX_LIMIT as usize)
}

fn page(seqs: &[Seq], after: Seq, limit: usize) -> Vec<Seq> {
    let start = seqs.partition_point(|seq| *seq <= after);
    seqs[start..].iter().copied().take(limit).collect()
}

fn gain(records: &[ReceiptRecord], gains: &mut Gains) {
    gains
        .receipts
        .extend(records.iter().map(|record| record.receipt_id.clone()));
}
