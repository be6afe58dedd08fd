//! Replays the fuzzers' corpus and random bytes: no device panics, and each works after a reset.

use proptest::prelude::*;
use std::fs;
use std::path::Path;
use trapline_monitor::virtio::exercise::{target, TARGETS};

#[test]
fn corpus_is_replayed() {
    for (name, exercise) in TARGETS {
        let place = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/corpus")
            .join(name);
        let files =
            fs::read_dir(&place).unwrap_or_else(|_| panic!("{} is not there", place.display()));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            eprintln!("{}", path.display());
            exercise(&fs::read(path).unwrap());
            count += 1;
        }
        assert!(count > 10, "{name} has a corpus of {count}");
    }
}

#[test]
fn every_fuzz_target_has_a_function() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets/virtio");
    let mut count = 0;
    for file in fs::read_dir(place).unwrap() {
        let path = file.unwrap().path();
        assert!(target(path.file_stem().unwrap().to_str().unwrap()).is_some());
        count += 1;
    }
    assert_eq!(count, TARGETS.len());
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        for (_, exercise) in TARGETS {
            exercise(&bytes);
        }
    }
}
