//! Loading of a Linux kernel.
//!
//! Boot parameters and tables lie below 1 MiB, a compressed kernel at its preferred address, so that it need not relocate,
//! and the initramfs as high as allowed.

mod bzimage;
mod parameters;

use crate::boot::acpi::{self, Hardware};
use crate::boot::error::BootError;
use crate::boot::image::Image;
use crate::boot::info;
use crate::boot::info::{boot_info, BOOT_INFO, MAX_COMMAND_LINE, MAX_LINUX_MEMORY, MAX_MEMORY};
use crate::boot::prepare::{check_command_line, check_memory, file_chunks, Chunk, Prepared};
use crate::boot::registers::{self, Tables, LINUX_DESCRIPTORS};
use alloc::vec;
use alloc::vec::Vec;
use bzimage::{BzImage, ENTRY};
use core::ops::Range;
use trapline_abi::platform::{POWER_RESET, POWER_RESET_PORT};
use trapline_interface::{Gpa, PAGE};

/// A validated kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel<'a> {
    /// bzImage.
    Compressed(BzImage<'a>),
    /// vmlinux with a PVH note.
    Unpacked(Image<'a>),
}

impl<'a> Kernel<'a> {
    /// Parses a file.
    ///
    /// # Errors
    /// The file is invalid for its format.
    pub fn parse(file: &'a [u8]) -> Result<Self, BootError> {
        if !file.starts_with(b"\x7fELF") {
            return Ok(Self::Compressed(BzImage::parse(file)?));
        }
        let image = Image::parse(file)?;
        image.pvh().ok_or(BootError::NoPvh)?;
        Ok(Self::Unpacked(image))
    }
}

/// Boot parameters of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct LinuxPlan<'a> {
    /// Guest memory in bytes, from address 0, and from [`HIGH_MEMORY`](crate::boot::HIGH_MEMORY) what exceeds
    /// [`MAX_MEMORY`].
    pub memory: u64,
    /// Kernel command line.
    pub command_line: &'a str,
    /// Initramfs; may be empty.
    pub initrd: &'a [u8],
    /// Hardware described in ACPI tables.
    pub hardware: &'a Hardware,
}

// Memory layout, besides the ACPI tables.
const DESCRIPTORS: u64 = 0x6000;
const PARAMETERS: u64 = 0x7000;
const PAGES: u64 = 0x9000;
const COMMAND_LINE: u64 = 0x2_0000;

/// Real-mode reset vector (Intel SDM volume 3, 10.1.4). Linux jumps there to reboot a hardware-reduced platform without
/// EFI.
const RESET_VECTOR: u64 = 0xf_fff0;

/// Returns the code at the reset vector: resets the VM and halts.
fn reset_code() -> [u8; 9] {
    let [low, high] = POWER_RESET_PORT.to_le_bytes();
    [
        0xba,
        low,
        high, // mov dx, the port
        0xb0,
        POWER_RESET, // mov al, the value
        0xee,        // out dx, al
        0xf4,        // hlt
        0xeb,
        0xfd, // jmp back to the hlt
    ]
}

/// Returns the initial state for `kernel`. All pieces lie within the configured memory.
///
/// # Errors
/// The parameters do not fit the kernel.
pub fn prepare_linux<'a>(
    kernel: &Kernel<'a>,
    plan: &LinuxPlan<'a>,
) -> Result<Prepared<'a>, BootError> {
    let mut prepared = match kernel {
        Kernel::Compressed(kernel) => prepare_compressed(kernel, plan)?,
        Kernel::Unpacked(image) => prepare_unpacked(image, plan)?,
    };
    let tables = acpi::tables(plan.hardware);
    prepared.pieces.push(Chunk::owned(acpi::TABLES, tables));
    let code = Chunk::owned(RESET_VECTOR, reset_code().to_vec());
    prepared.pieces.push(code);
    Ok(prepared)
}

fn prepare_compressed<'a>(
    kernel: &BzImage<'a>,
    plan: &LinuxPlan<'a>,
) -> Result<Prepared<'a>, BootError> {
    let (given, max) = (plan.memory, MAX_COMMAND_LINE.min(kernel.max_command_line));
    check_command_line(plan.command_line, max)?;
    if given > MAX_LINUX_MEMORY {
        let limit = MAX_LINUX_MEMORY;
        return Err(BootError::MemoryTooLarge { given, limit });
    }
    check_address(kernel.pref_address)?;
    let size = kernel.init_size.max(kernel.code.len() as u64);
    let end = kernel.pref_address.saturating_add(size);
    let initrd = initrd_range(plan, end, kernel.initrd_limit.saturating_add(1))?;
    let page = parameters::page(&parameters::GuestInfo {
        kernel,
        memory: plan.memory,
        command_line: COMMAND_LINE,
        initrd: initrd.clone(),
        rsdp: acpi::TABLES,
    });
    let descriptors = LINUX_DESCRIPTORS.map(u64::to_le_bytes).concat();
    let mut command_line = plan.command_line.as_bytes().to_vec();
    command_line.push(0);
    let tables = Tables {
        descriptors: DESCRIPTORS,
        descriptors_limit: descriptors.len() as u16 - 1,
        pages: PAGES,
    };
    Ok(Prepared {
        boot: registers::linux(kernel.pref_address + ENTRY, PARAMETERS, &tables),
        pieces: vec![
            Chunk::owned(DESCRIPTORS, descriptors),
            Chunk::owned(PARAMETERS, page),
            Chunk::owned(PAGES, identity_map()),
            Chunk::owned(COMMAND_LINE, command_line),
            Chunk::borrowed(kernel.pref_address, kernel.code),
            Chunk::borrowed(initrd.start, plan.initrd),
        ],
        interrupts: None,
        image_end: 0,
    })
}

fn prepare_unpacked<'a>(
    image: &Image<'a>,
    plan: &LinuxPlan<'a>,
) -> Result<Prepared<'a>, BootError> {
    check_memory(image, plan.memory, MAX_LINUX_MEMORY)?;
    let lowest = image.segments().iter().map(|part| part.at.0).min();
    check_address(lowest.unwrap_or(u64::MAX))?;
    check_command_line(plan.command_line, MAX_COMMAND_LINE)?;
    let initrd = initrd_range(plan, image.end(), plan.memory)?;
    let info = boot_info(&info::GuestInfo {
        memory: plan.memory,
        command_line: plan.command_line,
        module: Some(initrd.clone()).filter(|module| !module.is_empty()),
        rsdp: acpi::TABLES,
    });
    let mut pieces = vec![
        Chunk::owned(BOOT_INFO, info),
        Chunk::borrowed(initrd.start, plan.initrd),
    ];
    pieces.extend(file_chunks(image));
    Ok(Prepared {
        boot: registers::pvh(image.pvh().ok_or(BootError::NoPvh)?),
        pieces,
        interrupts: None,
        image_end: 0,
    })
}

/// Checks that the kernel lies above the boot parameters.
fn check_address(at: u64) -> Result<(), BootError> {
    match at {
        ..acpi::TABLES_END => Err(BootError::TooLow { at: Gpa(at) }),
        _ => Ok(()),
    }
}

/// Returns the address range of the initramfs: as high as possible below `limit` and the end of memory, from the start of
/// a page that is not below `from`.
fn initrd_range(plan: &LinuxPlan<'_>, from: u64, limit: u64) -> Result<Range<u64>, BootError> {
    let (given, length, page) = (plan.memory, plan.initrd.len() as u64, PAGE as u64);
    let lowest = match length {
        0 => from,
        _ => from.checked_next_multiple_of(page).unwrap_or(u64::MAX),
    };
    let needed = lowest.saturating_add(length);
    let limit = limit.min(MAX_MEMORY);
    if needed > limit && length > 0 {
        return Err(BootError::InitrdTooLarge { needed, limit });
    }
    if needed > given {
        return Err(BootError::MemoryTooSmall { given, needed });
    }
    let start = (given.min(limit) - length) / page * page;
    Ok(start..start + length)
}

/// Returns page tables that identity-map the first 4 GiB: a PML4, a PDPT, and four page directories.
fn identity_map() -> Vec<u8> {
    const PRESENT_WRITABLE: u64 = 3;
    const LARGE: u64 = 0x80;
    const ENTRIES: u64 = 512;
    let page = PAGE as u64;
    let mut entries = vec![0; 6 * ENTRIES as usize];
    entries[0] = (PAGES + page) | PRESENT_WRITABLE;
    for table in 0..4 {
        entries[(ENTRIES + table) as usize] = (PAGES + (2 + table) * page) | PRESENT_WRITABLE;
    }
    for (number, entry) in (0..).zip(&mut entries[2 * ENTRIES as usize..]) {
        *entry = number << 21 | LARGE | PRESENT_WRITABLE;
    }
    entries.into_iter().flat_map(u64::to_le_bytes).collect()
}
