//! The vectors of libmacaroons and of the macaroon crate.

use asyncgate_credentials::{
    Caveat,
    macaroon::{Forged, Macaroon, RootKey, mint},
};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD},
};

use crate::build::{field, signature, unhex, v1};

const SECRET: &[u8] = b"this is our super secret key; only we should know it";
const OTHER_SECRET: &[u8] =
    b"this is a different super-secret key; never use the same secret twice";

fn minted(secret: &[u8], identifier: &str, caveats: &[&str]) -> Macaroon {
    let caveats: Vec<String> = caveats.iter().map(|&caveat| caveat.to_owned()).collect();
    mint(&RootKey::derive(secret), identifier, &caveats).unwrap()
}

#[test]
fn the_chain_of_signatures() {
    let caveats = [
        "account = 3735928559",
        "time < 2020-01-01T00:00",
        "email = alice@example.org",
    ];
    let expected = [
        "e3d9e02908526c4c0039ae15114115d97fdd68bf2ba379b342aaf0f617d0552f",
        "1efe4763f290dbce0c1d08477367e11f4eee456a64933cf662d79772dbb82128",
        "b5f06c8c8ef92f6c82c6ff282cd1f8bd1849301d09a2db634ba182536a611c49",
        "ddf553e46083e55b8d71ab822be3d8fcf21d6bf19c40d617bb9fb438934474b6",
    ];
    let root = RootKey::derive(SECRET);
    let whole = minted(SECRET, "we used our secret key", &caveats);
    let signatures = whole.verify(&root).unwrap();
    for (count, expected) in expected.into_iter().enumerate() {
        let part = minted(SECRET, "we used our secret key", &caveats[..count]);
        assert_eq!(signature(&part), expected);
        // The signature after a caveat stays the same in all that is derived from there.
        assert_eq!(part.verify(&root).unwrap(), signatures[..count]);
    }
    let other = RootKey::derive(b"another");
    assert_eq!(whole.verify(&other), Err(Forged));
}

#[test]
fn version_2() {
    let table = [
        (
            &[][..],
            "020113687474703a2f2f6578616d706c652e6f72672f02056b65796964000006207cdee792511c5bc6f528485805dfe9b24e785e28e2a99301f9d711c609e38ef7",
        ),
        (
            &["account = 3735928559"][..],
            "020113687474703a2f2f6578616d706c652e6f72672f02056b657969640002146163636f756e74203d203337333539323835353900000620f54807f6dc6edf88bf0f7306b3822562a362533dbf7339ba61765da4bd259d87",
        ),
    ];
    for (caveats, bytes) in table {
        let bytes = unhex(bytes);
        let made = minted(b"this is the key", "keyid", caveats);
        let made = made.at("http://example.org/").unwrap();
        assert_eq!(made.to_bytes(), bytes);
        assert_eq!(made.encode(), BASE64_URL_SAFE_NO_PAD.encode(&bytes));
        let texts = [
            BASE64_URL_SAFE_NO_PAD.encode(&bytes),
            BASE64_URL_SAFE.encode(&bytes),
            BASE64_STANDARD.encode(&bytes),
            BASE64_URL_SAFE.encode(v1(&made)),
        ];
        for text in texts {
            let read = Macaroon::decode(&text).unwrap();
            assert_eq!(read, made, "{text}");
            assert!(read.verify(&RootKey::derive(b"this is the key")).is_ok());
        }
    }
}

/// A genuine macaroon with a third party's caveat verifies, and its caveat is told apart.
#[test]
fn a_third_partys_caveat_is_recognised() {
    let base = minted(
        OTHER_SECRET,
        "we used our other secret key",
        &["account = 3735928559"],
    );
    let before = "1434e674ad84fdfdc9bc1aa00785325c8b6d57341fc7ce200ba4680c80786dda";
    assert_eq!(signature(&base), before);

    let verification_id = BASE64_URL_SAFE_NO_PAD
        .decode("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA027FAuBYhtHwJ58FX6UlVNFtFsGxQHS7uD_w_dedwv4Jjw7UorCREw5rXbRqIKhr")
        .unwrap();
    let asked = b"this was how we remind auth of key/pred";
    let mut bytes = base.to_bytes();
    bytes.truncate(bytes.len() - 35);
    bytes.extend(field(1, b"http://auth.mybank/"));
    bytes.extend(field(2, asked));
    bytes.extend(field(4, &verification_id));
    bytes.extend([0, 0]);
    let after = "d27db2fd1f22760e4c3dae8137e2d8fc1df6c0741c18aed4b97256bf78d1f55c";
    bytes.extend(field(6, &unhex(after)));

    let root = RootKey::derive(OTHER_SECRET);
    let macaroon = Macaroon::from_bytes(&bytes).unwrap();
    for macaroon in [Macaroon::from_bytes(&v1(&macaroon)).unwrap(), macaroon] {
        assert_eq!(macaroon.verify(&root).unwrap().len(), 2);
        assert_eq!(macaroon.to_bytes(), bytes);
        let caveat = Caveat::read(&macaroon.caveats()[1]);
        let text = String::from_utf8(asked.to_vec()).unwrap();
        assert_eq!(caveat, Caveat::ThirdParty(text));
        assert!(!caveat.is_understood());
    }
}

/// The discharge of the vectors is a macaroon of its own, made with the caveat's key.
#[test]
fn a_discharge_is_a_macaroon() {
    let discharge = minted(
        b"4; guaranteed random by a fair toss of the dice",
        "this was how we remind auth of key/pred",
        &["time < 2020-01-01T00:00"],
    );
    let expected = "2ed1049876e9d5840950274b579b0770317df54d338d9d3039c7c67d0d91d63c";
    assert_eq!(signature(&discharge), expected);
}

#[test]
fn secrets_do_not_show() {
    let macaroon = minted(SECRET, "id", &["op = send"]);
    let root = RootKey::derive(SECRET);
    let shown = format!("{macaroon:?} {root:?} {:?}", macaroon.verify(&root));
    let last = unhex(&signature(&macaroon));
    assert!(!shown.contains(&format!("{}, {}, {}", last[0], last[1], last[2])));
    assert!(shown.contains("Signature(..)") && shown.contains("RootKey(..)"));
}
