//! What the image finds around it: ports, addresses, and the two ways in.
//!
//! The image starts in one of two ways. By the *PVH* entry (ELF note 18, owner
//! "Xen"; Xen `docs/misc/pvh.pandoc`): 32-bit protected mode, paging off, `ebx`
//! pointing at an [`StartInfo`]. Or *directly*: a VMM that knows the image's
//! own note ([`NOTE_OWNER`], [`Direct`]) puts the vCPU into 64-bit mode on the
//! page tables, descriptor tables and stack that the image carries, at ring 0 or
//! ring 3, with `rdi` pointing at the same start info. No instruction is spent on
//! building what the linker could lay out.

/// The first 16550 serial port (8 ports).
pub const COM1: u16 = 0x3f8;

/// Scratch register of the first serial port: it keeps the byte written to it,
/// in every 16550, real or modelled. `port-out` and `port-in` use it because its
/// state proves that the accesses arrived.
pub const SCRATCH: u16 = COM1 + 7;

/// What a port without a device reads, because nothing drives the bus. On a virtual
/// machine somebody has to say so.
pub const NO_DEVICE: u8 = 0xff;

/// A port that takes one console byte a write and is always ready: QEMU's
/// `isa-debugcon`, and ours.
pub const DEBUG_CONSOLE: u16 = 0xe9;

/// A 32-bit write of `v` ends the machine with exit status `v << 1 | 1`: QEMU's
/// `isa-debug-exit`, and ours.
pub const EXIT: u16 = 0x501;

/// The sleep control register of a machine with ACPI (ACPI 6.5, 4.8.3.7), a byte: writing
/// [`POWER_OFF`] ends the machine. The status register behind it reads 0.
pub const POWER_CONTROL: u16 = 0x600;
/// See [`POWER_CONTROL`].
pub const POWER_STATUS: u16 = 0x601;
/// The reset register of such a machine (4.8.3.6), a byte that takes [`POWER_RESET`].
pub const POWER_RESET_PORT: u16 = 0x602;
/// The sleep type that means off.
pub const SLEEP_OFF: u8 = 5;
/// That type, and the bit that begins it.
pub const POWER_OFF: u8 = SLEEP_OFF << 2 | 1 << 5;
/// What resets the machine.
pub const POWER_RESET: u8 = 1;

/// Written to [`EXIT`] when all went well: exit status [`EXIT_STATUS_DONE`].
pub const EXIT_DONE: u32 = 0x10;
/// Written to [`EXIT`] after a panic: exit status [`EXIT_STATUS_PANIC`].
pub const EXIT_PANIC: u32 = 0x11;
/// Exit status of a machine whose guest was done.
pub const EXIT_STATUS_DONE: i32 = (EXIT_DONE as i32) << 1 | 1;
/// Exit status of a machine whose guest panicked.
pub const EXIT_STATUS_PANIC: i32 = (EXIT_PANIC as i32) << 1 | 1;

/// Command port of the PC's keyboard controller. Writing [`RESET`] pulses the
/// processor's reset line; VMMs that have no other way for a guest to end
/// understand it as the end (Firecracker, Cloud Hypervisor, crosvm, kvmtool).
pub const KEYBOARD_CONTROLLER: u16 = 0x64;
/// See [`KEYBOARD_CONTROLLER`].
pub const RESET: u8 = 0xfe;

/// Trapline's own ports, offered where [`crate::Job::ports`] says so.
///
/// A 32-bit read gives the low half of the number of exits so far (the kernel's
/// count where it tells, else the VMM's) and latches the high half, which
/// [`EXITS_HIGH`] then gives.
pub const EXITS_LOW: u16 = 0x510;
/// See [`EXITS_LOW`].
pub const EXITS_HIGH: u16 = 0x514;

/// Halting without the `hlt` instruction, for a guest at ring 3. A 32-bit write
/// of the guest's own interrupt count (see [`Direct::interrupts`]) halts the
/// vCPU until the next interrupt, unless the count in guest memory has moved on
/// already: then the interrupt to be waited for has been taken and the write
/// returns at once.
pub const IDLE: u16 = 0x518;

/// A whole frame at once. A 32-bit write of the guest-physical address of a frame
/// (see [`crate::frame`]) has the same effect as writing its bytes to
/// [`DEBUG_CONSOLE`], for one exit instead of one a byte. What is no frame, or not
/// in guest memory, is ignored.
pub const FRAME: u16 = 0x51c;

/// A timer of the VMM that interrupts the guest, for whoever asks for it. Reading 32
/// bits gives [`TICKER_IS_THERE`] where there is one. A 32-bit write of the guest-physical
/// address of a page (see [`crate::ticker`]) starts it, writing 0 stops it; writing
/// anything else, or an address that is not a page of memory, stops it, too.
pub const TICKER: u16 = 0x520;
/// See [`TICKER`].
pub const TICKER_IS_THERE: u32 = u32::from_le_bytes(*b"tick");

/// Memory that the VMM gives its guest, and takes back, for whoever asks for it. Reading
/// 32 bits gives [`POPULATE_IS_THERE`] where that can be had; writing 32 bits asks for
/// something, and reading them afterwards tells what came of it. See [`crate::populate`].
pub const POPULATE: u16 = 0x524;
/// See [`POPULATE`].
pub const POPULATE_IS_THERE: u32 = u32::from_le_bytes(*b"fill");

/// Where such memory begins: behind the first 4 GiB, in which no guest has any.
pub const WINDOW: u64 = 1 << 32;
/// How much there can be.
pub const WINDOW_SIZE: u64 = 1 << 30;

/// Writing [`PAUSE_NOW`] here stops a simulated machine until the lab lets it go on:
/// QEMU's `pvpanic`, in a machine whose panics pause it. Nothing of the machine
/// notices, as it would if its processor waited for something.
pub const PAUSE: u16 = 0x505;
/// Written to [`PAUSE`]: what pvpanic calls a panic.
pub const PAUSE_NOW: u8 = 1;

/// The selector of QEMU's firmware configuration device, 16 bits (QEMU
/// `docs/specs/fw_cfg.rst`); behind it lies the port that gives a byte a read.
pub const FW_CFG: u16 = 0x510;
/// The file of that device in which a simulated machine finds what it has to do.
pub const JOB_FILE: &str = "opt/org.trapline/job";

/// A virtio-mmio transport (virtio 1.2, section 4.2.2), as QEMU's microvm
/// machine and our VMM have it: the first of them.
pub const VIRTIO_MMIO: u64 = 0xfeb0_0000;
/// What its `MagicValue` register reads: "virt".
pub const VIRTIO_MAGIC: u32 = 0x7472_6976;
/// Offset of its `DeviceFeatures` register, read only.
pub const VIRTIO_DEVICE_FEATURES: u64 = 0x10;
/// Offset of its `DeviceFeaturesSel` register: which 32 feature bits to show.
pub const VIRTIO_DEVICE_FEATURES_SEL: u64 = 0x14;

/// The name of the domain in which Xen on a simulated machine runs the image.
pub const DOMAIN: &str = "trapline";

/// A page, in bytes.
pub const PAGE: u64 = 4096;

/// The local APIC's registers (Intel SDM volume 3, 11.4.1).
pub const LOCAL_APIC: u64 = 0xfee0_0000;

/// `hvm_start_info`, version 1 (Xen `public/arch-x86/hvm/start_info.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StartInfo {
    /// [`START_INFO_MAGIC`].
    pub magic: u32,
    /// 1: the memory map is present.
    pub version: u32,
    /// SIF flags; 0 outside Xen's dom0.
    pub flags: u32,
    /// Entries of the module list.
    pub module_count: u32,
    /// Guest-physical address of the module list.
    pub modules: u64,
    /// Guest-physical address of the command line, zero-terminated.
    pub command_line: u64,
    /// Guest-physical address of the ACPI RSDP, or 0.
    pub rsdp: u64,
    /// Guest-physical address of the memory map.
    pub memory_map: u64,
    /// Entries of the memory map.
    pub memory_map_entries: u32,
    /// 0.
    pub reserved: u32,
}

/// What [`StartInfo::magic`] holds.
pub const START_INFO_MAGIC: u32 = 0x336e_c578;

/// `hvm_memmap_table_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryMapEntry {
    /// Guest-physical address of the range.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// [`MEMORY_RAM`] or [`MEMORY_RESERVED`], as in an E820 map.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
}

/// Usable memory.
pub const MEMORY_RAM: u32 = 1;
/// Memory to leave alone.
pub const MEMORY_RESERVED: u32 = 2;

/// Owner of the ELF note that holds a [`Direct`].
pub const NOTE_OWNER: &str = "Trapline";
/// Type of that note.
pub const NOTE_DIRECT: u32 = 1;

/// Selectors of the image's descriptor table. Those of ring 3 are the ones that
/// hosts with an emulated ring 0 insist on.
pub mod selector {
    /// 64-bit code, ring 0.
    pub const CODE0: u16 = 0x08;
    /// Data, ring 0.
    pub const DATA0: u16 = 0x10;
    /// Data, ring 3 (descriptor at 0x28).
    pub const DATA3: u16 = 0x2b;
    /// 64-bit code, ring 3 (descriptor at 0x30).
    pub const CODE3: u16 = 0x33;
    /// Task state (descriptor of 16 bytes at 0x40).
    pub const TASK: u16 = 0x40;
}

/// The image's note for a direct start: guest-physical (= virtual) addresses of
/// what it carries. All fields little endian, in this order, nothing between.
///
/// The VMM sets CR0 to PE, MP, NE and PG, CR4 to PAE, OSFXSR and OSXMMEXCPT (the
/// image uses SSE2 and sets nothing up), EFER to LME and LMA; IF is clear at ring 0
/// and set at ring 3, where the image can never change it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direct {
    /// [`crate::VERSION`] of the image.
    pub version: u64,
    /// First instruction, 64-bit mode, for either ring.
    pub entry: u64,
    /// Stack pointer at that instruction, as after a call (8 below a multiple of 16).
    pub stack: u64,
    /// Top-level page table: identity map of the first 4 GiB, user bit set.
    pub page_table: u64,
    /// Global descriptor table, laid out as [`selector`] says.
    pub gdt: u64,
    /// Its limit (length in bytes minus 1).
    pub gdt_limit: u64,
    /// Interrupt descriptor table for ring 0 (interrupt gates).
    pub idt0: u64,
    /// Interrupt descriptor table for ring 3 (trap gates that ring 3 may enter:
    /// cli and iretq cannot change IF there, so IF stays on).
    pub idt3: u64,
    /// The limit of either.
    pub idt_limit: u64,
    /// Task state segment: interrupt stacks, and a port bitmap that allows all.
    pub tss: u64,
    /// Its limit.
    pub tss_limit: u64,
    /// Address of the 32-bit count of interrupts taken, see [`IDLE`].
    pub interrupts: u64,
}

/// Number of fields of [`Direct`].
pub const DIRECT_FIELDS: usize = 12;

impl Direct {
    /// Reads the note's contents; `None` if the length is not that of a note.
    pub fn from_bytes(bytes: &[u8]) -> Option<Direct> {
        let bytes: &[u8; DIRECT_FIELDS * 8] = bytes.try_into().ok()?;
        let field = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Some(Direct {
            version: field(0),
            entry: field(1),
            stack: field(2),
            page_table: field(3),
            gdt: field(4),
            gdt_limit: field(5),
            idt0: field(6),
            idt3: field(7),
            idt_limit: field(8),
            tss: field(9),
            tss_limit: field(10),
            interrupts: field(11),
        })
    }
}
