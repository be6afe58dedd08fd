//! What to put where, and where to begin.

use crate::boot::image::{BadImage, Image};
use crate::boot::info::{boot_info, Told, BOOT_INFO, BOOT_INFO_END, MOST_COMMAND_LINE};
use crate::boot::linux::BadKernel;
use crate::boot::registers;
use std::borrow::Cow;
use thiserror::Error;
use trapline_interface::{BootState, Gpa};

/// The largest memory, in bytes: above it are the addresses of devices.
pub const MOST_MEMORY: u64 = 0xd000_0000;

/// A way into an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By its PVH note.
    Pvh,
    /// By its own note, at this ring: 0 or 3.
    Direct {
        /// The privilege ring.
        ring: u8,
    },
}

/// What a machine begins with, besides its image.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Guest memory, from address 0, in bytes.
    pub memory: u64,
    /// For the guest.
    pub command_line: &'a str,
    /// Which way into the image.
    pub way: Way,
}

/// Bytes, and where they go. Memory without any is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The first address.
    pub at: Gpa,
    /// The bytes.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> Piece<'a> {
    /// Bytes that were made for this guest.
    pub(crate) fn made(at: u64, bytes: Vec<u8>) -> Self {
        let bytes = Cow::Owned(bytes);
        Self { at: Gpa(at), bytes }
    }

    /// Bytes of a file.
    pub(crate) fn of_file(at: u64, bytes: &'a [u8]) -> Self {
        let bytes = Cow::Borrowed(bytes);
        Self { at: Gpa(at), bytes }
    }
}

/// A machine's first state.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    /// What to put into memory.
    pub pieces: Vec<Piece<'a>>,
    /// What the vCPU's registers hold.
    pub boot: BootState,
    /// Where the guest counts the interrupts it takes, if it says so (see
    /// [`trapline_abi::platform::IDLE`]).
    pub interrupts: Option<Gpa>,
}

/// Why a machine cannot begin like this.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum BadBoot {
    #[error(transparent)]
    Image(#[from] BadImage),
    #[error(transparent)]
    Kernel(#[from] BadKernel),
    #[error("{given} bytes of memory are too few: the image needs {needed}; give it --memory {}M or more", needed.div_ceil(1 << 20))]
    MemoryTooSmall { given: u64, needed: u64 },
    #[error("{given} bytes of memory are too many: the most is {MOST_MEMORY}; give it --memory 3328M or less")]
    MemoryTooLarge { given: u64 },
    #[error("the image's segment at {at} overlaps the start info, {BOOT_INFO:#x} to {BOOT_INFO_END:#x}; link it at 1 MiB or above")]
    OnStartInfo { at: Gpa },
    #[error(
        "the kernel wants to be at {at}, where what it is told would be; link it at 1 MiB or above"
    )]
    TooLow { at: Gpa },
    #[error("the command line of {length} bytes is too long: the most is {most}")]
    CommandLineTooLong { length: usize, most: usize },
    #[error("the command line holds a zero byte, which would end it early")]
    CommandLineHasZero,
    #[error("the image has no PVH note (ELF note 'Xen' type 18); start it with --entry direct")]
    NoPvh,
    #[error("the image has no note for a direct start (it is not Trapline's); start it with --entry pvh, at ring 0")]
    NoDirect,
}

/// Says what to put where for `image` to start as planned. Every piece lies within
/// the planned memory.
///
/// # Errors
/// What does not go together.
pub fn prepare<'a>(image: &Image<'a>, plan: &Plan<'_>) -> Result<Prepared<'a>, BadBoot> {
    check_memory(image, plan.memory)?;
    check_command_line(plan.command_line, MOST_COMMAND_LINE)?;
    let boot = match plan.way {
        Way::Pvh => registers::pvh(image.pvh().ok_or(BadBoot::NoPvh)?),
        Way::Direct { ring } => registers::direct(image.direct().ok_or(BadBoot::NoDirect)?, ring),
    };
    let info = boot_info(&Told {
        memory: plan.memory,
        command_line: plan.command_line,
        ..Told::default()
    });
    let mut pieces = vec![Piece::made(BOOT_INFO, info)];
    pieces.extend(loaded(image));
    Ok(Prepared {
        pieces,
        boot,
        interrupts: image.direct().map(|note| Gpa(note.interrupts)),
    })
}

/// What the file holds of an image.
pub(crate) fn loaded<'a, 'b>(image: &'b Image<'a>) -> impl Iterator<Item = Piece<'a>> + 'b {
    let parts = image.segments().iter();
    parts
        .filter(|part| !part.bytes.is_empty())
        .map(|part| Piece::of_file(part.at.0, part.bytes))
}

pub(crate) fn check_memory(image: &Image<'_>, given: u64) -> Result<(), BadBoot> {
    const AT_LEAST: u64 = 2 << 20;
    if given > MOST_MEMORY {
        return Err(BadBoot::MemoryTooLarge { given });
    }
    let needed = image.end().max(AT_LEAST);
    if given < needed {
        return Err(BadBoot::MemoryTooSmall { given, needed });
    }
    let ranges = image.segments().iter();
    match ranges
        .filter(|part| part.range().start < BOOT_INFO_END && BOOT_INFO < part.range().end)
        .map(|part| part.at)
        .next()
    {
        Some(at) => Err(BadBoot::OnStartInfo { at }),
        None => Ok(()),
    }
}

pub(crate) fn check_command_line(text: &str, most: usize) -> Result<(), BadBoot> {
    let length = text.len();
    if length > most {
        return Err(BadBoot::CommandLineTooLong { length, most });
    }
    if text.contains('\0') {
        return Err(BadBoot::CommandLineHasZero);
    }
    Ok(())
}
