use super::*;

fn sum(values: &[ValueRef<'_>]) -> Checksum {
    let mut sum = Checksum::new(Key(7));
    values.iter().for_each(|value| sum.add(*value));
    sum
}

/// The checksum of new rows, and that of old ones.
fn both(sum: &Checksum) -> [[u8; 8]; 2] {
    [sum.xxh3(), version_3::sum(&sum.covered).to_le_bytes()]
}

#[track_caller]
fn assert_differ(one: &Checksum, other: &Checksum) {
    let differ = both(one)
        .iter()
        .zip(both(other))
        .all(|(one, other)| *one != other);
    assert!(differ, "{:?} {:?}", one.covered, other.covered);
}

#[test]
fn every_flipped_bit_is_found() {
    let text: Vec<u8> = (0..100).collect();
    for len in 0..text.len() {
        let right = sum(&[ValueRef::Text(&text[..len]), ValueRef::Null]);
        for bit in 0..len * 8 {
            let mut flipped = text[..len].to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_differ(&sum(&[ValueRef::Text(&flipped), ValueRef::Null]), &right);
        }
    }
    for bit in 0..64 {
        assert_differ(
            &sum(&[ValueRef::Integer(0)]),
            &sum(&[ValueRef::Integer(1 << bit)]),
        );
        assert_differ(&Checksum::new(Key(0)), &Checksum::new(Key(1 << bit)));
    }
}

#[test]
fn what_looks_alike_is_not_equal() {
    let alike: [&[ValueRef<'_>]; 9] = [
        &[],
        &[ValueRef::Null],
        &[ValueRef::Integer(0)],
        &[ValueRef::Real(0.0)],
        &[ValueRef::Text(b"")],
        &[ValueRef::Blob(b"")],
        &[ValueRef::Text(b"\0")],
        &[ValueRef::Text(b"ab"), ValueRef::Text(b"c")],
        &[ValueRef::Text(b"a"), ValueRef::Text(b"bc")],
    ];
    for (n, one) in alike.iter().enumerate() {
        for other in &alike[..n] {
            assert_differ(&sum(one), &sum(other));
        }
    }
}

/// The format of the file depends on both: these are not allowed to change.
#[test]
fn checksums_stay_what_they_are() {
    let text: Vec<u8> = (0..100).collect();
    let row = sum(&[
        ValueRef::Null,
        ValueRef::Integer(-5),
        ValueRef::Real(2.5),
        ValueRef::Text(&text),
        ValueRef::Blob(b"blob"),
    ]);
    assert_eq!(u64::from_le_bytes(row.xxh3()), 0x30fa_3375_d482_e1d1);
    assert_eq!(version_3::sum(&row.covered), 3_548_140_496_312_657_122);
}

#[test]
fn a_checksum_of_either_kind_is_checked() {
    let row = sum(&[ValueRef::Text(b"text"), ValueRef::Integer(1)]);
    let (new, old) = (row.xxh3(), version_3::sum(&row.covered));
    assert!(row.check(Stored::Xxh3(new)).is_ok());
    assert!(row.check(Stored::Version3(old)).is_ok());
    assert!(
        row.check(Stored::Version3(i64::from_le_bytes(new)))
            .is_err()
    );
    assert!(row.check(Stored::Xxh3(old.to_le_bytes())).is_err());
}

#[test]
fn a_large_row_leaves_no_large_buffer_behind() {
    let large = vec![b'x'; 2 * MAX_KEPT_BYTES];
    drop(sum(&[ValueRef::Text(&large)]));
    assert!(ROOM.take().capacity() <= MAX_KEPT_BYTES);
}
