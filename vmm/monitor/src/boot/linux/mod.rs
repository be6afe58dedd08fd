//! A Linux kernel: which kind of file it is, what goes where, and where it begins.
//!
//! Below 1 MiB lie what it is told and the tables that it is entered on; a compressed kernel
//! lies where it prefers to be, so that it need not move; the initramfs lies as high as it
//! may, out of everybody's way.

mod bzimage;
mod parameters;

pub use bzimage::BadKernel;

use crate::boot::acpi::{self, Hardware};
use crate::boot::image::Image;
use crate::boot::info::{boot_info, BOOT_INFO, MOST_COMMAND_LINE};
use crate::boot::prepare::{check_command_line, check_memory, loaded, BadBoot, Piece, Prepared};
use crate::boot::registers::{self, Tables, LINUX_DESCRIPTORS};
use crate::boot::{info, MOST_MEMORY};
use bzimage::{BzImage, ENTRY};
use std::ops::Range;
use trapline_abi::platform::{POWER_RESET, POWER_RESET_PORT};
use trapline_interface::{Gpa, PAGE};

/// A kernel that can be started, in memory that is large enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel<'a> {
    /// As distributions ship it: unpacks itself.
    Compressed(BzImage<'a>),
    /// An ELF file with a PVH note.
    Unpacked(Image<'a>),
}

impl<'a> Kernel<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, as the kind of file that it seems to be.
    pub fn parse(file: &'a [u8]) -> Result<Self, BadBoot> {
        if !file.starts_with(b"\x7fELF") {
            return Ok(Self::Compressed(BzImage::parse(file)?));
        }
        let image = Image::parse(file)?;
        image.pvh().ok_or(BadBoot::NoPvh)?;
        Ok(Self::Unpacked(image))
    }
}

/// What a machine begins with, besides its kernel.
#[derive(Clone, Copy, Debug)]
pub struct LinuxPlan<'a> {
    /// Guest memory, from address 0, in bytes.
    pub memory: u64,
    /// For the kernel.
    pub command_line: &'a str,
    /// An initramfs; empty if there is none.
    pub initrd: &'a [u8],
    /// What the kernel is to find.
    pub hardware: &'a Hardware,
}

// Where things are, besides the ACPI tables.
const DESCRIPTORS: u64 = 0x6000;
const PARAMETERS: u64 = 0x7000;
const PAGES: u64 = 0x9000;
const COMMAND_LINE: u64 = 0x2_0000;

/// Where a processor begins after a reset, as real mode sees it (Intel SDM volume 3, 10.1.4): a
/// kernel that restarts its machine through the firmware jumps there. Linux does, on a
/// platform of reduced hardware that has no EFI.
const RESET_VECTOR: u64 = 0xf_fff0;

/// All the firmware that there is: it resets the machine, and waits for that.
fn restart() -> [u8; 9] {
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

/// Says what to put where for `kernel` to start as planned. Every piece lies within
/// the planned memory.
///
/// # Errors
/// What does not go together.
pub fn prepare_linux<'a>(
    kernel: &Kernel<'a>,
    plan: &LinuxPlan<'a>,
) -> Result<Prepared<'a>, BadBoot> {
    let mut prepared = match kernel {
        Kernel::Compressed(kernel) => compressed(kernel, plan)?,
        Kernel::Unpacked(image) => unpacked(image, plan)?,
    };
    let tables = acpi::tables(plan.hardware);
    prepared.pieces.push(Piece::made(acpi::TABLES, tables));
    let restart = Piece::made(RESET_VECTOR, restart().to_vec());
    prepared.pieces.push(restart);
    Ok(prepared)
}

fn compressed<'a>(kernel: &BzImage<'a>, plan: &LinuxPlan<'a>) -> Result<Prepared<'a>, BadBoot> {
    let (given, most) = (plan.memory, MOST_COMMAND_LINE.min(kernel.most_command_line));
    check_command_line(plan.command_line, most)?;
    if given > MOST_MEMORY {
        return Err(BadBoot::MemoryTooLarge { given });
    }
    check_place(kernel.preferred)?;
    let size = kernel.needs.max(kernel.code.len() as u64);
    let end = kernel.preferred.saturating_add(size);
    let initrd = place(plan, end, kernel.initrd_limit.saturating_add(1))?;
    let page = parameters::page(&parameters::Told {
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
        boot: registers::linux(kernel.preferred + ENTRY, PARAMETERS, &tables),
        pieces: vec![
            Piece::made(DESCRIPTORS, descriptors),
            Piece::made(PARAMETERS, page),
            Piece::made(PAGES, identity_map()),
            Piece::made(COMMAND_LINE, command_line),
            Piece::of_file(kernel.preferred, kernel.code),
            Piece::of_file(initrd.start, plan.initrd),
        ],
        interrupts: None,
    })
}

fn unpacked<'a>(image: &Image<'a>, plan: &LinuxPlan<'a>) -> Result<Prepared<'a>, BadBoot> {
    check_memory(image, plan.memory)?;
    let lowest = image.segments().iter().map(|part| part.at.0).min();
    check_place(lowest.unwrap_or(u64::MAX))?;
    check_command_line(plan.command_line, MOST_COMMAND_LINE)?;
    let initrd = place(plan, image.end(), plan.memory)?;
    let info = boot_info(&info::Told {
        memory: plan.memory,
        command_line: plan.command_line,
        module: Some(initrd.clone()).filter(|module| !module.is_empty()),
        rsdp: acpi::TABLES,
    });
    let mut pieces = vec![
        Piece::made(BOOT_INFO, info),
        Piece::of_file(initrd.start, plan.initrd),
    ];
    pieces.extend(loaded(image));
    Ok(Prepared {
        boot: registers::pvh(image.pvh().ok_or(BadBoot::NoPvh)?),
        pieces,
        interrupts: None,
    })
}

/// Below the first MiB is what a kernel is told.
fn check_place(at: u64) -> Result<(), BadBoot> {
    match at {
        ..acpi::TABLES_END => Err(BadBoot::TooLow { at: Gpa(at) }),
        _ => Ok(()),
    }
}

/// The place for the initramfs: whole pages that end at the end of memory, or at `limit`
/// if that is lower, and begin at `from` or above.
fn place(plan: &LinuxPlan<'_>, from: u64, limit: u64) -> Result<Range<u64>, BadBoot> {
    let length = plan.initrd.len() as u64;
    let page = PAGE as u64;
    let needed = from.saturating_add(length.next_multiple_of(page));
    let end = plan.memory.min(limit);
    if end < needed {
        let given = plan.memory;
        return Err(BadBoot::MemoryTooSmall { given, needed });
    }
    let start = (end - length) / page * page;
    Ok(start..start + length)
}

/// Page tables that map the first 4 GiB to themselves: one of the highest level, one
/// of the next, and four of pages of 2 MiB.
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
