//! From an image's bytes to a machine's first state. Pure: bytes in, values out.
//!
//! [`Image::parse`] reads an ELF and believes nothing of it; [`prepare()`] says what
//! to put where in guest memory, and what the vCPU's registers begin with. There
//! are two ways into an image (see [`trapline_abi::platform`]): by its PVH note, in
//! 32-bit mode, as any VMM would; or *directly*, by the image's own note, in 64-bit
//! mode on tables that it carries.
//!
//! A [`Kernel`] is a Linux, as distributions ship it: compressed, entered in 64-bit mode as
//! its boot protocol wants it, or unpacked with a PVH note. What hardware it finds,
//! it reads in [`acpi`] tables.

pub mod acpi;
mod image;
mod info;
mod linux;
mod prepare;
mod registers;
#[cfg(any(test, feature = "specimen"))]
pub mod specimen;

pub use image::{BadImage, Image, Segment};
pub use info::{BOOT_INFO, BOOT_INFO_END, MOST_COMMAND_LINE};
pub use linux::{prepare_linux, BadKernel, Kernel, LinuxPlan};
pub use prepare::{prepare, BadBoot, Piece, Plan, Prepared, Way, MOST_MEMORY};
