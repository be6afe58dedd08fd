//! Parsing of a bzImage: the setup header of the x86 boot protocol (Linux, Documentation/arch/x86/boot.rst).
//!
//! Own code instead of the crate `linux-loader`: it loads through `vm-memory`, which needs `std`.

use crate::boot::error::KernelError;

/// A compressed kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BzImage<'a> {
    /// The setup header, from file offset [`HEADER`].
    pub header: &'a [u8],
    /// The protected-mode code with the compressed kernel.
    pub code: &'a [u8],
    /// `pref_address`.
    pub pref_address: u64,
    /// `init_size`: memory needed from `pref_address`, in bytes.
    pub init_size: u64,
    /// `initrd_addr_max`.
    pub initrd_limit: u64,
    /// `cmdline_size`, without the terminating zero.
    pub max_command_line: usize,
}

/// Offset of the header in the file and in `boot_params`.
pub const HEADER: usize = 0x1f1;

// Offsets of fields in the file.
const SETUP_SECTORS: usize = 0x1f1;
const SYS_SIZE: usize = 0x1f4;
const BOOT_FLAG: usize = 0x1fe;
const HEADER_LENGTH: usize = 0x201;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const LOAD_FLAGS: usize = 0x211;
const INITRD_LIMIT: usize = 0x22c;
const LONG_LOAD_FLAGS: usize = 0x236;
const MAX_COMMAND_LINE: usize = 0x238;
const PREF_ADDRESS: usize = 0x258;
const INIT_SIZE: usize = 0x260;
const FIELDS_END: usize = 0x264;

/// End of the header's area in `boot_params`.
const HEADER_LIMIT: usize = 0x290;

const SECTOR: usize = 512;
/// Unit of [`SYS_SIZE`], the length of the code.
const PARAGRAPH: usize = 16;
/// Meaning of `setup_sects` 0.
const OLD_SETUP: u8 = 4;
const FLAG: u16 = 0xaa55;
/// Version that introduced [`LONG_LOAD_FLAGS`].
const MIN_VERSION: u16 = 0x20c;
const LOADED_HIGH: u8 = 1;
const HAS_64_BIT_ENTRY: u16 = 1;

/// Offset of the 64-bit entry point in the code.
pub const ENTRY: u64 = 0x200;

impl<'a> BzImage<'a> {
    /// Parses a file.
    ///
    /// # Errors
    /// The file is invalid.
    pub fn parse(file: &'a [u8]) -> Result<Self, KernelError> {
        let fields = Fields(file);
        if file.len() < FIELDS_END
            || fields.short(BOOT_FLAG) != FLAG
            || &file[MAGIC..][..4] != b"HdrS"
        {
            return Err(KernelError::NotLinux);
        }
        let found = fields.short(VERSION);
        if found < MIN_VERSION {
            return Err(KernelError::Old { found });
        }
        let is_high = file[LOAD_FLAGS] & LOADED_HIGH != 0;
        if !is_high || fields.short(LONG_LOAD_FLAGS) & HAS_64_BIT_ENTRY == 0 {
            return Err(KernelError::Not64Bit);
        }
        let code = fields.code_offset();
        let header = (MAGIC + usize::from(file[HEADER_LENGTH])).clamp(FIELDS_END, HEADER_LIMIT);
        let code_end = code.saturating_add(fields.word(SYS_SIZE) as usize * PARAGRAPH);
        let needed = header.max(code + ENTRY as usize + 1).max(code_end);
        if file.len() < needed {
            let length = file.len();
            return Err(KernelError::Truncated { needed, length });
        }
        Ok(Self {
            header: &file[HEADER..header],
            code: &file[code..],
            pref_address: fields.long(PREF_ADDRESS),
            init_size: fields.word(INIT_SIZE).into(),
            initrd_limit: fields.word(INITRD_LIMIT).into(),
            max_command_line: fields.word(MAX_COMMAND_LINE) as usize,
        })
    }
}

/// Reads numbers from a file of sufficient length.
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

    /// Offset of the code, behind the boot sector and the real-mode setup code.
    fn code_offset(&self) -> usize {
        let sectors = match self.0[SETUP_SECTORS] {
            0 => OLD_SETUP,
            sectors => sectors,
        };
        (usize::from(sectors) + 1) * SECTOR
    }
}
