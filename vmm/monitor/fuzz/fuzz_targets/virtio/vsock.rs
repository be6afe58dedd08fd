//! Packets of sockets, and what programs of the host do.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::virtio::exercise::target;

fuzz_target!(|bytes: &[u8]| target("vsock").expect("it is listed")(bytes));
