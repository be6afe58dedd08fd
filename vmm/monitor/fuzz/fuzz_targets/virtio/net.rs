//! A network card's frames, in both directions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::virtio::exercise::target;

fuzz_target!(|bytes: &[u8]| target("net").expect("it is listed")(bytes));
