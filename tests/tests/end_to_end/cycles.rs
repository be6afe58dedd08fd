//! Flushed data on a Linux guest's disk survives a power-off, a killed VMM, and a power cut of its machine.

use trapline_environments::sim::kernel::{self, Maker};
use trapline_tests::cycles::{self, Parts, Plan};
use trapline_tests::{has_qemu, settings, skip};

const FEATURE: &str = "power-cycles of a Linux guest";

#[test]
#[ignore = "slow: make test-all"]
fn flushed_data_survives_every_kind_of_end() {
    if !has_qemu(FEATURE) {
        return;
    }
    if !cycles::has_tools() {
        return skip(FEATURE, "mkfs.ext4 is not installed (package e2fsprogs)");
    }
    let settings = settings();
    if let Err(error) = kernel::chosen(&settings, Maker::Amd) {
        return skip(FEATURE, &error.to_string());
    }
    let parts = Parts::find(settings).expect("parts are built");
    let plan = Plan {
        own: 3,
        kills: 2,
        cuts: 1,
        seed: 1,
    };
    let place = tempfile::tempdir().expect("temporary directory");
    let ran = cycles::run(&parts, &plan, place.path(), &mut |_, _| {});
    let sum = ran.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!((sum.own, sum.kills, sum.cuts), (3, 2, 1));
    // Two writers, read before every run.
    assert_eq!(sum.found, 2 * 6);
    // Four flushed records for each power-off.
    assert!(sum.flushed >= 3 * 2 * 4 + 3, "{sum:?}");
}
