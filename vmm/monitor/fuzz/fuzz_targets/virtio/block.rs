//! A disk's requests, right and wrong.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::virtio::exercise::target;

fuzz_target!(|bytes: &[u8]| target("block").expect("it is listed")(bytes));
