//! Writing a ledger to a file: a header, its receipts, its signed head, one JSON object a line.
//!
//! Invariants: the receipts stand in the file from the first one on without gaps, the head is that of
//! the last one, and no line contains a line break.

use std::io::{self, Write};

use asyncgate_api::{LedgerHead, ReceiptRecord};
use serde::{Deserialize, Serialize};

/// The name of the format in the first line.
pub const FORMAT: &str = "asyncgate.ledger";
/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// The first line of an export. It is not signed: its tenant is compared, and who exported and when is only read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The tenant of the ledger.
    pub tenant_id: String,
    /// The time of the export.
    pub exported_at: String,
    /// The program that wrote the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported_by: Option<String>,
}

/// The reasons why an export cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file could not be written.
    #[error("cannot write the export")]
    Write(#[from] io::Error),
    /// A receipt or the head belongs to another tenant.
    #[error("the export is of tenant {expected}, but this is of tenant {found}")]
    Tenant {
        /// The export's tenant.
        expected: String,
        /// The tenant of the given receipt or head.
        found: String,
    },
    /// A receipt does not stand at the next place.
    #[error("the next receipt must be {expected}, not {found}")]
    Gap {
        /// The next place.
        expected: u64,
        /// The place of the given receipt.
        found: u64,
    },
    /// The head is not that of the last receipt written.
    #[error("the head is of receipt {head}, but the last one written is {written}")]
    Head {
        /// The head's place.
        head: u64,
        /// The last receipt's place.
        written: u64,
    },
}

/// An export that is being written. Without [`Export::finish`] the file is cut short, and every
/// reader refuses it.
#[derive(Debug)]
pub struct Export<W> {
    out: W,
    tenant_id: String,
    written: u64,
    buffer: Vec<u8>,
}

impl<W: Write> Export<W> {
    /// Writes the header. `out` should be buffered.
    pub fn begin(
        out: W,
        tenant_id: &str,
        exported_at: &str,
        exported_by: Option<&str>,
    ) -> Result<Self, ExportError> {
        let mut export = Self {
            out,
            tenant_id: tenant_id.to_owned(),
            written: 0,
            buffer: Vec::new(),
        };
        export.line(&Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            tenant_id: tenant_id.to_owned(),
            exported_at: exported_at.to_owned(),
            exported_by: exported_by.map(str::to_owned),
        })?;
        Ok(export)
    }

    /// Writes the next receipt. The time of its delivery is left out: it is no part of the statement.
    pub fn receipt(&mut self, record: &ReceiptRecord) -> Result<(), ExportError> {
        self.check_tenant(&record.tenant_id)?;
        let (expected, found) = (self.written + 1, record.seq);
        if expected != found {
            return Err(ExportError::Gap { expected, found });
        }
        // Copied only then: most receipts were never delivered by bootstrap.
        if record.delivered_at.is_some() {
            let delivered_at = None;
            self.line(&ReceiptRecord {
                delivered_at,
                ..record.clone()
            })?;
        } else {
            self.line(record)?;
        }
        self.written = found;
        Ok(())
    }

    /// Returns the place of the last receipt written.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Writes the signed head, flushes, and returns the writer.
    pub fn finish(mut self, head: &LedgerHead) -> Result<W, ExportError> {
        self.check_tenant(&head.tenant_id)?;
        let (head_seq, written) = (head.seq, self.written);
        if head_seq != written {
            let head = head_seq;
            return Err(ExportError::Head { head, written });
        }
        self.line(head)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn check_tenant(&self, found: &str) -> Result<(), ExportError> {
        if self.tenant_id == found {
            return Ok(());
        }
        Err(ExportError::Tenant {
            expected: self.tenant_id.clone(),
            found: found.to_owned(),
        })
    }

    /// Writes a value on one line. Bodies keep their senders' text and may have line breaks between
    /// values; JSON has none inside a value, so each can be replaced by a space.
    fn line(&mut self, value: &impl Serialize) -> Result<(), ExportError> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, value).map_err(io::Error::from)?;
        for byte in &mut self.buffer {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        self.buffer.push(b'\n');
        self.out.write_all(&self.buffer)?;
        Ok(())
    }
}
