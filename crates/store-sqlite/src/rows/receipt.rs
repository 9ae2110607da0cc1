//! The rows of receipts.

use asyncgate_core::{Link, Receipt, ReceiptId, ReceiptType, TaskId};
use asyncgate_store::DeliveredReceipt;
use rusqlite::{OptionalExtension, Result, Row, params};

use crate::{
    codec::{self, Columns, Key},
    db::Db,
};

const INSERT: &str = "
    INSERT INTO receipt (receipt, receipt_id, type, created_at, sender, addressee,
                         addressee_instance, task, task_id, lease_id, parents, body, instance, link)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

/// Selects the columns that [`read`] expects, with the delivery mark.
const SELECT: &str = "
    SELECT r.receipt_id, r.type, r.created_at, r.sender, r.addressee, r.addressee_instance,
           r.task_id, r.lease_id, r.parents, r.body, r.instance, r.link, d.at
    FROM receipt r LEFT JOIN delivery d ON d.receipt = r.receipt WHERE r.receipt = ?1";

pub(crate) fn insert(db: &mut Db, tenant: i64, receipt: &Receipt, link: &Link) -> Result<()> {
    let instance = db.intern_instance(&receipt.instance)?;
    db.conn.prepare_cached(INSERT)?.execute(params![
        Key::new(tenant, receipt.seq()).0,
        receipt.id.as_bytes(),
        receipt.receipt_type as i64,
        receipt.created_at.as_millis(),
        codec::principal(&receipt.from),
        codec::principal_key(&receipt.to.key()),
        receipt.to.instance_id,
        receipt.task_id.map(|id| Key::new(tenant, id.seq()).0),
        receipt.task_id.as_ref().map(|id| id.as_bytes()),
        receipt.lease_id.as_ref().map(|id| id.as_bytes()),
        codec::receipt_ids(&receipt.parents),
        receipt.body.text(),
        instance,
        link.as_bytes(),
    ])?;
    Ok(())
}

/// Returns the receipt with this id, if there is one.
pub(crate) fn find(db: &mut Db, tenant: i64, id: ReceiptId) -> Result<Option<DeliveredReceipt>> {
    let at_place = load(db, &[Key::new(tenant, id.seq())])?;
    Ok(at_place.into_iter().find(|found| found.receipt.id == id))
}

/// Returns the receipts with these keys, in this order. Those that do not exist are left out.
pub(crate) fn load(db: &mut Db, keys: &[Key]) -> Result<Vec<DeliveredReceipt>> {
    let mut select = db.conn.prepare_cached(SELECT)?;
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        rows.extend(select.query_row([key.0], read).optional()?);
    }
    drop(select);
    rows.into_iter()
        .map(|(receipt, instance)| with_instance(db, receipt, instance))
        .collect()
}

fn with_instance(
    db: &mut Db,
    mut found: DeliveredReceipt,
    instance: i64,
) -> Result<DeliveredReceipt> {
    found.receipt.instance = db.instance(instance)?;
    Ok(found)
}

/// Reads a receipt without its instance, and the instance's number.
fn read(row: &Row<'_>) -> Result<(DeliveredReceipt, i64)> {
    let mut columns = Columns::of(row);
    let c = &mut columns;
    let id = c.receipt_id()?;
    let number: u8 = c.get()?;
    let receipt_type = c.must(ReceiptType::ALL.get(usize::from(number)).copied())?;
    let (created_at, from, mut to) = (c.time()?, c.principal()?, c.principal()?);
    to.instance_id = c.get()?;
    let receipt = Receipt {
        id,
        receipt_type,
        created_at,
        from,
        to,
        task_id: c.get::<Option<[u8; 16]>>()?.map(TaskId::from_bytes),
        lease_id: c.lease_id()?,
        parents: c.receipt_ids()?,
        body: {
            let body = c.json()?;
            c.must(body)?
        },
        instance: "".into(),
    };
    let instance = c.get()?;
    let link = Link::from_bytes(c.get()?);
    let delivered_at = c.some_time()?;
    let found = DeliveredReceipt {
        receipt,
        link,
        delivered_at,
    };
    Ok((found, instance))
}
