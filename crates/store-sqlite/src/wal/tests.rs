//! Logs of SQLite's own making, and logs as crashes, failed commits and damage leave them.

use std::io::Cursor;

use rusqlite::Connection;

use super::*;

const PAGE: usize = 512;
const FRAME: usize = FRAME_HEADER_BYTES + PAGE;

/// A database and its log, as SQLite left them.
struct Files {
    main: Vec<u8>,
    log: Vec<u8>,
}

impl Files {
    fn state(&self) -> State {
        self.state_with(&self.log)
    }

    fn state_with(&self, log: &[u8]) -> State {
        state(Cursor::new(log), Some(Cursor::new(&self.main))).unwrap()
    }

    fn frames(&self) -> usize {
        (self.log.len() - HEADER_BYTES as usize) / FRAME
    }

    fn mark(&self, frame: usize) -> u32 {
        word(&self.log, HEADER_BYTES as usize + (frame - 1) * FRAME + 4)
    }

    /// The first frame of the last transaction.
    fn last(&self) -> usize {
        let before = (1..self.frames())
            .rev()
            .find(|frame| self.mark(*frame) != 0);
        before.unwrap() + 1
    }
}

/// A database that can be written to and photographed.
struct Sqlite {
    dir: tempfile::TempDir,
    conn: Connection,
    rows: usize,
}

impl Sqlite {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join("a.db")).unwrap();
        conn.execute_batch(
            "PRAGMA page_size = 512; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             PRAGMA wal_autocheckpoint = 0; CREATE TABLE a (n INTEGER PRIMARY KEY, text TEXT);
             CREATE TABLE b (n INTEGER);",
        )
        .unwrap();
        Self { dir, conn, rows: 0 }
    }

    fn commit(&mut self, rows: usize) {
        self.conn
            .execute_batch("BEGIN; INSERT INTO b VALUES (1);")
            .unwrap();
        for _ in 0..rows {
            self.rows += 1;
            let text = format!("{:0>200}", self.rows);
            self.conn
                .execute("INSERT INTO a (text) VALUES (?1)", [text])
                .unwrap();
        }
        self.conn.execute_batch("COMMIT").unwrap();
    }

    fn checkpoint(&self) {
        let sql = "PRAGMA wal_checkpoint(PASSIVE)";
        self.conn.query_row(sql, [], |_| Ok(())).unwrap();
    }

    fn files(&self) -> Files {
        let read = |name| std::fs::read(self.dir.path().join(name)).unwrap();
        Files {
            main: read("a.db"),
            log: read("a.db-wal"),
        }
    }
}

/// SplitMix64.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) as usize
}

#[test]
fn what_sqlite_writes_is_whole_at_every_moment() {
    let mut sqlite = Sqlite::new();
    for n in 0..40 {
        sqlite.commit(n % 5);
        assert_eq!(sqlite.files().state(), State::Whole);
        if n % 7 == 0 {
            sqlite.checkpoint();
            assert_eq!(sqlite.files().state(), State::Whole);
        }
    }
    assert_eq!(
        state(Cursor::new([]), None::<Cursor<Vec<u8>>>).unwrap(),
        State::Whole
    );
}

/// Every byte of a log, once with each bit flipped in headers, once elsewhere.
#[test]
fn a_flip_before_the_last_transaction_is_damage() {
    let mut sqlite = Sqlite::new();
    for n in 0..10 {
        sqlite.commit(n % 4);
    }
    let files = sqlite.files();
    let last = HEADER_BYTES as usize + (files.last() - 1) * FRAME;
    for at in 0..files.log.len() {
        let in_header = at < 32 || (at - 32) % FRAME < FRAME_HEADER_BYTES;
        let bits = if in_header { 0..8 } else { at % 8..at % 8 + 1 };
        for bit in bits {
            let mut log = files.log.clone();
            log[at] ^= 1 << bit;
            let found = files.state_with(&log);
            let frame = (at.saturating_sub(32) / FRAME + 1) as u64;
            let right = match &found {
                State::HeaderDamaged { commits } => at < 32 && *commits >= 10,
                State::Damaged {
                    frame: bad,
                    commits,
                    cut,
                } => at >= 32 && *bad == frame && *commits > 0 && *cut as usize <= at,
                State::CutOff { frame: cut } => at >= last && *cut <= frame,
                State::Whole => false,
            };
            assert!(right, "bit {bit} of byte {at}, in frame {frame}: {found:?}");
        }
    }
}

/// A bad block, not a bad bit.
#[test]
fn lost_blocks_are_damage_too() {
    let mut sqlite = Sqlite::new();
    for n in 0..20 {
        sqlite.commit(n % 4);
    }
    let files = sqlite.files();
    for from in (0..files.log.len() - 8 * FRAME).step_by(512) {
        for bytes in [512, 1_024, 4_096] {
            let to = (from + bytes).min(files.log.len() - 8 * FRAME);
            let mut log = files.log.clone();
            log[from..to].fill(0);
            let found = files.state_with(&log);
            let damaged = matches!(found, State::Damaged { .. } | State::HeaderDamaged { .. });
            assert!(damaged, "{from}..{to}: {found:?}");
        }
    }
}

/// The sectors of the last transaction are there, or not, or torn; below them lie frames of an
/// earlier use of the file.
#[test]
fn a_power_loss_is_never_taken_for_damage() {
    let mut seed = 1;
    let mut cut_off = 0;
    for round in 0..24 {
        let mut sqlite = Sqlite::new();
        for n in 0..30 {
            sqlite.commit(n % 5);
        }
        sqlite.checkpoint();
        for _ in 0..round % 20 {
            sqlite.commit(round % 3);
        }
        let before = sqlite.files();
        sqlite.commit(round % 23);
        let after = sqlite.files();
        assert_eq!(
            before.log.len(),
            after.log.len(),
            "the old log was not longer"
        );
        let differs = |at: &usize| before.log[*at] != after.log[*at];
        // A new header is synced before anything is written behind it.
        let first = (32..after.log.len()).find(differs).unwrap();
        for _ in 0..200 {
            let mut log = before.log.clone();
            log[..32].copy_from_slice(&after.log[..32]);
            for from in (0..log.len()).step_by(512) {
                let sector = from..(from + 512).min(log.len());
                // Whatever happens, what was synced stays.
                match random(&mut seed) % 20 {
                    0 => {
                        let (start, end) = (from.max(first), sector.end);
                        for byte in &mut log[start.min(end)..end] {
                            *byte = random(&mut seed) as u8;
                        }
                    }
                    1..10 => log[sector.clone()].copy_from_slice(&after.log[sector]),
                    _ => {}
                }
            }
            match before.state_with(&log) {
                State::Whole => {}
                State::CutOff { .. } => cut_off += 1,
                found @ (State::Damaged { .. } | State::HeaderDamaged { .. }) => {
                    panic!("round {round}: {found:?}")
                }
            }
        }
    }
    assert!(cut_off > 1_000, "{cut_off}");
}

/// To use a log anew SQLite replaces its header, and only its header, before anything else.
#[test]
fn a_header_that_was_being_replaced_is_no_damage() {
    let mut seed = 2;
    let mut sqlite = Sqlite::new();
    for n in 0..10 {
        sqlite.commit(n % 4);
    }
    sqlite.checkpoint();
    let done = sqlite.files();
    sqlite.commit(3);
    let not_done = sqlite.files();
    for _ in 0..100 {
        let mut log = done.log.clone();
        for byte in &mut log[..32] {
            *byte = random(&mut seed) as u8;
        }
        assert_eq!(done.state_with(&log), State::Whole);
    }
    // The same before the pages were moved, or after other commits.
    let mut log = done.log.clone();
    log[..32].fill(0);
    let never_moved = Files {
        main: done.main[..PAGE].to_vec(),
        log: log.clone(),
    };
    assert!(matches!(
        never_moved.state(),
        State::HeaderDamaged { commits: 10.. }
    ));
    let mut log = not_done.log.clone();
    log[20] ^= 1;
    assert_eq!(
        not_done.state_with(&log),
        State::HeaderDamaged { commits: 1 }
    );
}

/// What was moved into the main file was synced in the log before, also if nothing came after it.
#[test]
fn a_flip_in_a_last_transaction_that_was_moved_is_damage() {
    let mut sqlite = Sqlite::new();
    for n in 0..10 {
        sqlite.commit(1 + n % 4);
    }
    let flipped = |files: &Files| {
        let at = HEADER_BYTES as usize + (files.last() - 1) * FRAME + 100;
        let mut log = files.log.clone();
        log[at] ^= 1;
        files.state_with(&log)
    };
    assert!(matches!(flipped(&sqlite.files()), State::CutOff { .. }));
    sqlite.checkpoint();
    assert!(matches!(
        flipped(&sqlite.files()),
        State::Damaged { commits: 1, .. }
    ));
}

/// Commits that were written and whose sync failed are undone: the next ones are written over them,
/// and may be shorter.
#[test]
fn leftovers_of_failed_commits_are_no_damage() {
    let mut log = Made::new();
    log.commit(4);
    let start = log.mark();
    log.commit(10);
    log.go_back(start);
    log.commit(5);
    log.go_back(start);
    log.commit(2);
    assert_eq!(log.state(), State::CutOff { frame: 7 });
    let start = log.mark();
    log.commit(1);
    assert_eq!(log.state(), State::CutOff { frame: 8 });
    log.go_back(start);
    log.commit(30);
    assert_eq!(log.state(), State::Whole);
    log.commit(3);
    log.bytes[32 + 9 * FRAME + 99] ^= 1;
    let cut = 32 + 6 * FRAME as u64;
    let damaged = State::Damaged {
        frame: 10,
        commits: 2,
        cut,
    };
    assert_eq!(log.state(), damaged);
}

/// The bit that goes bad is the one that makes a commit frame of it.
#[test]
fn a_commit_frame_that_lost_its_mark_is_damage() {
    let mut log = Made::new();
    for frames in [4, 3, 2] {
        log.commit(frames);
    }
    log.bytes[32 + 6 * FRAME + 7] = 0;
    let damaged = State::Damaged {
        frame: 7,
        commits: 2,
        cut: 32 + 4 * FRAME as u64,
    };
    assert_eq!(log.state(), damaged);
}

/// A log that is made by hand.
struct Made {
    bytes: Vec<u8>,
    at: usize,
    sum: Sum,
    content: u8,
}

impl Made {
    fn new() -> Self {
        let mut bytes = Vec::new();
        for word in [MAGIC, 3_007_000, PAGE as u32, 0, 17, 18] {
            bytes.extend(word.to_be_bytes());
        }
        let sum = Order::Little.sum(Sum(0, 0), &bytes);
        bytes.extend(sum.0.to_be_bytes());
        bytes.extend(sum.1.to_be_bytes());
        Self {
            at: bytes.len(),
            bytes,
            sum,
            content: 0,
        }
    }

    fn mark(&self) -> (usize, Sum) {
        (self.at, self.sum)
    }

    fn go_back(&mut self, (at, sum): (usize, Sum)) {
        (self.at, self.sum) = (at, sum);
    }

    fn commit(&mut self, frames: u32) {
        self.content += 1;
        for page in 1..=frames {
            let mark = if page == frames { 64 } else { 0 };
            let mut frame = Vec::new();
            for word in [page, mark, 17, 18] {
                frame.extend(word.to_be_bytes());
            }
            let page = [self.content; PAGE];
            self.sum = Order::Little.sum(self.sum, &frame[..8]);
            self.sum = Order::Little.sum(self.sum, &page);
            frame.extend(self.sum.0.to_be_bytes());
            frame.extend(self.sum.1.to_be_bytes());
            frame.extend(page);
            let end = self.at + FRAME;
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[self.at..end].copy_from_slice(&frame);
            self.at = end;
        }
    }

    fn state(&self) -> State {
        state(Cursor::new(&self.bytes), None::<Cursor<Vec<u8>>>).unwrap()
    }
}
