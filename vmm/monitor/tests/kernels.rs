//! Linux kernels right and wrong: what goes where, what they are told, and what is wrong
//! with those that cannot be started.

use proptest::prelude::*;
use trapline_interface::Gpa;
use trapline_monitor::boot::acpi::{Hardware, TABLES};
use trapline_monitor::boot::specimen::{Specimen, BASE};
use trapline_monitor::boot::{
    prepare_linux, BadBoot, BadKernel, Kernel, LinuxPlan, Piece, Prepared, BOOT_INFO,
};

const MEMORY: u64 = 64 << 20;
const PREFERRED: u64 = 0x100_0000;
const NEEDS: u32 = 8 << 20;
const SETUP: usize = 3 * 512;

fn hardware() -> Hardware {
    Hardware {
        cpus: 2,
        serial: None,
        transports: Vec::new(),
        button: 23,
    }
}

/// A compressed kernel: a header that says what one of Linux 6 says, and some code.
fn compressed() -> Vec<u8> {
    let mut file = vec![0; SETUP + 0x1000];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[2]);
    put(0x1fe, &[0x55, 0xaa, 0xeb, 0x6a]);
    put(0x202, b"HdrS");
    put(0x206, &0x20f_u16.to_le_bytes());
    put(0x211, &[1]);
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    put(0x236, &0x7f_u16.to_le_bytes());
    put(0x238, &2047_u32.to_le_bytes());
    put(0x258, &PREFERRED.to_le_bytes());
    put(0x260, &NEEDS.to_le_bytes());
    put(SETUP, b"code");
    file
}

fn with(change: impl FnOnce(&mut Vec<u8>)) -> Result<(), BadBoot> {
    let mut file = compressed();
    change(&mut file);
    Kernel::parse(&file).map(drop)
}

fn plan<'a>(initrd: &'a [u8], hardware: &'a Hardware) -> LinuxPlan<'a> {
    LinuxPlan {
        memory: MEMORY,
        command_line: "console=ttyS0",
        initrd,
        hardware,
    }
}

fn piece<'a>(prepared: &'a Prepared<'_>, at: u64) -> &'a Piece<'a> {
    let found = prepared.pieces.iter().find(|piece| piece.at.0 == at);
    found.unwrap_or_else(|| panic!("nothing is at {at:#x}"))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()).into()
}

fn assert_within(prepared: &Prepared<'_>, memory: u64) {
    let mut ranges: Vec<_> = prepared
        .pieces
        .iter()
        .map(|piece| piece.at.0..piece.at.0 + piece.bytes.len() as u64)
        .filter(|range| !range.is_empty())
        .collect();
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.iter().all(|range| range.end <= memory));
    assert!(
        ranges.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "{ranges:x?}"
    );
}

#[test]
fn a_compressed_kernel_starts_in_64_bit_mode_where_it_prefers_to_be() {
    let (file, initrd, hardware) = (compressed(), vec![7; 5000], hardware());
    let kernel = Kernel::parse(&file).unwrap();
    let prepared = prepare_linux(&kernel, &plan(&initrd, &hardware)).unwrap();
    let boot = prepared.boot;
    assert_eq!(boot.general.rip, PREFERRED + 0x200);
    assert_eq!(
        (boot.system.cs.selector, boot.system.ds.selector),
        (0x10, 0x18)
    );
    assert_eq!(&piece(&prepared, PREFERRED).bytes[..4], b"code");
    assert_eq!(&piece(&prepared, TABLES).bytes[..8], b"RSD PTR ");
    // mov dx, 0x602; mov al, 1; out dx, al; hlt: where a restart through the firmware goes.
    let restart = &piece(&prepared, 0xf_fff0).bytes;
    assert_eq!(restart[..7], [0xba, 0x02, 0x06, 0xb0, 0x01, 0xee, 0xf4]);
    let told = &piece(&prepared, boot.general.rsi).bytes;
    assert_eq!(&told[0x202..0x206], b"HdrS");
    let (at, length) = (word(told, 0x218), word(told, 0x21c));
    assert_eq!((at, length), (MEMORY - 8192, 5000));
    assert_eq!(piece(&prepared, at).bytes, initrd);
    let words = &piece(&prepared, word(told, 0x228)).bytes;
    assert_eq!(&words[..], b"console=ttyS0\0");
    assert_eq!((word(told, 0x70), told[0x1e8]), (TABLES, 3));
    assert_within(&prepared, MEMORY);
}

#[test]
fn the_tables_that_it_is_entered_on_map_what_it_needs() {
    let (file, hardware) = (compressed(), hardware());
    let kernel = Kernel::parse(&file).unwrap();
    let prepared = prepare_linux(&kernel, &plan(&[], &hardware)).unwrap();
    let tables = &piece(&prepared, prepared.boot.system.cr3);
    let entry = |table: usize, index: u64| {
        let at = table * 4096 + index as usize * 8;
        u64::from_le_bytes(tables.bytes[at..at + 8].try_into().unwrap())
    };
    let next = |entry: u64| ((entry & !0xfff) - tables.at.0) as usize / 4096;
    for address in [0, PREFERRED, MEMORY, 0xfec0_0000] {
        let directory = entry(next(entry(0, 0)), address >> 30);
        let large = entry(next(directory), address >> 21 & 511);
        assert_eq!(large, address >> 21 << 21 | 0x83, "{address:#x}");
    }
    let descriptors = piece(&prepared, prepared.boot.system.gdt.base);
    assert_eq!(
        descriptors.bytes.len(),
        usize::from(prepared.boot.system.gdt.limit) + 1
    );
}

#[test]
fn an_unpacked_kernel_starts_by_its_note_with_its_initramfs_as_a_module() {
    let (file, hardware) = (Specimen::pvh(&[0xf4]).bytes(), hardware());
    let kernel = Kernel::parse(&file).unwrap();
    let prepared = prepare_linux(&kernel, &plan(&[1, 2, 3], &hardware)).unwrap();
    assert_eq!(prepared.boot.general.rip, BASE);
    let told = &piece(&prepared, BOOT_INFO).bytes;
    let module = (word(told, 16) - BOOT_INFO) as usize;
    assert_eq!((word(told, 12), word(told, 32)), (1, TABLES));
    assert_eq!(
        (word(told, module), word(told, module + 8)),
        (MEMORY - 4096, 3)
    );
    assert_within(&prepared, MEMORY);
}

#[test]
fn what_is_wrong_with_a_kernel_is_named() {
    let refused = |change: fn(&mut Vec<u8>)| match with(change) {
        Err(BadBoot::Kernel(bad)) => bad,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(|file| file.truncate(100)), BadKernel::NotLinux);
    assert_eq!(refused(|file| file[0x202] = b'h'), BadKernel::NotLinux);
    assert_eq!(refused(|file| file[0x1fe] = 0), BadKernel::NotLinux);
    assert_eq!(
        refused(|file| file[0x207] = 1),
        BadKernel::Old { found: 0x10f }
    );
    assert_eq!(refused(|file| file[0x236] = 0), BadKernel::Not64Bit);
    assert_eq!(refused(|file| file[0x211] = 0), BadKernel::Not64Bit);
    let needed = SETUP + 0x201;
    let length = SETUP + 0x200;
    let truncated = BadKernel::Truncated { needed, length };
    assert_eq!(refused(|file| file.truncate(SETUP + 0x200)), truncated);
    let direct = Specimen::direct(&[0xf4]).bytes();
    assert_eq!(Kernel::parse(&direct), Err(BadBoot::NoPvh));
}

#[test]
fn what_does_not_fit_together_is_named() {
    let (file, hardware) = (compressed(), hardware());
    let kernel = Kernel::parse(&file).unwrap();
    let refused = |change: fn(&mut LinuxPlan<'_>)| {
        let mut plan = plan(&[0; 100], &hardware);
        change(&mut plan);
        prepare_linux(&kernel, &plan).unwrap_err()
    };
    let needed = PREFERRED + u64::from(NEEDS) + 4096;
    assert_eq!(
        refused(|plan| plan.memory = 24 << 20),
        BadBoot::MemoryTooSmall {
            given: 24 << 20,
            needed
        }
    );
    assert!(matches!(
        refused(|plan| plan.memory = 1 << 40),
        BadBoot::MemoryTooLarge { .. }
    ));
    let mut low = Specimen::pvh(&[0xf4]);
    low.segments.push((0xe_0000, vec![0], 1));
    let low = low.bytes();
    let refusal = prepare_linux(&Kernel::parse(&low).unwrap(), &plan(&[], &hardware));
    assert_eq!(refusal.unwrap_err(), BadBoot::TooLow { at: Gpa(0xe_0000) });
    let long = "x".repeat(2048);
    let mut plan = plan(&[], &hardware);
    plan.command_line = &long;
    let refusal = prepare_linux(&kernel, &plan).unwrap_err();
    let (length, most) = (2048, 2047);
    assert_eq!(refusal, BadBoot::CommandLineTooLong { length, most });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever a header says, what comes of it lies within memory and nothing overlaps.
    #[test]
    fn no_header_reaches_beyond_memory(
        bytes in prop::collection::vec((0x1f1_usize..0x268, any::<u8>()), 0..40),
        preferred in prop_oneof![Just(PREFERRED), any::<u64>(), 0..0x20_0000_u64],
        memory in 0_u64..0x1_0000_0000,
        initrd in 0_usize..10_000,
    ) {
        let mut file = compressed();
        for (at, byte) in bytes {
            file[at] = byte;
        }
        let (initrd, hardware) = (vec![1; initrd], hardware());
        file[0x258..0x260].copy_from_slice(&preferred.to_le_bytes());
        if let Ok(kernel) = Kernel::parse(&file) {
            let plan = LinuxPlan { memory, ..plan(&initrd, &hardware) };
            if let Ok(prepared) = prepare_linux(&kernel, &plan) {
                assert_within(&prepared, memory);
            }
        }
    }
}
