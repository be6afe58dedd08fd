//! Rings of the console and of the source of random numbers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::virtio::exercise::target;

fuzz_target!(|bytes: &[u8]| target("rings").expect("it is listed")(bytes));
