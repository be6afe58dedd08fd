//! Linux kernels right and wrong: what goes where, what they are info, and what is wrong
//! with those that cannot be started.

use proptest::prelude::*;
use std::ops::Range;
use trapline_interface::Gpa;
use trapline_monitor::boot::acpi::{Hardware, TABLES};
use trapline_monitor::boot::test_image::{TestImage, BASE};
use trapline_monitor::boot::{
    prepare_linux, BootError, Chunk, Kernel, KernelError, LinuxPlan, Prepared, BOOT_INFO,
};

const MEMORY: u64 = 64 << 20;
const PREF_ADDRESS: u64 = 0x100_0000;
const INIT_SIZE: u32 = 8 << 20;
const SETUP: usize = 3 * 512;

fn hardware() -> Hardware {
    Hardware {
        cpus: 2,
        serial: None,
        transports: Vec::new(),
        button: 23,
    }
}

/// Offsets of the fields of a header.
pub const HEADER: Range<usize> = 0x1f1..0x268;

/// A compressed kernel: a header that says what one of Linux 6 says, and some code.
pub fn compressed() -> Vec<u8> {
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
    put(0x258, &PREF_ADDRESS.to_le_bytes());
    put(0x260, &INIT_SIZE.to_le_bytes());
    put(SETUP, b"code");
    file
}

fn with(change: impl FnOnce(&mut Vec<u8>)) -> Result<(), BootError> {
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

fn piece<'a>(prepared: &'a Prepared<'_>, at: u64) -> &'a Chunk<'a> {
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
    assert_eq!(boot.general.rip, PREF_ADDRESS + 0x200);
    assert_eq!(
        (boot.system.cs.selector, boot.system.ds.selector),
        (0x10, 0x18)
    );
    assert_eq!(&piece(&prepared, PREF_ADDRESS).bytes[..4], b"code");
    assert_eq!(&piece(&prepared, TABLES).bytes[..8], b"RSD PTR ");
    // mov dx, 0x602; mov al, 1; out dx, al; hlt: where a restart through the firmware goes.
    let restart = &piece(&prepared, 0xf_fff0).bytes;
    assert_eq!(restart[..7], [0xba, 0x02, 0x06, 0xb0, 0x01, 0xee, 0xf4]);
    let info = &piece(&prepared, boot.general.rsi).bytes;
    assert_eq!(&info[0x202..0x206], b"HdrS");
    let (at, length) = (word(info, 0x218), word(info, 0x21c));
    assert_eq!((at, length), (MEMORY - 8192, 5000));
    assert_eq!(piece(&prepared, at).bytes, initrd);
    let words = &piece(&prepared, word(info, 0x228)).bytes;
    assert_eq!(&words[..], b"console=ttyS0\0");
    assert_eq!((word(info, 0x70), info[0x1e8]), (TABLES, 3));
    assert_within(&prepared, MEMORY);
}

#[test]
fn page_tables_map_the_first_4_gib() {
    let (file, hardware) = (compressed(), hardware());
    let kernel = Kernel::parse(&file).unwrap();
    let prepared = prepare_linux(&kernel, &plan(&[], &hardware)).unwrap();
    let tables = &piece(&prepared, prepared.boot.system.cr3);
    let entry = |table: usize, index: u64| {
        let at = table * 4096 + index as usize * 8;
        u64::from_le_bytes(tables.bytes[at..at + 8].try_into().unwrap())
    };
    let next = |entry: u64| ((entry & !0xfff) - tables.at.0) as usize / 4096;
    for address in [0, PREF_ADDRESS, MEMORY, 0xfec0_0000] {
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
fn vmlinux_starts_by_pvh_with_initramfs_module() {
    let (file, hardware) = (TestImage::pvh(&[0xf4]).bytes(), hardware());
    let kernel = Kernel::parse(&file).unwrap();
    let prepared = prepare_linux(&kernel, &plan(&[1, 2, 3], &hardware)).unwrap();
    assert_eq!(prepared.boot.general.rip, BASE);
    let info = &piece(&prepared, BOOT_INFO).bytes;
    let module = (word(info, 16) - BOOT_INFO) as usize;
    assert_eq!((word(info, 12), word(info, 32)), (1, TABLES));
    assert_eq!(
        (word(info, module), word(info, module + 8)),
        (MEMORY - 4096, 3)
    );
    assert_within(&prepared, MEMORY);
}

#[test]
fn invalid_kernels_are_rejected() {
    let refused = |change: fn(&mut Vec<u8>)| match with(change) {
        Err(BootError::Kernel(bad)) => bad,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(|file| file.truncate(100)), KernelError::NotLinux);
    assert_eq!(refused(|file| file[0x202] = b'h'), KernelError::NotLinux);
    assert_eq!(refused(|file| file[0x1fe] = 0), KernelError::NotLinux);
    assert_eq!(
        refused(|file| file[0x207] = 1),
        KernelError::Old { found: 0x10f }
    );
    assert_eq!(refused(|file| file[0x236] = 0), KernelError::Not64Bit);
    assert_eq!(refused(|file| file[0x211] = 0), KernelError::Not64Bit);
    let needed = SETUP + 0x201;
    let length = SETUP + 0x200;
    let truncated = KernelError::Truncated { needed, length };
    assert_eq!(refused(|file| file.truncate(SETUP + 0x200)), truncated);
    let length = SETUP + 0x1000;
    let needed = length + 16;
    let truncated = KernelError::Truncated { needed, length };
    let paragraphs = |count: u16| {
        move |file: &mut Vec<u8>| {
            file[0x1f4..0x1f6].copy_from_slice(&count.to_le_bytes());
        }
    };
    assert_eq!(with(paragraphs(0x101)), Err(truncated.into()));
    assert_eq!(with(paragraphs(0x100)), Ok(()));
    let direct = TestImage::direct(&[0xf4]).bytes();
    assert_eq!(Kernel::parse(&direct), Err(BootError::NoPvh));
}

#[test]
fn unsuitable_kernel_parameters_are_rejected() {
    let (file, hardware) = (compressed(), hardware());
    let kernel = Kernel::parse(&file).unwrap();
    let refused = |change: fn(&mut LinuxPlan<'_>)| {
        let mut plan = plan(&[0; 100], &hardware);
        change(&mut plan);
        prepare_linux(&kernel, &plan).unwrap_err()
    };
    let needed = PREF_ADDRESS + u64::from(INIT_SIZE) + 100;
    assert_eq!(
        refused(|plan| plan.memory = 24 << 20),
        BootError::MemoryTooSmall {
            given: 24 << 20,
            needed
        }
    );
    let mut low_limit = file.clone();
    low_limit[0x22c..0x230].copy_from_slice(&(needed as u32 - 2).to_le_bytes());
    let low_limit = Kernel::parse(&low_limit).unwrap();
    assert_eq!(
        prepare_linux(&low_limit, &plan(&[0; 100], &hardware)).unwrap_err(),
        BootError::InitrdTooLarge {
            needed,
            limit: needed - 1
        }
    );
    assert!(matches!(
        refused(|plan| plan.memory = (1 << 40) + 1),
        BootError::MemoryTooLarge { .. }
    ));
    let mut low = TestImage::pvh(&[0xf4]);
    low.segments.push((0xe_0000, vec![0], 1));
    let low = low.bytes();
    let refusal = prepare_linux(&Kernel::parse(&low).unwrap(), &plan(&[], &hardware));
    assert_eq!(
        refusal.unwrap_err(),
        BootError::TooLow { at: Gpa(0xe_0000) }
    );
    let long = "x".repeat(2048);
    let mut plan = plan(&[], &hardware);
    plan.command_line = &long;
    let refusal = prepare_linux(&kernel, &plan).unwrap_err();
    let (length, max) = (2048, 2047);
    assert_eq!(refusal, BootError::CommandLineTooLong { length, max });
}

/// Prepares the compressed kernel with these bytes at the start of its header, if it is valid.
pub fn try_header(header: &[u8]) {
    let (mut file, hardware) = (compressed(), hardware());
    file[HEADER.start..][..header.len()].copy_from_slice(header);
    let plan = plan(&[1; 100], &hardware);
    if let Ok(prepared) = Kernel::parse(&file)
        .as_ref()
        .map(|kernel| prepare_linux(kernel, &plan))
    {
        prepared.iter().for_each(|it| assert_within(it, MEMORY));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The initramfs begins behind the kernel's last byte in memory, wherever that is within a page.
    #[test]
    fn initramfs_never_overlaps_the_kernel(
        size in 1_u64..0x10_0000,
        spare in -5000_i64..10_000,
        initrd in 1_usize..20_000,
    ) {
        let mut image = TestImage::pvh(&[0xf4]);
        image.segments[0].2 = size;
        let (file, initrd, hardware) = (image.bytes(), vec![1; initrd], hardware());
        let end = BASE + size;
        let memory = (end + initrd.len() as u64).max(2 << 20).saturating_add_signed(spare);
        let plan = LinuxPlan { memory, ..plan(&initrd, &hardware) };
        let kernel = Kernel::parse(&file).unwrap();
        let needed = end.next_multiple_of(4096) + initrd.len() as u64;
        match prepare_linux(&kernel, &plan) {
            Err(_) => assert!(memory < needed.max(2 << 20)),
            Ok(prepared) => {
                assert_within(&prepared, memory);
                let chunk = prepared.pieces.iter().find(|piece| piece.bytes == initrd).unwrap();
                assert!(chunk.at.0 >= end && chunk.at.0 % 4096 == 0);
            }
        }
    }

    /// Whatever a header says, what comes of it lies within memory and nothing overlaps.
    #[test]
    fn no_header_reaches_beyond_memory(
        bytes in prop::collection::vec((HEADER, any::<u8>()), 0..40),
        pref_address in prop_oneof![Just(PREF_ADDRESS), any::<u64>(), 0..0x20_0000_u64],
        memory in 0_u64..0x1_0000_0000,
        initrd in 0_usize..10_000,
    ) {
        let mut file = compressed();
        for (at, byte) in bytes {
            file[at] = byte;
        }
        let (initrd, hardware) = (vec![1; initrd], hardware());
        file[0x258..0x260].copy_from_slice(&pref_address.to_le_bytes());
        if let Ok(kernel) = Kernel::parse(&file) {
            let plan = LinuxPlan { memory, ..plan(&initrd, &hardware) };
            if let Ok(prepared) = prepare_linux(&kernel, &plan) {
                assert_within(&prepared, memory);
            }
        }
    }
}
