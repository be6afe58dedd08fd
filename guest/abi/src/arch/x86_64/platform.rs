//! Ports, addresses and boot protocols of the image.
//!
//! The image has two entry points. *PVH* (ELF note 18, owner "Xen"; Xen `docs/misc/pvh.pandoc`):
//! 32-bit protected mode, paging off, `ebx` points to a [`StartInfo`]. *Direct boot*: a VMM that
//! supports the image's own note ([`NOTE_OWNER`], [`DirectBoot`]) puts the vCPU into 64-bit mode
//! at ring 0 or ring 3, on the page tables, descriptor tables and stack of the image; `rdi` points
//! to the same start info. The tables are laid out by the linker, so no instruction builds them.

/// First 16550 serial port (8 ports).
pub const COM1: u16 = 0x3f8;

/// Scratch register of the first serial port: it keeps the byte written to it in every 16550, real
/// or emulated. `port-out` and `port-in` use it because its value proves the accesses.
pub const SERIAL_SCRATCH: u16 = COM1 + 7;

/// Value read from a port without a device, because nothing drives the bus.
pub const FLOATING_BUS: u8 = 0xff;

/// Console port that takes one byte per write and is always ready: `isa-debugcon` in QEMU, and
/// trapline-vmm.
pub const DEBUG_CONSOLE: u16 = 0xe9;

/// Port at which a 32-bit write of `v` ends the machine with exit status `v << 1 | 1`:
/// `isa-debug-exit` in QEMU, and trapline-vmm.
pub const EXIT: u16 = 0x501;

/// ACPI sleep control register (ACPI 6.5, 4.8.3.7), one byte: writing [`POWER_OFF`] ends the
/// machine. The status register after it reads 0.
pub const POWER_CONTROL: u16 = 0x600;
/// See [`POWER_CONTROL`].
pub const POWER_STATUS: u16 = 0x601;
/// ACPI reset register (4.8.3.6), one byte: writing [`POWER_RESET`] resets the machine.
pub const POWER_RESET_PORT: u16 = 0x602;
/// Sleep type S5, power off.
pub const SLEEP_OFF: u8 = 5;
/// Sleep type S5 and the sleep enable bit.
pub const POWER_OFF: u8 = SLEEP_OFF << 2 | 1 << 5;
/// Value that resets the machine.
pub const POWER_RESET: u8 = 1;

/// Command port of the PC keyboard controller. Writing [`RESET`] pulses the CPU's reset line, which
/// ends the machine in Firecracker, Cloud Hypervisor, crosvm and kvmtool.
pub const KEYBOARD_CONTROLLER: u16 = 0x64;
/// See [`KEYBOARD_CONTROLLER`].
pub const RESET: u8 = 0xfe;

/// Port of the exit counter. It and the following ports exist if [`crate::Job::ports`] is set.
///
/// A 32-bit read returns the low half of the number of exits so far (the kernel's count if
/// available, else the VMM's) and latches the high half, which [`EXITS_HIGH`] returns.
pub const EXITS_LOW: u16 = 0x510;
/// See [`EXITS_LOW`].
pub const EXITS_HIGH: u16 = 0x514;

/// Port that halts the vCPU, for a guest at ring 3, where `hlt` is privileged. A 32-bit write of
/// the guest's own interrupt count (see [`DirectBoot::interrupts`]) halts the vCPU until the next
/// interrupt. If the count in guest memory differs, the interrupt has been taken already, and the
/// write returns at once.
pub const IDLE: u16 = 0x518;

/// Port that takes a frame per write. A 32-bit write of the guest-physical address of a frame (see
/// [`crate::frame`]) has the effect of writing its bytes to [`DEBUG_CONSOLE`], with one exit
/// instead of one per byte. Invalid frames and addresses are ignored.
pub const FRAME: u16 = 0x51c;

/// Port of a periodic timer of the VMM. A 32-bit read returns [`TICKER_PRESENT`] if it exists. A
/// 32-bit write of the guest-physical address of a page (see [`crate::ticker`]) starts it; any
/// other value stops it.
pub const TICKER: u16 = 0x520;
/// See [`TICKER`].
pub const TICKER_PRESENT: u32 = u32::from_le_bytes(*b"tick");

/// Port of memory hotplug. A 32-bit read returns [`POPULATE_PRESENT`] if it exists; a 32-bit write
/// is a request, whose result a later read returns. See [`crate::populate`].
pub const POPULATE: u16 = 0x524;
/// See [`POPULATE`].
pub const POPULATE_PRESENT: u32 = u32::from_le_bytes(*b"fill");

/// Port of the hypercall instruction. A 32-bit read returns [`HYPERCALL_SYSCALL`] or [`HYPERCALL_CALL`]
/// if the guest is a process, where the CPU's own instruction does not reach the VMM.
pub const HYPERCALL: u16 = 0x528;
/// See [`HYPERCALL`]: `syscall`, with the number in `rax`, the answer in `rax`, and `rcx` and `r11`
/// undefined afterwards.
pub const HYPERCALL_SYSCALL: u32 = u32::from_le_bytes(*b"sysc");
/// See [`HYPERCALL`]: a call of the code at [`HYPERCALL_ENTRY`], with the same registers.
pub const HYPERCALL_CALL: u32 = u32::from_le_bytes(*b"call");
/// See [`HYPERCALL_CALL`].
pub const HYPERCALL_ENTRY: u64 = 0x6fff_0000_0100;

/// Two no-operations behind a `syscall`. They permit the VMM to replace all 20 bytes by a jump, and to
/// answer the hypercall in the guest's process.
pub const HYPERCALL_PADDING: [u8; 18] = *b"\x66\x0f\x1f\x84\0trap\x66\x0f\x1f\x84\0line";
/// Number of a hypercall that no hypervisor has. In the guest's process other system calls may take longer.
pub const HYPERCALL_UNKNOWN: u64 = 0x7fff;
/// Answer to every hypercall: there is none.
pub const HYPERCALL_REFUSED: u64 = u64::MAX;

/// Port of address spaces, for a guest at ring 3. See [`crate::spaces`].
pub const SPACES: u16 = 0x52c;

/// Port at which writing [`PAUSE_NOW`] stops a simulated machine until the lab resumes it: `pvpanic`
/// in QEMU, with panics configured to pause. The machine's clock stands still meanwhile.
pub const PAUSE: u16 = 0x505;
/// Value for [`PAUSE`]: the panic event of pvpanic.
pub const PAUSE_NOW: u8 = 1;

/// Selector port of QEMU's firmware configuration device, 16 bits (QEMU `docs/specs/fw_cfg.rst`);
/// the data port, one byte per read, is the next one.
pub const FW_CFG: u16 = 0x510;

/// First virtio-mmio transport (virtio 1.2, section 4.2.2) of QEMU's microvm machine and of
/// trapline-vmm.
pub const VIRTIO_MMIO: u64 = 0xfeb0_0000;
/// Distance between virtio-mmio transports.
pub const VIRTIO_MMIO_SIZE: u64 = 0x200;
/// Transport of the image's disk in trapline-vmm: the second one, so that the first is always the
/// same.
pub const DISK_MMIO: u64 = VIRTIO_MMIO + VIRTIO_MMIO_SIZE;
/// Transport of the image's network card in trapline-vmm: the third one.
pub const NET_MMIO: u64 = VIRTIO_MMIO + 2 * VIRTIO_MMIO_SIZE;
/// Registers of the network card of an image on a switch.
pub const SWITCH_MMIO: u64 = VIRTIO_MMIO + 3 * VIRTIO_MMIO_SIZE;
/// Registers of the entropy device of an image, for `doorbell`.
pub const ENTROPY_MMIO: u64 = VIRTIO_MMIO + 4 * VIRTIO_MMIO_SIZE;
/// Interrupt vector of all. The virtual machine of an image has no I/O APIC.
pub const VIRTIO_VECTOR: u8 = 0x34;

/// Registers of the local APIC (Intel SDM volume 3, 11.4.1).
pub const LOCAL_APIC: u64 = 0xfee0_0000;

/// `hvm_start_info`, version 1 (Xen `public/arch-x86/hvm/start_info.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StartInfo {
    /// [`START_INFO_MAGIC`].
    pub magic: u32,
    /// 1: the memory map is present.
    pub version: u32,
    /// SIF flags; 0 except in Xen's dom0.
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

/// Value of [`StartInfo::magic`].
pub const START_INFO_MAGIC: u32 = 0x336e_c578;

/// `hvm_memmap_table_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryMapEntry {
    /// Guest-physical address of the range.
    pub address: u64,
    /// Length in bytes.
    pub size: u64,
    /// [`MEMORY_RAM`] or [`MEMORY_RESERVED`], as in an E820 map.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
}

/// Usable memory.
pub const MEMORY_RAM: u32 = 1;
/// Reserved memory.
pub const MEMORY_RESERVED: u32 = 2;

/// Owner of the ELF note that contains a [`DirectBoot`].
pub const NOTE_OWNER: &str = "Trapline";
/// Type of that note.
pub const NOTE_DIRECT: u32 = 1;

/// Selectors of the image's descriptor table. Hosts with an emulated ring 0 require the given
/// values for ring 3.
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

/// Note of the image for direct boot: guest-physical (= virtual) addresses. All fields are little
/// endian, in this order, without padding.
///
/// The VMM sets CR0 to PE, MP, NE and PG, CR4 to PAE, OSFXSR and OSXMMEXCPT (the image uses SSE2
/// and does not set these registers), EFER to LME and LMA; IF is clear at ring 0 and set at ring
/// 3, where the image cannot change it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectBoot {
    /// [`crate::VERSION`] of the image.
    pub version: u64,
    /// First instruction, in 64-bit mode, for both rings.
    pub entry: u64,
    /// Stack pointer at that instruction, as after a call (8 below a multiple of 16).
    pub stack: u64,
    /// Top-level page table: identity map of the first 4 GiB with the user bit.
    pub page_table: u64,
    /// Global descriptor table, see [`selector`] for its layout.
    pub gdt: u64,
    /// Limit of the GDT (length in bytes minus 1).
    pub gdt_limit: u64,
    /// Interrupt descriptor table for ring 0 (interrupt gates).
    pub idt0: u64,
    /// Interrupt descriptor table for ring 3 (trap gates with DPL 3: IF stays set, because cli
    /// and iretq cannot change it at ring 3).
    pub idt3: u64,
    /// Limit of both IDTs.
    pub idt_limit: u64,
    /// Task state segment: interrupt stacks, and a port bitmap that allows all ports.
    pub tss: u64,
    /// Limit of the TSS.
    pub tss_limit: u64,
    /// Address of the 32-bit count of interrupts taken, see [`IDLE`].
    pub interrupts: u64,
}

/// Number of fields of [`DirectBoot`].
pub const DIRECT_BOOT_FIELDS: usize = 12;

impl DirectBoot {
    /// Parses the descriptor of the note; `None` if its length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<DirectBoot> {
        let bytes: &[u8; DIRECT_BOOT_FIELDS * 8] = bytes.try_into().ok()?;
        let field = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Some(DirectBoot {
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
