//! Errors of the boot loaders.

use crate::boot::image::ImageError;
use crate::boot::info::{BOOT_INFO, BOOT_INFO_END};
use thiserror::Error;
use trapline_interface::Gpa;

/// Reason why a file is not a bootable kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum KernelError {
    #[error("it is not a Linux kernel: give a bzImage, as /boot/vmlinuz-* are, or a vmlinux with CONFIG_PVH=y")]
    NotLinux,
    #[error("it is truncated: its header implies {needed} bytes, the file has {length}; build or copy it again")]
    Truncated { needed: usize, length: usize },
    #[error("it has version {}.{} of the boot protocol, 2.12 (Linux 3.8) is required: use a newer kernel", .found >> 8, .found & 0xff)]
    Old { found: u16 },
    #[error("it cannot be entered in 64-bit mode: build it for x86_64 (CONFIG_64BIT=y)")]
    Not64Bit,
}

/// Reason why a VM cannot boot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum BootError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("{given} bytes of memory are too few: the guest needs {needed}; give it --memory {}M or more", needed.div_ceil(1 << 20))]
    MemoryTooSmall { given: u64, needed: u64 },
    #[error("the initramfs is too large: behind the kernel it ends at {needed:#x}, and the limit is {limit:#x}; make it smaller")]
    InitrdTooLarge { needed: u64, limit: u64 },
    #[error("{given} bytes of memory are too many: the limit is {limit}; give it --memory {}M or less", limit >> 20)]
    MemoryTooLarge { given: u64, limit: u64 },
    #[error("the image's segment at {at} overlaps the start info, {BOOT_INFO:#x} to {BOOT_INFO_END:#x}; link it at 1 MiB or above")]
    OverlapsStartInfo { at: Gpa },
    #[error(
        "the kernel is linked at {at}, in the area of the boot parameters; link it at 1 MiB or above"
    )]
    TooLow { at: Gpa },
    #[error("the command line of {length} bytes is too long: the limit is {max}")]
    CommandLineTooLong { length: usize, max: usize },
    #[error("the command line holds a zero byte, which would end it early")]
    CommandLineHasZero,
    #[error("the image has no PVH note (ELF note 'Xen' type 18); start it with --entry direct")]
    NoPvh,
    #[error("the image has no note for a direct start (it is not Trapline's); start it with --entry pvh, at ring 0")]
    NoDirect,
}
