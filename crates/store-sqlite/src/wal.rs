//! The write-ahead log, read before SQLite reads it.
//!
//! SQLite takes the first frame whose checksum is wrong for the end of the log. That is right after a
//! crash, and wrong for a byte that went bad later: every commit behind it would be gone without a
//! word. The two can be told apart, because a commit is synced before the next one is written
//! (`durable.rs`):
//!
//! - A crash spoils frames of the last transaction only. They may be there, missing, torn or out of
//!   order, and nothing was ever written behind their commit frame.
//! - So if a frame was written behind a commit frame, that commit was on disk, and all before it.
//!   If a checksum up to there is wrong, the log was damaged afterwards.
//!
//! The checksum of a frame shows that it was written behind another one: it continues the checksum
//! of the frame before, back to the header. Leftovers do not count: frames of an earlier use of the
//! file have other salts, and those of a failed commit continue frames that were overwritten.
//!
//! In this file a frame or header "checks" if its checksum is right.
//!
//! The format: <https://sqlite.org/fileformat2.html#walformat>.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The magic number without its last bit, which is the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;
/// The size of pages if no header states it: SQLite's default, which we never change.
const PAGE_BYTES: u32 = 4_096;

/// The reason why a log must not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Commits stand behind a frame that went bad.
    #[error(
        "{} is damaged at frame {frame}: {commits} or more commits from there on were on disk, and \
         would be dropped. Restore the data directory from a copy. Or, to go on without these \
         commits: keep a copy, cut the log off (truncate -s {cut} {}), and see what is left with \
         `asyncgate verify --data-dir`",
        log.display(), log.display()
    )]
    Frame {
        /// The file.
        log: PathBuf,
        /// The frame that does not check, counted from 1.
        frame: u64,
        /// The number of commits that can be seen from there on.
        commits: u64,
        /// The length of the part of the log that checks.
        cut: u64,
    },
    /// Commits stand behind a header that went bad.
    #[error(
        "the header of {} is damaged: the {commits} commits in it were on disk, and would be dropped. \
         Restore the data directory from a copy. Or, to go on without these commits: move the log \
         away, and see what is left with `asyncgate verify --data-dir`",
        log.display()
    )]
    Header {
        /// The file.
        log: PathBuf,
        /// The number of commits that can be seen.
        commits: u64,
    },
    /// The operating system refused.
    #[error("cannot read {}", log.display())]
    Read {
        /// The file.
        log: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Checks the log of the database at `path` before it is opened for writing, and syncs it: a killed
/// process leaves commits that nobody synced, and from here on callers may be told of them. Returns
/// the frame at which the log is cut off, if it is.
pub(crate) fn settle(path: &Path) -> Result<Option<u64>, LogError> {
    let cut_off = check(path)?;
    let log = name_of_log(path);
    match sync(&log) {
        Ok(()) => Ok(cut_off),
        Err(source) => Err(LogError::Read { log, source }),
    }
}

/// Checks the log of the database at `path`. Returns the frame at which it is cut off, if it is.
pub(crate) fn check(path: &Path) -> Result<Option<u64>, LogError> {
    let log = name_of_log(path);
    let found = open(&log).and_then(|file| match file {
        Some(file) => state(file, open(path)?),
        None => Ok(State::Whole),
    });
    match found {
        Ok(State::Whole) => Ok(None),
        Ok(State::CutOff { frame }) => Ok(Some(frame)),
        Ok(State::Damaged {
            frame,
            commits,
            cut,
        }) => Err(LogError::Frame {
            log,
            frame,
            commits,
            cut,
        }),
        Ok(State::HeaderDamaged { commits }) => Err(LogError::Header { log, commits }),
        Err(source) => Err(LogError::Read { log, source }),
    }
}

/// Checks the log of a database that a server may be writing to.
pub(crate) fn check_beside_a_writer(path: &Path) -> Result<(), LogError> {
    let mut before = None;
    loop {
        let Err(found) = check(path) else {
            return Ok(());
        };
        // A frame that is just being written looks damaged. If the same place looks so twice in a
        // row, nobody is writing it.
        let place = match &found {
            LogError::Frame { frame, .. } => Some(*frame),
            LogError::Header { .. } => Some(0),
            LogError::Read { .. } => None,
        };
        if place.is_none() || place == before {
            return Err(found);
        }
        before = place;
    }
}

/// Opens the log of an open database, to sync it.
pub(crate) fn open_to_sync(path: &Path) -> Result<File, LogError> {
    let log = name_of_log(path);
    let opened = File::options().read(true).write(true).open(&log);
    opened.map_err(|source| LogError::Read { log, source })
}

fn name_of_log(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push("-wal");
    name.into()
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Syncs the log and its directory entry: SQLite syncs the directory only if it made the log itself.
fn sync(log: &Path) -> io::Result<()> {
    let Some(file) = open(log)? else {
        return Ok(());
    };
    file.sync_all()?;
    let dir = log.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

/// The state of a log.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Nothing is lost.
    Whole,
    /// The last transaction is not whole, which is normal after a crash.
    CutOff { frame: u64 },
    /// Commits are lost from this frame on.
    Damaged { frame: u64, commits: u64, cut: u64 },
    /// All commits are lost.
    HeaderDamaged { commits: u64 },
}

/// Returns the state of a log. `main` is the file that the log belongs to, if it exists.
fn state(log: impl Read + Seek, mut main: Option<impl Read + Seek>) -> io::Result<State> {
    let mut log = BufReader::with_capacity(1 << 16, log);
    let mut header = [0; HEADER_BYTES as usize];
    match log.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(State::Whole),
        Err(error) => return Err(error),
    }
    match Start::read(&header) {
        Some(start) => behind_header(
            &start,
            Frames::new(log, start.order, start.page_bytes),
            main,
        ),
        None => {
            // A log is read on the machine that wrote it, or on one like it.
            let page_bytes = page_bytes_of(main.as_mut())?;
            behind_bad_header(Frames::new(log, Order::NATIVE, page_bytes), main)
        }
    }
}

/// Returns the size of the pages of a database.
fn page_bytes_of(main: Option<&mut (impl Read + Seek)>) -> io::Result<u32> {
    let mut header = [0; 18];
    let read = main.map_or(Ok(()), |main| main.read_exact(&mut header));
    match read {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let stated = u32::from(u16::from_be_bytes([header[16], header[17]]));
    Ok(match stated {
        // The largest size does not fit into its two bytes.
        1 => 65_536,
        _ if is_page_size(stated) => stated,
        _ => PAGE_BYTES,
    })
}

const fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && bytes >= 512 && bytes <= 65_536
}

/// The contents of a good header.
struct Start {
    order: Order,
    page_bytes: u32,
    salts: [u8; 8],
    sum: Sum,
}

impl Start {
    fn read(header: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let order = match word(header, 0) ^ MAGIC {
            0 => Order::Little,
            1 => Order::Big,
            _ => return None,
        };
        let start = Self {
            order,
            page_bytes: Some(word(header, 8)).filter(|bytes| is_page_size(*bytes))?,
            salts: header[16..].first_chunk().copied()?,
            sum: Sum(word(header, 24), word(header, 28)),
        };
        (order.sum(Sum(0, 0), &header[..24]) == start.sum).then_some(start)
    }
}

/// The facts about a frame that the next frame is judged by.
#[derive(Clone, Copy)]
struct Before {
    /// The checksum that is stored in it, and the one that it should have. A frame that continues
    /// either of them was written behind it.
    sums: [Sum; 2],
    checks: bool,
    /// True if it is the commit frame of a transaction of this log.
    commits: bool,
}

fn behind_header<R: Read + Seek>(
    start: &Start,
    mut frames: Frames<R>,
    main: Option<impl Read + Seek>,
) -> io::Result<State> {
    let order = frames.order;
    let mut before = Before {
        sums: [start.sum; 2],
        checks: true,
        commits: false,
    };
    // Up to `good` everything checks and is committed. `bad` is the first frame that does not check.
    let (mut good, mut bad) = (0, None);
    let (mut commits_after, mut damaged) = (0, false);
    // The frames of the last transaction that check, and whether its commit frame is among them.
    let (mut left, mut ends) = (Vec::new(), false);
    let mut last_of_log = 0;
    while let Some(frame) = frames.next()? {
        let ours = frame.salts() == start.salts;
        let expected = frame.sum(order, before.sums[0], frame.mark());
        let checks = frame.page() != 0
            && (frame.stored() == expected
                || before.sums[0] != before.sums[1]
                    && frame.stored() == frame.sum(order, before.sums[1], frame.mark()));
        let marked = frame.mark() != 0 || (ours && !checks && lost_its_mark(&frame, order, before));
        // The first half of a frame header may lie in the sector of the frame before it, and a torn
        // write may leave an old mark there. So a mark is believed only if one of the two checks.
        let commits = marked && (checks || (ours && before.checks));
        if bad.is_none() && !(ours && checks) {
            bad = Some(frame.number);
        }
        if bad.is_none() && commits {
            good = frame.number;
        }
        if bad.is_some() && ours {
            damaged |= checks && before.commits;
            commits_after += u64::from(commits);
            if checks {
                left.push((frame.page(), frame.at));
                ends = commits;
            }
        }
        if ours {
            last_of_log = frame.number;
        }
        before = Before {
            sums: [frame.stored(), expected],
            checks,
            commits,
        };
    }
    if last_of_log == good {
        return Ok(State::Whole);
    }
    // A checkpoint syncs the log before it copies pages. So if the main file has these pages, their
    // commit was on disk.
    if damaged || ends && frames.are_in(main, left)? {
        return Ok(State::Damaged {
            frame: bad.unwrap_or(good + 1),
            commits: commits_after,
            cut: frames.end_of(good),
        });
    }
    Ok(State::CutOff { frame: good + 1 })
}

/// Returns true if the frame would check with one bit of a mark: a single flipped bit can make a commit
/// frame look like any other.
fn lost_its_mark(frame: &Frame<'_>, order: Order, before: Before) -> bool {
    let bits = (0..u32::BITS).map(|bit| 1 << bit);
    let mut sums = bits.map(|mark| frame.sum(order, before.sums[0], mark));
    sums.any(|sum| sum == frame.stored())
}

/// Judges a log whose header does not check. SQLite ignores such a log. That is right if the header was
/// just being replaced, to use the file anew: then everything in the log is in the main file too.
fn behind_bad_header<R: Read + Seek>(
    mut frames: Frames<R>,
    main: Option<impl Read + Seek>,
) -> io::Result<State> {
    let order = frames.order;
    let mut salts = None;
    let mut before = None;
    let (mut pages, mut pending) = (HashMap::new(), Vec::new());
    let mut commits = 0;
    while let Some(frame) = frames.next()? {
        let follows = before.is_some_and(|(sum, of, _)| {
            of == frame.salts()
                && frame.page() != 0
                && frame.stored() == frame.sum(order, sum, frame.mark())
        });
        if follows && salts.is_none() {
            salts = Some(frame.salts());
            pending.extend(before.map(|(_, _, place)| place));
        }
        let place = (frame.page(), frame.at);
        if follows && salts == Some(frame.salts()) {
            pending.push(place);
            if frame.mark() != 0 {
                pages.extend(pending.drain(..));
                commits += 1;
            }
        }
        before = Some((frame.stored(), frame.salts(), place));
    }
    if frames.are_in(main, pages)? {
        return Ok(State::Whole);
    }
    Ok(State::HeaderDamaged { commits })
}

/// The frames of a log, one after the other.
struct Frames<R> {
    log: BufReader<R>,
    order: Order,
    frame_bytes: usize,
    number: u64,
    bytes: Vec<u8>,
}

impl<R: Read + Seek> Frames<R> {
    /// Takes a reader that stands behind the header.
    fn new(log: BufReader<R>, order: Order, page_bytes: u32) -> Self {
        let frame_bytes = FRAME_HEADER_BYTES + page_bytes as usize;
        Self {
            log,
            order,
            frame_bytes,
            number: 0,
            bytes: vec![0; frame_bytes],
        }
    }

    fn next(&mut self) -> io::Result<Option<Frame<'_>>> {
        match self.log.read_exact(&mut self.bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        self.number += 1;
        Ok(Some(Frame {
            number: self.number,
            at: self.end_of(self.number - 1),
            bytes: &self.bytes,
        }))
    }

    /// Returns the length of a log whose last frame is this one.
    const fn end_of(&self, frame: u64) -> u64 {
        HEADER_BYTES + frame * self.frame_bytes as u64
    }

    /// Returns true if the main file has the pages of these frames, given as page and place in the log.
    fn are_in(
        &mut self,
        main: Option<impl Read + Seek>,
        pages: impl IntoIterator<Item = (u32, u64)>,
    ) -> io::Result<bool> {
        let mut pages = pages.into_iter().peekable();
        let Some(mut main) = main else {
            return Ok(pages.peek().is_none());
        };
        let page_bytes = self.frame_bytes - FRAME_HEADER_BYTES;
        let mut there = vec![0; page_bytes];
        for (page, at) in pages {
            self.log.seek(SeekFrom::Start(at))?;
            self.log.read_exact(&mut self.bytes)?;
            let at = u64::from(page.saturating_sub(1)) * page_bytes as u64;
            main.seek(SeekFrom::Start(at))?;
            match main.read_exact(&mut there) {
                Ok(()) if there == self.bytes[FRAME_HEADER_BYTES..] => {}
                Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
                Ok(()) | Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// A frame: one page as a transaction left it.
struct Frame<'a> {
    number: u64,
    /// Its place in the log, in bytes.
    at: u64,
    bytes: &'a [u8],
}

impl Frame<'_> {
    fn page(&self) -> u32 {
        word(self.bytes, 0)
    }

    /// Returns the size of the database in a commit frame, and 0 in all others.
    fn mark(&self) -> u32 {
        word(self.bytes, 4)
    }

    fn salts(&self) -> [u8; 8] {
        let mut salts = [0; 8];
        salts.copy_from_slice(&self.bytes[8..16]);
        salts
    }

    fn stored(&self) -> Sum {
        Sum(word(self.bytes, 16), word(self.bytes, 20))
    }

    /// Returns the checksum that it should have behind a frame with the checksum `before`, with this
    /// mark in place of its own.
    fn sum(&self, order: Order, before: Sum, mark: u32) -> Sum {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&self.bytes[..4]);
        head[4..].copy_from_slice(&mark.to_be_bytes());
        order.sum(order.sum(before, &head), &self.bytes[FRAME_HEADER_BYTES..])
    }
}

/// A checksum over everything up to a place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum(u32, u32);

/// The byte order of the words that checksums add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    fn sum(self, mut sum: Sum, bytes: &[u8]) -> Sum {
        let (words, _) = bytes.as_chunks::<4>();
        for pair in words.chunks_exact(2) {
            let (first, second) = match self {
                Self::Big => (u32::from_be_bytes(pair[0]), u32::from_be_bytes(pair[1])),
                Self::Little => (u32::from_le_bytes(pair[0]), u32::from_le_bytes(pair[1])),
            };
            sum.0 = sum.0.wrapping_add(first).wrapping_add(sum.1);
            sum.1 = sum.1.wrapping_add(second).wrapping_add(sum.0);
        }
        sum
    }
}

/// Returns the big-endian word at `at`.
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk().copied();
    word.map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests;
