//! Every target holds for its seeds, for some thousand mutations, and for what was found before.

use std::{fs, path::Path};

use asyncgate_fuzz::{Mutator, check, shrink, targets};

#[test]
fn targets_hold() {
    for target in targets() {
        let seeds = (target.seeds)();
        let mut mutator = Mutator::new(20_261);
        let mutated = (0..5_000).map(|_| mutator.input(&seeds));
        for input in seeds.iter().cloned().chain(mutated) {
            if let Err(finding) = check(target, &input) {
                let finding = shrink(target, finding);
                panic!(
                    "{}: {} on {:?}",
                    target.name, finding.message, finding.input
                );
            }
        }
    }
}

#[test]
fn findings_stay_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("findings");
    for target in targets() {
        let Ok(found) = fs::read_dir(folder.join(target.name)) else {
            continue;
        };
        for entry in found {
            let input = fs::read(entry.unwrap().path()).unwrap();
            assert_eq!(check(target, &input), Ok(()));
        }
    }
}

#[test]
fn a_defect_is_found_and_shrunk() {
    let target = asyncgate_fuzz::Target {
        name: "planted",
        run: |input| assert!(!input.windows(2).any(|pair| pair == b"\\u"), "planted"),
        seeds: || vec![br#"{"topic":"t"}"#.to_vec()],
    };
    let seeds = (target.seeds)();
    let mut mutator = Mutator::new(1);
    let finding = (0..100_000).find_map(|_| check(&target, &mutator.input(&seeds)).err());
    let finding = shrink(&target, finding.expect("it is found"));
    assert_eq!(finding.input, b"\\u");
    assert_eq!(finding.message, "planted");
}
