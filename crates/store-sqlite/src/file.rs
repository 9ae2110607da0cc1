//! A database file to look at, also while a server writes to it.

use std::path::Path;

use asyncgate_core::{Head, TenantId};
use asyncgate_store::{DeliveredReceipt, Error, ReceiptFilter, SeqPage};

use crate::{OpenError, query, reader::Readers};

/// A file that is only read. It needs no lock: readers see snapshots.
#[derive(Debug)]
pub struct SqliteFile {
    readers: Readers,
}

impl SqliteFile {
    /// Opens a file that must exist.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            readers: Readers::start(path, 1)?,
        })
    }

    /// Every tenant that has rows.
    pub async fn tenants(&self) -> Result<Vec<TenantId>, Error> {
        self.readers.run(query::tenants).await
    }

    /// Where a tenant's ledger ends, and how many obligations the index holds.
    pub async fn head(&self, tenant: TenantId) -> Result<(Head, u64), Error> {
        self.readers
            .run(move |db| match db.tenant(tenant)? {
                Some(tenant) => query::head_and_index(db, tenant),
                None => Ok((Head::default(), 0)),
            })
            .await
    }

    /// A page of a tenant's ledger.
    pub async fn receipts(
        &self,
        tenant: TenantId,
        page: SeqPage,
    ) -> Result<Vec<DeliveredReceipt>, Error> {
        self.readers
            .run(move |db| match db.tenant(tenant)? {
                Some(tenant) => query::receipts(db, tenant, &ReceiptFilter::All, page),
                None => Ok(Vec::new()),
            })
            .await
    }
}
