//! Any bytes at all as an image: no panic, and what is accepted lies in memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_monitor::boot::specimen::is_sound;
use trapline_monitor::boot::{prepare, Image, Plan, Way};

const MEMORY: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes) else { return };
    assert!(is_sound(&image));
    for way in [Way::Pvh, Way::Direct { ring: 0 }, Way::Direct { ring: 3 }] {
        let plan = Plan { memory: MEMORY, command_line: "", way };
        let Ok(prepared) = prepare(&image, &plan) else { continue };
        for piece in &prepared.pieces {
            assert!(piece.at.0 + piece.bytes.len() as u64 <= MEMORY);
        }
    }
});
