//! What is a macaroon and what is none: every bit flipped, fields missing, doubled and misplaced, bounds, and
//! random ones written and read again.

use asyncgate_credentials::macaroon::{
    MAX_BYTES, MAX_CAVEATS, MAX_FIELD_BYTES, Macaroon, RootKey, mint,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use proptest::prelude::*;

use crate::build::{field, packets, v1};

fn root() -> RootKey {
    RootKey::derive(b"a secret")
}

fn some() -> Macaroon {
    mint(
        &root(),
        "id-1",
        &["op = send".to_owned(), "topic = t".to_owned()],
    )
    .unwrap()
}

/// A flipped bit is noticed, except in the location, which is not signed.
#[test]
fn every_flipped_bit_is_noticed() {
    let good = some();
    for bytes in [good.to_bytes(), v1(&good)] {
        let location = bytes
            .windows(9)
            .position(|part| part == b"asyncgate")
            .unwrap();
        for bit in 0..bytes.len() * 8 {
            if (location..location + 9).contains(&(bit / 8)) {
                continue;
            }
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let taken = Macaroon::from_bytes(&flipped);
            let taken = taken.is_ok_and(|macaroon| macaroon.verify(&root()).is_ok());
            assert!(!taken, "bit {bit} of {bytes:?}");
        }
    }
}

#[test]
fn every_flipped_bit_of_the_text_is_noticed() {
    let good = some();
    let text = good.encode();
    for bit in 0..text.len() * 8 {
        let mut flipped = text.clone().into_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(flipped) = String::from_utf8(flipped) else {
            continue;
        };
        let taken = Macaroon::decode(&flipped).ok();
        let taken = taken.filter(|macaroon| macaroon.verify(&root()).is_ok());
        // Only the location may differ.
        assert!(
            taken.is_none_or(|taken| taken.at("asyncgate").unwrap() == good),
            "{bit}"
        );
    }
}

#[test]
fn every_cut_and_every_addition_is_noticed() {
    for bytes in [some().to_bytes(), v1(&some())] {
        for length in 0..bytes.len() {
            assert!(Macaroon::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        for more in [&b"\0"[..], b"\n", b"0006a \n"] {
            assert!(Macaroon::from_bytes(&[&bytes, more].concat()).is_err());
        }
    }
}

#[test]
fn fields_stand_once_and_in_order() {
    let (location, id, vid) = (field(1, b"l"), field(2, b"i"), field(4, b"v"));
    let (end, signature) = (vec![0], field(6, &[7; 32]));
    let good = [&[2][..], &location, &id, &end, &id, &end, &end, &signature].concat();
    assert!(Macaroon::from_bytes(&good).is_ok());
    let bad: &[&[&[u8]]] = &[
        &[&id, &location, &end, &end, &signature],
        &[&location, &location, &id, &end, &end, &signature],
        &[&id, &id, &end, &end, &signature],
        &[&location, &end, &end, &signature],
        &[&field(2, b""), &end, &end, &signature],
        &[&id, &vid, &end, &end, &signature],
        &[&id, &end, &location, &id, &end, &end, &signature],
        &[&id, &end, &vid, &end, &end, &signature],
        &[&id, &end, &vid, &id, &end, &end, &signature],
        &[&id, &end, &id, &id, &end, &end, &signature],
        &[&id, &end, &id, &vid, &vid, &end, &end, &signature],
        &[&id, &end, &field(2, b""), &end, &end, &signature],
        &[&id, &end, &field(3, b"x"), &id, &end, &end, &signature],
        &[&id, &end, &end],
        &[&id, &end, &end, &field(6, &[7; 31])],
        &[&id, &end, &end, &field(6, &[7; 33])],
        &[&id, &end, &end, &signature, &signature],
        // The length 1 in two bytes.
        &[&[2, 0x81, 0, b'i'], &end, &end, &signature],
        // A length in three bytes.
        &[&[2, 0x81, 0x81, 1, b'i'], &end, &end, &signature],
    ];
    for fields in bad {
        let bytes = [&[2][..], &fields.concat()].concat();
        assert!(Macaroon::from_bytes(&bytes).is_err(), "{fields:?}");
    }
}

#[test]
fn packets_stand_once_and_in_order() {
    type Fields<'a> = &'a [(&'a str, &'a [u8])];
    let signature = ("signature", &[7; 32][..]);
    let (location, id) = (("location", &b"l"[..]), ("identifier", &b"i"[..]));
    let (cid, vid, cl) = (("cid", &b"c"[..]), ("vid", &b"v"[..]), ("cl", &b"o"[..]));
    let good: [Fields<'_>; 3] = [
        &[location, id, signature],
        &[location, id, cid, cid, signature],
        &[location, id, cid, vid, cl, cid, signature],
    ];
    for fields in good {
        assert!(Macaroon::from_bytes(&packets(fields)).is_ok(), "{fields:?}");
    }
    let bad: [Fields<'_>; 13] = [
        &[id, signature],
        &[location, signature],
        &[id, location, signature],
        &[location, location, id, signature],
        &[location, id, id, signature],
        &[location, id, vid, signature],
        &[location, id, cid, cl, signature],
        &[location, id, cid, cl, vid, signature],
        &[location, id, cid, vid, vid, signature],
        &[location, id, signature, cid],
        &[location, id, signature, signature],
        &[location, id, ("cid", &b""[..]), signature],
        &[location, id, ("signature", &[7; 31][..])],
    ];
    for fields in bad {
        assert!(
            Macaroon::from_bytes(&packets(fields)).is_err(),
            "{fields:?}"
        );
    }
    let bytes = packets(&[location, id, signature]);
    let upper = [b"000F", &bytes[4..]].concat();
    assert!(bytes.starts_with(b"000flocation"));
    assert!(Macaroon::from_bytes(&upper).is_err());
    assert!(Macaroon::from_bytes(b"0000").is_err());
}

#[test]
fn there_are_bounds() {
    let long = "x".repeat(MAX_FIELD_BYTES);
    let longer = "x".repeat(MAX_FIELD_BYTES + 1);
    assert!(mint(&root(), &long, std::slice::from_ref(&long)).is_ok());
    assert!(mint(&root(), &longer, &[]).is_err());
    assert!(mint(&root(), "i", std::slice::from_ref(&longer)).is_err());
    assert!(some().at(&longer).is_err());
    assert!(mint(&root(), "", &[]).is_err());
    assert!(some().attenuate("").is_err());

    let many = vec!["x".to_owned(); MAX_CAVEATS];
    let full = mint(&root(), "i", &many).unwrap();
    assert!(full.clone().attenuate("y").is_err());
    assert_eq!(Macaroon::decode(&full.encode()).unwrap(), full);
    assert!(mint(&root(), "i", &vec![long.clone(); 7]).is_ok());
    assert!(mint(&root(), "i", &vec![long; 8]).is_err());

    let fields: Vec<(&str, &[u8])> = [("location", &b"l"[..]), ("identifier", &b"i"[..])]
        .into_iter()
        .chain(std::iter::repeat_n(("cid", &b"c"[..]), MAX_CAVEATS + 1))
        .chain([("signature", &[7; 32][..])])
        .collect();
    assert!(Macaroon::from_bytes(&packets(&fields)).is_err());
    let huge = BASE64_URL_SAFE_NO_PAD.encode(vec![2; MAX_BYTES + 1]);
    assert!(Macaroon::decode(&huge).is_err());
    assert!(Macaroon::from_bytes(&vec![2; MAX_BYTES + 1]).is_err());
}

#[test]
fn what_is_no_macaroon_is_refused() {
    for text in [
        "",
        "=",
        "aga_abc",
        "e30",
        "eyJ2IjoyfQ",
        "!!!!",
        "Ag==Ag==",
        "AgE",
        "a.b.c",
        "A+-A",
        "ä",
    ] {
        assert!(Macaroon::decode(text).is_err(), "{text}");
    }
}

prop_compose! {
    fn any_macaroon()(
        identifier in "[ -~]{1,300}",
        caveats in prop::collection::vec(".{1,200}", 0..20),
    ) -> Option<Macaroon> {
        mint(&root(), &identifier, &caveats).ok()
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(macaroon in any_macaroon()) {
        let macaroon = macaroon.unwrap();
        prop_assert_eq!(&Macaroon::decode(&macaroon.encode()).unwrap(), &macaroon);
        prop_assert_eq!(&Macaroon::from_bytes(&v1(&macaroon)).unwrap(), &macaroon);
        prop_assert_eq!(macaroon.verify(&root()).unwrap().len(), macaroon.caveats().len());
    }

    #[test]
    fn what_is_read_is_written_again(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(first) = bytes.first_mut() {
            *first = 2;
        }
        if let Ok(macaroon) = Macaroon::from_bytes(&bytes) {
            prop_assert_eq!(macaroon.to_bytes(), bytes);
        }
    }
}
