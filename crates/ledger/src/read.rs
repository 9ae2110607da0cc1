//! Reading an export from its beginning to its end, without verifying it.

use std::{collections::VecDeque, io::Read};

use asyncgate_api::{LedgerHead, ReceiptRecord};

use crate::{
    Failure, Header,
    blocks::{self, Blocks, lines},
    file::{after_the_head, no_head, place},
    line::Parsed,
};

/// A line of an export after the header.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A receipt.
    Receipt(Box<ReceiptRecord>),
    /// The signed head, which is the last line.
    Head(Box<LedgerHead>),
}

/// Returns the lines of an export one by one. A file that was cut short ends with an error. The
/// reader does not check if the receipts are true; a [`Verifier`](crate::Verifier) does.
#[derive(Debug)]
pub struct Reader<R> {
    blocks: Blocks<R>,
    header: Header,
    ready: VecDeque<Vec<u8>>,
    line: u64,
    state: State,
}

#[derive(Debug, PartialEq)]
enum State {
    Reading,
    HeadSeen,
    Ended,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn open(source: R) -> Result<Self, Failure> {
        let mut blocks = Blocks::new(source);
        let (header, rest) = blocks::header(&mut blocks)?;
        Ok(Self {
            blocks,
            header,
            ready: lines(&rest).map(<[u8]>::to_vec).collect(),
            line: 1,
            state: State::Reading,
        })
    }

    /// Returns the header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of the last line that was returned.
    pub const fn line(&self) -> u64 {
        self.line
    }

    fn entry(&mut self) -> Result<Option<Entry>, Failure> {
        while self.ready.is_empty() {
            let Some(block) = self
                .blocks
                .next()
                .map_err(|failure| place(failure, self.line + 1))?
            else {
                return match self.state {
                    State::HeadSeen => Ok(None),
                    State::Reading | State::Ended => Err(no_head().on_line(self.line).into()),
                };
            };
            self.ready.extend(lines(&block).map(<[u8]>::to_vec));
        }
        let Some(line) = self.ready.pop_front() else {
            return Ok(None);
        };
        self.line += 1;
        if self.state == State::HeadSeen {
            return Err(after_the_head().on_line(self.line).into());
        }
        match Parsed::parse(&line).map_err(|found| found.on_line(self.line))? {
            Parsed::Receipt(line) => {
                let record = line
                    .to_record()
                    .map_err(|found| found.in_receipt(line.seq).on_line(self.line))?;
                Ok(Some(Entry::Receipt(Box::new(record))))
            }
            Parsed::Head(head) => {
                self.state = State::HeadSeen;
                Ok(Some(Entry::Head(Box::new(head))))
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }
        let entry = self.entry().transpose();
        // After an error the place in the file is uncertain, so nothing more is returned.
        if !matches!(entry, Some(Ok(_))) {
            self.state = State::Ended;
        }
        entry
    }
}
