//! Any bytes at all as an image: no panic, and what is accepted lies in memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::boot::test_image::is_valid;
use trapline_monitor::boot::{prepare, Image, Plan, EntryPoint};

const MEMORY: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes) else { return };
    assert!(is_valid(&image));
    for way in [EntryPoint::Pvh, EntryPoint::Direct { ring: 0 }, EntryPoint::Direct { ring: 3 }] {
        let plan = Plan { memory: MEMORY, command_line: "", way };
        let Ok(prepared) = prepare(&image, &plan) else { continue };
        for piece in &prepared.pieces {
            assert!(piece.at.0 + piece.bytes.len() as u64 <= MEMORY);
        }
    }
});
