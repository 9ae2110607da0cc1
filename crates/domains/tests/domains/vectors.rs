//! The hashes and signatures that were published or made by the deployed software.

use asyncgate_domains::{Address, Kind, domain_hash, recovers, request_hash, signing_hash};
use serde_json::{Value, json};

use crate::{ADDRESS, NAME, domain, hash, key, none, parse, signature, some, stage, unsigned};

const BOB: &str = "0x0000000000000000000000000000000000000b0b";

/// A stage as the published tests write it: delay, reset timer, batch size, repetitions.
fn any_stage(delay: u64, reset: Option<bool>, batch: Option<u64>, times: Option<u64>) -> Value {
    json!({
        "delay": delay,
        "resetTimer": reset.map_or_else(|| none(false), some),
        "batchSize": batch.map_or_else(|| none(0), some),
        "repetitions": times.map_or_else(|| none(0), some),
    })
}

#[test]
fn domains_hash_as_published() {
    let many = json!([
        any_stage(0, None, Some(2), None),
        any_stage(1, Some(false), None, None),
        any_stage(1, Some(true), None, None),
        any_stage(2, Some(false), None, Some(1)),
        any_stage(4, None, Some(2), Some(2)),
    ]);
    let one = json!([stage(0, 2, 10)]);
    for (address, stages, expected) in [
        (
            BOB,
            &many,
            "966edacc6cdf76b4536da958e82e360213b957508767a393ccf5c6b73db241d1",
        ),
        (
            BOB,
            &one,
            "8311399892fb15710d36c54f74d9be629a427b5dc0935f29d405b9480080f94d",
        ),
        (
            ADDRESS,
            &one,
            "357cb2a92d1286d46b61377dd3db4922218cd4f19b41b3466ce01b5974d2562f",
        ),
    ] {
        let request = unsigned(Kind::QuotaStatus, &domain(address, stages), 0);
        let found = domain_hash(&parse(Kind::QuotaStatus, &request).domain);
        assert_eq!(found, Some(hash(expected)));
    }
}

#[test]
fn requests_hash_as_published_signature_and_all() {
    let domain = domain(BOB, &json!([stage(0, 2, 10)]));
    for (kind, nonce, expected) in [
        (
            Kind::Sign,
            1,
            "9914e6bc3bd0d63727eeae4008654920b9879654f7159b1d5ab33768e61f56df",
        ),
        (
            Kind::QuotaStatus,
            2,
            "0c1545b83f28d8d0f24886fa0d21ac540af706dd6f9ee6d045bac17780a2656e",
        ),
    ] {
        let mut body = unsigned(kind, &domain, nonce);
        body["options"]["signature"] = some("<signature>");
        assert_eq!(request_hash(&parse(kind, &body)), Some(hash(expected)));
    }
}

const SIGNED: [(Kind, &str, &str, u8); 2] = [
    (
        Kind::Sign,
        "1886a3a5182957f1c2f0e7e545c619173c6c561c5b7042e708f14ad01b39fe9c",
        "21fd872bcafa0cf952a489efd34a488bc9cb06310e30bd2b5537430a849c7ef07f3f3a5c837084324dcc6190720958d42858d2388481dce9c49267c0714f925c",
        28,
    ),
    (
        Kind::QuotaStatus,
        "8dc93f44ec59430ea3e592885feab330e706fa4d55d5b3e1d360b8f1e26f55ba",
        "dfa36a90f7ddc6d616ad9962741a537e43547e45fb363833062bbd43842e68ff1caeb5581b0e1797ab00ee8553f52ea8de764854279f75b8e662322672565616",
        27,
    ),
];

#[test]
fn signatures_come_out_as_published() {
    let domain = domain(ADDRESS, &json!([stage(0, 2, 10)]));
    for (kind, digest, rs, v) in SIGNED {
        let body = unsigned(kind, &domain, 0);
        assert_eq!(signing_hash(&parse(kind, &body)), Some(hash(digest)));
        assert_eq!(
            signature(kind, &body, &key(0xdead_beef)),
            (rs.to_owned(), v)
        );
    }
}

#[test]
fn signatures_are_taken_in_both_orders_and_counts_and_of_no_other_form() {
    let address = Address::parse(ADDRESS).unwrap();
    for (_, digest, rs, v) in SIGNED {
        let digest = hash(digest);
        let taken = |text: &str| recovers(&digest, text, address);
        for v in [v, v - 27] {
            assert!(taken(&format!("0x{rs}{v:02x}")));
            assert!(taken(&format!("0x{v:02x}{rs}")));
            assert!(taken(&format!("{rs}{v:02x}")));
            assert!(taken(&format!("0x{}{v:02x}", rs.to_uppercase())));
        }
        let other = if v == 27 { 28 } else { 27 };
        for wrong in [
            String::new(),
            "0x".to_owned(),
            format!("0x{rs}"),
            format!("0x{rs}{v:02x}00"),
            format!("0x{rs}{v:02x}0"),
            format!("0x{rs}{other:02x}"),
            format!("0x{other:02x}{rs}"),
            format!("0x{rs}1d"),
            format!("0x{rs}zz"),
            format!("0x{}{v:02x}", "00".repeat(64)),
            format!("0x{}{v:02x}", "ff".repeat(64)),
            format!("é{}", &rs[..128]),
        ] {
            assert!(!taken(&wrong), "{wrong}");
        }
    }
}

#[test]
fn the_mirror_image_of_a_signature_is_taken_too() {
    let (_, digest, rs, v) = SIGNED[0];
    // The mirror image has the order of secp256k1 minus `s`.
    let order = [
        0xffff_ffff_ffff_ffff_u64,
        0xffff_ffff_ffff_fffe,
        0xbaae_dce6_af48_a03b,
        0xbfd2_5e8c_d036_4141,
    ];
    let mut borrow = false;
    let mut mirrored = String::new();
    for (at, limb) in order.into_iter().enumerate().rev() {
        let s = u64::from_str_radix(&rs[64 + 16 * at..80 + 16 * at], 16).unwrap();
        let (less, first) = limb.overflowing_sub(s);
        let (less, second) = less.overflowing_sub(u64::from(borrow));
        borrow = first || second;
        mirrored = format!("{less:016x}{mirrored}");
    }
    let address = Address::parse(ADDRESS).unwrap();
    let text = format!("0x{}{mirrored}{:02x}", &rs[..64], 55 - v);
    assert!(recovers(&hash(digest), &text, address));
}

#[test]
fn each_bit_of_a_signature_counts() {
    let address = Address::parse(ADDRESS).unwrap();
    let (_, digest, rs, v) = SIGNED[0];
    let good = crate::bytes(&format!("{rs}{v:02x}"));
    for at in 0..64 {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(
                !recovers(&hash(digest), &crate::hex(&bad), address),
                "{at}.{bit}"
            );
        }
    }
}

#[test]
fn an_undefined_address_hashes_as_zero_and_a_bad_one_not_at_all() {
    let mut body = unsigned(Kind::Disable, &domain("", &json!([])), 0);
    let hash_of = |body: &Value| domain_hash(&parse(Kind::Disable, body).domain);
    assert_eq!(hash_of(&body), None);
    body["domain"]["address"] = none("");
    let nobody = hash_of(&body).unwrap();
    body["domain"]["address"] = none(format!("0x{}", "0".repeat(40)));
    assert_eq!(hash_of(&body), Some(nobody));
    body["domain"]["address"] = some(format!("0x{}", "0".repeat(40)));
    assert_ne!(hash_of(&body), Some(nobody));
    assert_eq!(parse(Kind::Disable, &body).domain.name, NAME);
}
