//! The file format: the content of an export, the files that are refused, and that version 1 stays readable.

use std::io::{self, Read};

use asyncgate_ledger::{
    Entry, Expectations, Export, ExportError, Failure, Kind, MAX_LINE_BYTES, PublicKey, Reader,
    verify_export,
};

use crate::world::{TENANT, World, eventful, export, key};

/// An export of version 1, kept unchanged.
const FIXTURE: &str = include_str!("../fixtures/ledger-v1.ndjson");

fn refused(bytes: &[u8]) -> (Kind, Option<u64>, String) {
    let from_reader = Reader::open(bytes).and_then(|reader| {
        reader.collect::<Result<Vec<_>, _>>()?;
        Ok(())
    });
    let Err(Failure::Broken(found)) = verify_export(bytes, Expectations::default()) else {
        panic!("must be refused: {}", String::from_utf8_lossy(bytes))
    };
    // A program that only reads the file gets the same answer.
    match from_reader {
        Err(Failure::Broken(read)) => assert_eq!(read, found),
        other => panic!("{other:?}"),
    }
    (found.kind, found.line, found.to_string())
}

#[test]
fn version_1_is_read_for_ever() {
    let trusted = PublicKey::from_bytes(key(1).verifying_key().to_bytes());
    let expectations = Expectations {
        public_key: Some(trusted),
        known_head: None,
    };
    let report = verify_export(FIXTURE.as_bytes(), expectations).unwrap();
    assert_eq!(
        (report.receipts, report.tasks, report.open_obligations),
        (39, 6, 2)
    );
    assert_eq!(report.signatures, 3);
    assert_eq!(
        report.link,
        "b3:adb29227ef16647c586e3d4e597530e389a18507f961efb4c711cf36372c2569"
    );
}

#[test]
fn what_is_read_is_written_again_byte_by_byte() {
    let mut records = Vec::new();
    let mut head = None;
    let reader = Reader::open(FIXTURE.as_bytes()).unwrap();
    assert_eq!(reader.header().version, 1);
    assert_eq!(reader.header().tenant_id, TENANT.to_string());
    for entry in reader {
        match entry.unwrap() {
            Entry::Receipt(record) => records.push(*record),
            Entry::Head(found) => head = Some(*found),
        }
    }
    assert_eq!(export(&records, &head.unwrap()), FIXTURE);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let text = eventful().export();
    for end in (0..text.len() - 1).step_by(97) {
        let (kind, line, message) = refused(&text.as_bytes()[..end]);
        let lines = text.as_bytes()[..end]
            .split_inclusive(|b| *b == b'\n')
            .count();
        if lines > 1 {
            assert_eq!(kind, Kind::Truncated, "{message}");
            assert_eq!(line, Some(lines as u64), "{message}");
        }
    }
    // A file without its last line end is still whole.
    verify_export(text.trim_end().as_bytes(), Expectations::default()).unwrap();
}

#[test]
fn a_file_without_its_head_is_cut_short() {
    let text = eventful().export();
    let end = text.trim_end().rfind('\n').unwrap() + 1;
    let (kind, line, message) = refused(&text.as_bytes()[..end]);
    assert_eq!((kind, line), (Kind::Truncated, Some(40)), "{message}");
    assert!(message.contains("without a signed head"), "{message}");
}

#[test]
fn what_is_no_export_is_refused() {
    for (bytes, expected) in [
        (&b""[..], Kind::Truncated),
        (b"\n", Kind::NotAnExport),
        (b"hello\n", Kind::NotAnExport),
        (b"{}\n", Kind::NotAnExport),
        (b"\xff\xfe\n", Kind::NotAnExport),
        (br#"{"format":"other","version":1}"#, Kind::NotAnExport),
        (br#"{"format":"asyncgate.ledger"}"#, Kind::NotAnExport),
        (
            br#"{"format":"asyncgate.ledger","version":2}"#,
            Kind::UnknownVersion,
        ),
        (
            br#"{"format":"asyncgate.ledger","version":1}"#,
            Kind::NotAnExport,
        ),
    ] {
        let (kind, line, message) = refused(bytes);
        assert_eq!((kind, line), (expected, Some(1)), "{message}");
    }
    let endless = vec![b'x'; MAX_LINE_BYTES * 2];
    assert_eq!(refused(&endless).0, Kind::NotAnExport);
}

#[test]
fn garbage_between_the_lines_is_refused_with_its_line() {
    let text = eventful().export();
    let long = "x".repeat(MAX_LINE_BYTES * 2);
    for garbage in [
        "",
        "null",
        "[]",
        "{}",
        "garbage",
        "\u{feff}",
        "{\"seq\":4}",
        &long,
    ] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(5, garbage);
        let (kind, line, message) = refused((lines.join("\n") + "\n").as_bytes());
        assert_eq!((kind, line), (Kind::Garbled, Some(6)), "{message}");
        assert!(message.len() < 300, "{message}");
    }
    let mut bytes = text.into_bytes();
    let at = bytes.len() / 2;
    bytes[at] = 0xff;
    assert_eq!(refused(&bytes).0, Kind::Garbled);
}

#[test]
fn nothing_may_follow_the_head() {
    let text = eventful().export();
    let last = text.lines().last().unwrap();
    for more in ["\n", "x", last] {
        let (kind, line, message) = refused(format!("{text}{more}").as_bytes());
        assert_eq!((kind, line), (Kind::AfterTheHead, Some(42)), "{message}");
    }
}

#[test]
fn a_message_cannot_write_to_the_terminal() {
    let text = eventful().export().replace("task.started", "\\u001b[2J");
    let Err(failure) = verify_export(text.as_bytes(), Expectations::default()) else {
        panic!("must be refused")
    };
    assert!(!failure.to_string().contains('\u{1b}'));
    let text = eventful()
        .export()
        .replacen("\"seq\":3,", "\"\\u001b[2J\":3,", 1);
    assert!(!refused(text.as_bytes()).2.contains('\u{1b}'));
}

#[test]
fn an_unreadable_source_is_not_a_broken_ledger() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("the disk is gone")),
                read => Ok(read),
            }
        }
    }
    let text = eventful().export();
    for end in [0, 10, text.len() / 2, text.len()] {
        let source = Failing(&text.as_bytes()[..end]);
        let failure = verify_export(source, Expectations::default()).unwrap_err();
        assert!(matches!(failure, Failure::Read(_)), "{failure}");
    }
}

#[test]
fn the_writer_refuses_what_no_reader_would_take() {
    let world = eventful();
    let (records, head) = (world.records(), world.ledger_head());
    let begin = || Export::begin(Vec::new(), &TENANT.to_string(), "now", None).unwrap();
    let gap = begin().receipt(&records[1]).unwrap_err();
    assert!(matches!(
        gap,
        ExportError::Gap {
            expected: 1,
            found: 2
        }
    ));
    let mut foreign = records[0].clone();
    foreign.tenant_id = "other".to_owned();
    let foreign = begin().receipt(&foreign).unwrap_err();
    assert!(matches!(foreign, ExportError::Tenant { .. }));
    let early = begin().finish(&head).unwrap_err();
    assert!(matches!(
        early,
        ExportError::Head {
            head: 39,
            written: 0
        }
    ));
}

#[test]
fn when_a_receipt_was_delivered_is_left_out() {
    let world = eventful();
    let mut records = world.records();
    records[0].delivered_at = Some("2026-01-05T12:00:00.000Z".to_owned());
    assert_eq!(export(&records, &world.ledger_head()), world.export());
}

#[test]
fn bodies_with_line_breaks_stay_on_their_line() {
    let mut world = World::new();
    let id = world.create("alice");
    let hold = world.lease(id, "bob");
    world.progress(&hold, id, "{\r\n\t\"a\":\n1}");
    let text = world.export();
    assert_eq!(text.lines().count(), 5);
    verify_export(text.as_bytes(), Expectations::default()).unwrap();
}
