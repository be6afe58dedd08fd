//! Boot loaders: from an image or kernel to the initial state of a VM, without I/O.
//!
//! [`Image::parse`] validates an ELF file; [`prepare()`] returns the contents of guest memory and the initial registers.
//! An image has two entries ([`trapline_abi::platform`]): PVH in 32-bit mode, as for any VMM, or *direct* by
//! Trapline's own note, in 64-bit mode with the image's tables.
//!
//! A [`Kernel`] is Linux: a bzImage entered by the 64-bit boot protocol, or a vmlinux with a PVH note. It finds its
//! hardware in [`acpi`] tables.

pub mod acpi;
mod error;
mod image;
mod info;
mod linux;
mod prepare;
mod registers;
#[cfg(any(test, feature = "test-image"))]
pub mod test_image;

pub use error::{BootError, KernelError};
pub use image::{Image, ImageError, Segment};
pub use info::{
    BOOT_INFO, BOOT_INFO_END, HIGH_MEMORY, MAX_COMMAND_LINE, MAX_LINUX_MEMORY, MAX_MEMORY,
};
pub use linux::{prepare_linux, Kernel, LinuxPlan};
pub use prepare::{prepare, Chunk, EntryPoint, Plan, Prepared};
