//! What a compressed kernel says of itself: the setup header of the x86 boot protocol
//! (Linux, Documentation/arch/x86/boot.rst), and the code behind it.

use thiserror::Error;

/// Why a file is no kernel that can be started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum BadKernel {
    #[error("it is no Linux kernel: give a bzImage, as /boot/vmlinuz-* are, or a vmlinux with CONFIG_PVH=y")]
    NotLinux,
    #[error("it is truncated: its header speaks of {needed} bytes, there are {length}; build or copy it again")]
    Truncated { needed: usize, length: usize },
    #[error("it speaks version {}.{} of the boot protocol, 2.12 of Linux 3.8 is needed: use a newer kernel", .found >> 8, .found & 0xff)]
    Old { found: u16 },
    #[error("it cannot be entered in 64-bit mode: build it for x86_64 (CONFIG_64BIT=y)")]
    Not64Bit,
}

/// A compressed kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BzImage<'a> {
    /// The setup header, from offset [`HEADER`] of the file on.
    pub header: &'a [u8],
    /// The code that unpacks the kernel, with the kernel.
    pub code: &'a [u8],
    /// Where it wants to be.
    pub preferred: u64,
    /// How much memory it takes there before it knows what else is taken, in bytes.
    pub needs: u64,
    /// The highest address that the initramfs may occupy.
    pub initrd_limit: u64,
    /// The longest command line, in bytes, without the zero at its end.
    pub most_command_line: usize,
}

/// Where the header begins in the file, and in what a kernel is told.
pub const HEADER: usize = 0x1f1;

// Fields, as offsets in the file.
const SETUP_SECTORS: usize = 0x1f1;
const BOOT_FLAG: usize = 0x1fe;
const HEADER_LENGTH: usize = 0x201;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const LOAD_FLAGS: usize = 0x211;
const INITRD_LIMIT: usize = 0x22c;
const LONG_LOAD_FLAGS: usize = 0x236;
const MOST_COMMAND_LINE: usize = 0x238;
const PREFERRED: usize = 0x258;
const NEEDS: usize = 0x260;
const FIELDS_END: usize = 0x264;

/// Where in what a kernel is told something else begins.
const HEADER_LIMIT: usize = 0x290;

const SECTOR: usize = 512;
/// The number of sectors that 0 stands for.
const OLD_SETUP: u8 = 4;
const FLAG: u16 = 0xaa55;
/// With [`LONG_LOAD_FLAGS`].
const OLDEST: u16 = 0x20c;
const LOADED_HIGH: u8 = 1;
const HAS_64_BIT_ENTRY: u16 = 1;

/// Where it is entered in 64-bit mode, behind where it is.
pub const ENTRY: u64 = 0x200;

impl<'a> BzImage<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(file: &'a [u8]) -> Result<Self, BadKernel> {
        let fields = Fields(file);
        if file.len() < FIELDS_END
            || fields.short(BOOT_FLAG) != FLAG
            || &file[MAGIC..][..4] != b"HdrS"
        {
            return Err(BadKernel::NotLinux);
        }
        let found = fields.short(VERSION);
        if found < OLDEST {
            return Err(BadKernel::Old { found });
        }
        let is_high = file[LOAD_FLAGS] & LOADED_HIGH != 0;
        if !is_high || fields.short(LONG_LOAD_FLAGS) & HAS_64_BIT_ENTRY == 0 {
            return Err(BadKernel::Not64Bit);
        }
        let code = fields.code_offset();
        let header = (MAGIC + usize::from(file[HEADER_LENGTH])).clamp(FIELDS_END, HEADER_LIMIT);
        let needed = header.max(code + ENTRY as usize + 1);
        if file.len() < needed {
            let length = file.len();
            return Err(BadKernel::Truncated { needed, length });
        }
        Ok(Self {
            header: &file[HEADER..header],
            code: &file[code..],
            preferred: fields.long(PREFERRED),
            needs: fields.word(NEEDS).into(),
            initrd_limit: fields.word(INITRD_LIMIT).into(),
            most_command_line: fields.word(MOST_COMMAND_LINE) as usize,
        })
    }
}

/// Numbers in a file that is long enough for them.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    fn short(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    /// Behind the boot sector and the setup code, which nobody here runs.
    fn code_offset(&self) -> usize {
        let sectors = match self.0[SETUP_SECTORS] {
            0 => OLD_SETUP,
            sectors => sectors,
        };
        (usize::from(sectors) + 1) * SECTOR
    }
}
