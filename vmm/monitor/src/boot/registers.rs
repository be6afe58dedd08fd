//! Initial registers.

use crate::boot::info::BOOT_INFO;
use trapline_abi::platform::{selector, DirectBoot};
use trapline_interface::{BootState, General, Segment, System, Table};

// Descriptor attributes (AMD APM volume 2, 4.7): present, code or data, accessed; see `Segment`.
const CODE_32: u16 = 0xc9b;
const CODE_64: u16 = 0xa9b;
const DATA: u16 = 0xc93;
const DPL_3: u16 = 0x60;
const TASK_BUSY: u16 = 0x8b;
const LOCAL_TABLE: u16 = 0x82;

const CR0_PROTECTED: u64 = 0x11; // extension type, protection
const CR0_PAGED: u64 = 0x8000_0033; // paging, numeric errors, monitoring, and those
const CR4_PAE_SSE: u64 = 0x620; // physical address extension, SSE and its exceptions
const CR4_PAE: u64 = 0x20; // physical address extension
const EFER_LONG: u64 = 0xd00; // no-execute bits, long mode active and enabled

const FLAGS: u64 = 0x2;
const FLAG_INTERRUPTS: u64 = 0x200;
const FLAGS_ALL_PORTS: u64 = 0x3000; // I/O privilege level 3

/// Returns the state at a PVH entry: 32-bit protected mode without paging, `ebx` points at the start info (Xen
/// `docs/misc/pvh.pandoc`).
pub(crate) fn pvh(entry: u32) -> BootState {
    let data = flat(0x10, DATA);
    BootState {
        general: General {
            rip: entry.into(),
            rbx: BOOT_INFO,
            rflags: FLAGS,
            ..General::default()
        },
        system: System {
            cs: flat(0x08, CODE_32),
            tr: Segment {
                limit: 0x67,
                ..flat(0, TASK_BUSY)
            },
            ldt: no_local_table(),
            cr0: CR0_PROTECTED,
            ..with_data(data)
        },
    }
}

/// Returns the state at a direct entry: 64-bit mode at `ring` (0 or 3) with the image's tables, `rdi` points at the start
/// info. At ring 3 interrupts are on, because the guest cannot enable them. Port access is granted by the TSS
/// bitmap, as hosts that emulate ring 0 require, and by IOPL 3, because QEMU ignores the bitmap of a busy TSS.
pub(crate) fn direct(note: &DirectBoot, ring: u8) -> BootState {
    let (code, data, idt, flags) = match ring {
        3 => (
            flat(selector::CODE3, CODE_64 | DPL_3),
            flat(selector::DATA3, DATA | DPL_3),
            note.idt3,
            FLAGS | FLAG_INTERRUPTS | FLAGS_ALL_PORTS,
        ),
        _ => (
            flat(selector::CODE0, CODE_64),
            flat(selector::DATA0, DATA),
            note.idt0,
            FLAGS,
        ),
    };
    BootState {
        general: General {
            rip: note.entry,
            rsp: note.stack,
            rdi: BOOT_INFO,
            rflags: flags,
            ..General::default()
        },
        system: System {
            cs: code,
            tr: Segment {
                selector: selector::TASK,
                attributes: TASK_BUSY,
                limit: note.tss_limit as u32,
                base: note.tss,
            },
            ldt: no_local_table(),
            gdt: table(note.gdt, note.gdt_limit),
            idt: table(idt, note.idt_limit),
            cr0: CR0_PAGED,
            cr3: note.page_table,
            cr4: CR4_PAE_SSE,
            efer: EFER_LONG,
            ..with_data(data)
        },
    }
}

/// Returns the state at a Linux entry: 64-bit mode, `rsi` points at the boot parameters (Linux,
/// Documentation/arch/x86/boot.rst, "64-bit Boot Protocol").
pub(crate) fn linux(entry: u64, info: u64, tables: &Tables) -> BootState {
    BootState {
        general: General {
            rip: entry,
            rsi: info,
            rflags: FLAGS,
            ..General::default()
        },
        system: System {
            cs: flat(LINUX_CODE, CODE_64),
            tr: Segment {
                limit: 0x67,
                ..flat(0, TASK_BUSY)
            },
            ldt: no_local_table(),
            gdt: Table {
                base: tables.descriptors,
                limit: tables.descriptors_limit,
            },
            cr0: CR0_PAGED,
            cr3: tables.pages,
            cr4: CR4_PAE,
            efer: EFER_LONG,
            ..with_data(flat(LINUX_DATA, DATA))
        },
    }
}

/// Addresses of the tables for a kernel's entry.
pub(crate) struct Tables {
    pub descriptors: u64,
    /// Length in bytes minus 1.
    pub descriptors_limit: u16,
    pub pages: u64,
}

/// Selectors and descriptors expected by the kernel.
const LINUX_CODE: u16 = 0x10;
const LINUX_DATA: u16 = 0x18;
pub(crate) const LINUX_DESCRIPTORS: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];

fn with_data(data: Segment) -> System {
    System {
        ds: data,
        es: data,
        fs: data,
        gs: data,
        ss: data,
        ..System::default()
    }
}

fn flat(selector: u16, attributes: u16) -> Segment {
    Segment {
        selector,
        attributes,
        limit: u32::MAX,
        base: 0,
    }
}

fn no_local_table() -> Segment {
    Segment {
        attributes: LOCAL_TABLE,
        ..Segment::default()
    }
}

/// The limit fits in 16 bits, as checked by the image parser.
fn table(base: u64, limit: u64) -> Table {
    Table {
        base,
        limit: limit as u16,
    }
}
