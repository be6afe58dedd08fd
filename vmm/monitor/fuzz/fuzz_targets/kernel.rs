//! Any bytes as a kernel with an initramfs: no panic, and what is accepted lies in memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::boot::acpi::Hardware;
use trapline_monitor::boot::{prepare_linux, Kernel, LinuxPlan};

const MEMORY: u64 = 64 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(kernel) = Kernel::parse(bytes) else { return };
    let hardware = Hardware { cpus: 1, serial: None, transports: Vec::new(), button: 23 };
    let plan = LinuxPlan { memory: MEMORY, command_line: "", initrd: &bytes[..100], hardware: &hardware };
    let Ok(prepared) = prepare_linux(&kernel, &plan) else { return };
    for piece in &prepared.pieces {
        assert!(piece.at.0 + piece.bytes.len() as u64 <= MEMORY);
    }
});
