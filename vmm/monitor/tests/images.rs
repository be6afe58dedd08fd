//! Images right and wrong: each kind of damage has its own error, and no input at
//! all makes the loader panic or reach beyond guest memory.

use proptest::prelude::*;
use trapline_abi::platform::{selector, DirectBoot};
use trapline_interface::Gpa;
use trapline_monitor::boot::test_image::{direct_note, is_valid, note_bytes, TestImage, BASE};
use trapline_monitor::boot::{
    prepare, BootError, EntryPoint, Image, ImageError, Plan, BOOT_INFO, BOOT_INFO_END,
    MAX_COMMAND_LINE,
};

const MEMORY: u64 = 16 << 20;

fn plan(way: EntryPoint) -> Plan<'static> {
    Plan {
        memory: MEMORY,
        command_line: "trapline.run=none",
        way,
    }
}

fn refusal(test_image: &TestImage) -> ImageError {
    Image::parse(&test_image.bytes()).unwrap_err()
}

fn with_note(change: impl FnOnce(&mut DirectBoot)) -> TestImage {
    let mut note = direct_note();
    change(&mut note);
    let mut test_image = TestImage::direct(&[0xf4]);
    test_image.notes[0].2 = note_bytes(&note);
    test_image
}

#[test]
fn a_pvh_image_starts_in_32_bit_mode() {
    let bytes = TestImage::pvh(&[0xf4]).bytes();
    let image = Image::parse(&bytes).unwrap();
    let prepared = prepare(&image, &plan(EntryPoint::Pvh)).unwrap();
    assert_eq!(prepared.boot.general.rip, BASE);
    assert_eq!(prepared.boot.general.rbx, BOOT_INFO);
    assert_eq!(prepared.boot.system.cr0, 0x11);
    assert_eq!(prepared.boot.system.efer, 0);
    assert_eq!(prepared.interrupts, None);
    assert_eq!(prepared.pieces[0].at, Gpa(BOOT_INFO));
    assert_eq!(prepared.pieces[1].at, Gpa(BASE));
}

#[test]
fn a_direct_image_starts_in_64_bit_mode_at_either_ring() {
    let bytes = TestImage::direct(&[0xf4]).bytes();
    let image = Image::parse(&bytes).unwrap();
    for (ring, code, interrupts_on) in [(0, selector::CODE0, false), (3, selector::CODE3, true)] {
        let prepared = prepare(&image, &plan(EntryPoint::Direct { ring })).unwrap();
        let boot = prepared.boot;
        assert_eq!(boot.system.ring(), ring);
        assert_eq!(boot.system.cs.selector, code);
        let ports_and_interrupts = 0x3200;
        let flags = if interrupts_on {
            ports_and_interrupts
        } else {
            0
        };
        assert_eq!(boot.general.rflags, flags | 2);
        assert_eq!(boot.general.rdi, BOOT_INFO);
        assert_eq!(boot.general.rsp % 16, 8);
        assert_eq!(boot.system.tr.limit, 104 + 8192);
        assert_eq!(prepared.interrupts, Some(Gpa(direct_note().interrupts)));
    }
}

#[test]
fn invalid_images_are_rejected() {
    assert_eq!(Image::parse(b"#!/bin/sh\n"), Err(ImageError::NotElf));
    assert_eq!(Image::parse(b""), Err(ImageError::NotElf));
    let mut arm = TestImage::pvh(&[0xf4]);
    arm.machine = 183;
    assert!(matches!(
        refusal(&arm),
        ImageError::WrongMachine {
            machine: 183,
            bits: 64
        }
    ));
    let mut bytes = TestImage::pvh(&[0xf4]).bytes();
    bytes[16] = 3;
    assert_eq!(
        Image::parse(&bytes),
        Err(ImageError::NotExecutable { kind: 3 })
    );
    let mut silent = TestImage::pvh(&[0xf4]);
    silent.notes.clear();
    assert_eq!(refusal(&silent), ImageError::NoEntry);
    let mut empty = TestImage::pvh(&[0xf4]);
    empty.segments.clear();
    assert_eq!(refusal(&empty), ImageError::Empty);
}

#[test]
fn truncated_images_are_rejected() {
    let bytes = TestImage::direct(&[0xf4]).bytes();
    for length in 4..bytes.len() {
        let refusal = Image::parse(&bytes[..length]).unwrap_err();
        assert_eq!(refusal, ImageError::Truncated { length }, "at {length}");
    }
}

#[test]
fn overlapping_or_out_of_range_segments_are_rejected() {
    let mut image = TestImage::pvh(&[0xf4]);
    image.segments.push((BASE + 0x1fff, vec![1], 1));
    let (first, second) = (Gpa(BASE), Gpa(BASE + 0x1fff));
    assert_eq!(refusal(&image), ImageError::Overlap { first, second });

    for (at, size) in [(u64::MAX - 10, 100), (0xcfff_ffff, 2), (1 << 40, 1)] {
        image.segments[1] = (at, vec![1], size);
        assert!(matches!(
            refusal(&image),
            ImageError::SegmentOutOfRange { .. }
        ));
    }
    image.segments[1] = (BASE + 0x2000, vec![1; 9], 8);
    assert!(matches!(refusal(&image), ImageError::SegmentShrinks { .. }));

    image.segments = (0..1200).map(|i| (BASE + i * 16, vec![], 0)).collect();
    let (count, max) = (1201, 1170);
    assert_eq!(refusal(&image), ImageError::TooManyHeaders { count, max });

    image.segments = (0..40).map(|i| (BASE + i * 16, vec![1], 1)).collect();
    assert!(matches!(
        refusal(&image),
        ImageError::TooManySegments { .. }
    ));
}

#[test]
fn notes_are_bounded_over_all_headers() {
    let mut image = TestImage::pvh(&[0xf4]);
    let filler = ("Filler", 1, vec![0; 1 << 10]);
    image.notes.extend(vec![filler; 60]);
    assert!(Image::parse(&image.bytes()).is_ok());
    let many = ("Filler", 1, vec![]);
    image.notes.extend(vec![many; 60_000]);
    let max = 0x1_0000;
    assert_eq!(refusal(&image), ImageError::NotesTooLong { max });
    // The same notes named by many headers.
    let mut image = TestImage::pvh(&[0xf4]);
    image.notes.push(("Filler", 1, vec![0; 1 << 10]));
    image.segments.extend((0..100).map(|_| (0, vec![], 0)));
    let mut bytes = image.bytes();
    let (first, last) = (64 + 56, 64 + 101 * 56);
    let header = bytes[last..last + 56].to_vec();
    for at in (first..last).step_by(56) {
        bytes[at..at + 56].copy_from_slice(&header);
    }
    assert_eq!(Image::parse(&bytes), Err(ImageError::NotesTooLong { max }));
}

/// With 0xffff program headers (PN_XNUM) the real number is in the first section header.
#[test]
fn extended_header_count_is_bounded() {
    let mut bytes = TestImage::pvh(&[0xf4]).bytes();
    let section = bytes.len() as u64;
    bytes.resize(bytes.len() + (1 << 20), 0);
    bytes[40..48].copy_from_slice(&section.to_le_bytes());
    bytes[56..58].copy_from_slice(&0xffff_u16.to_le_bytes());
    bytes[60..62].copy_from_slice(&1_u16.to_le_bytes());
    let count = 10_000_usize;
    let info = section as usize + 44;
    bytes[info..info + 4].copy_from_slice(&(count as u32).to_le_bytes());
    let max = 1170;
    assert_eq!(
        Image::parse(&bytes),
        Err(ImageError::TooManyHeaders { count, max })
    );
}

#[test]
fn note_addresses_must_be_in_the_image() {
    let mut pvh = TestImage::pvh(&[0xf4]);
    pvh.notes[0].2 = 0x20_0000u64.to_le_bytes().to_vec();
    assert_eq!(
        refusal(&pvh),
        ImageError::OutsideImage {
            what: "PVH entry",
            at: 0x20_0000
        }
    );
    let stray = |change: fn(&mut DirectBoot)| {
        matches!(refusal(&with_note(change)), ImageError::OutsideImage { .. })
    };
    assert!(stray(|note| note.entry = 0));
    assert!(stray(|note| note.stack = 0));
    assert!(stray(|note| note.page_table = BASE + 0xd000));
    assert!(stray(|note| note.gdt = u64::MAX));
    assert!(stray(|note| note.idt3 = BASE + 0xcfff));
    assert!(stray(|note| note.tss_limit = 0xffff));
    assert!(stray(|note| note.interrupts = BASE + 0xd000));
    let odd = |change: fn(&mut DirectBoot)| {
        matches!(refusal(&with_note(change)), ImageError::Malformed { .. })
    };
    assert!(odd(|note| note.page_table += 8));
    assert!(odd(|note| note.gdt_limit = 1 << 16));
    assert!(odd(|note| note.tss_limit = u64::MAX));
    let old = refusal(&with_note(|note| note.version = 0));
    assert_eq!(
        old,
        ImageError::DirectVersion {
            found: 0,
            known: trapline_abi::VERSION
        }
    );
}

#[test]
fn unsuitable_parameters_are_rejected() {
    let bytes = TestImage::pvh(&[0xf4]).bytes();
    let image = Image::parse(&bytes).unwrap();
    let refusal = |plan: &Plan| prepare(&image, plan).unwrap_err();
    let fit = plan(EntryPoint::Pvh);
    let small = Plan {
        memory: 1 << 20,
        ..fit
    };
    assert_eq!(
        refusal(&small),
        BootError::MemoryTooSmall {
            given: 1 << 20,
            needed: 2 << 20
        }
    );
    let large = Plan {
        memory: 4 << 30,
        ..fit
    };
    assert!(matches!(refusal(&large), BootError::MemoryTooLarge { .. }));
    let long = "x".repeat(MAX_COMMAND_LINE + 1);
    let talkative = Plan {
        command_line: &long,
        ..fit
    };
    assert!(matches!(
        refusal(&talkative),
        BootError::CommandLineTooLong { .. }
    ));
    assert_eq!(
        refusal(&Plan {
            command_line: "a\0b",
            ..fit
        }),
        BootError::CommandLineHasZero
    );
    assert_eq!(
        refusal(&plan(EntryPoint::Direct { ring: 3 })),
        BootError::NoDirect
    );

    let mut low = TestImage::pvh(&[0xf4]);
    low.segments.push((BOOT_INFO_END - 1, vec![1], 1));
    let bytes = low.bytes();
    let image = Image::parse(&bytes).unwrap();
    assert_eq!(
        prepare(&image, &fit).unwrap_err(),
        BootError::OverlapsStartInfo {
            at: Gpa(BOOT_INFO_END - 1)
        }
    );
}

/// Parses and, if that works, prepares; checks every promise on the way.
pub fn try_image(bytes: &[u8]) {
    let Ok(image) = Image::parse(bytes) else {
        return;
    };
    assert!(is_valid(&image));
    for way in [
        EntryPoint::Pvh,
        EntryPoint::Direct { ring: 0 },
        EntryPoint::Direct { ring: 3 },
    ] {
        let Ok(prepared) = prepare(&image, &plan(way)) else {
            continue;
        };
        for piece in &prepared.pieces {
            assert!(piece.at.0 + piece.bytes.len() as u64 <= MEMORY);
        }
        let count = prepared.interrupts.map_or(0, |at| at.0 + 4);
        assert!(count <= MEMORY);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_damage_makes_the_loader_panic(
        direct in any::<bool>(),
        hits in prop::collection::vec((0usize..400, any::<u8>()), 1..8),
        length in 0usize..60_000,
    ) {
        let test_image = if direct { TestImage::direct(&[0xf4]) } else { TestImage::pvh(&[0xf4; 64]) };
        let mut bytes = test_image.bytes();
        for (at, value) in hits {
            // Headers and notes are checked most.
            let last = bytes.len() - 1;
            let at = if at < 200 { at.min(last) } else { last - (at - 200).min(last) };
            bytes[at] = value;
        }
        try_image(&bytes);
        bytes.truncate(length);
        try_image(&bytes);
    }

    #[test]
    fn no_numbers_in_headers_make_the_loader_panic(
        segments in prop::collection::vec((any::<u64>(), 0u64..1 << 33, 0usize..32), 0..6),
        fields in prop::array::uniform12(any::<u64>()),
    ) {
        let mut test_image = TestImage::direct(&[0xf4]);
        test_image.segments.extend(
            segments.into_iter().map(|(at, size, held)| (at >> (at % 64), vec![0x90; held], size)),
        );
        let note: Vec<u8> = fields.iter().flat_map(|f| (f >> (f % 64)).to_le_bytes()).collect();
        test_image.notes.push(("Trapline", 1, note));
        try_image(&test_image.bytes());
    }

    #[test]
    fn no_bytes_make_the_loader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        try_image(&bytes);
        let magic = b"\x7fELF\x02\x01\x01";
        if bytes.len() > magic.len() {
            bytes[..magic.len()].copy_from_slice(magic);
            try_image(&bytes);
        }
    }
}
