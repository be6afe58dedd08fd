//! Registers poked in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::virtio::exercise::target;

fuzz_target!(|bytes: &[u8]| target("transport").expect("it is listed")(bytes));
