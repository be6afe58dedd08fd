//! Guests of the suite: one page of machine code each, and the tables of 64-bit mode. Address and
//! instruction test beside the bytes.

pub(super) mod delivery;
pub(super) mod dirty;
pub(super) mod memory;
#[cfg(feature = "std")]
pub(super) mod processors;

use crate::{BootState, General, Segment, System, Table};

/// Length of the guest's memory, from address 0.
pub(super) const MEMORY: usize = 0x8000;
/// Address of the code.
pub(super) const CODE: u64 = 0x1000;
const STACK: u64 = 0x2000;
const TOP_TABLE: u64 = 0x2000;
const GIGABYTES: u64 = 0x3000;
const LOW_MEGABYTES: u64 = 0x4000;
const HIGH_MEGABYTES: u64 = 0x5000;
const INTERRUPTS: u64 = 0x6000;
const SEGMENTS: u64 = 0x7000;
/// Vector with a handler.
pub(super) const VECTOR: u8 = 0x40;
/// Handlers by vector.
pub(super) const HANDLERS: [(u8, u64); 1] = [(VECTOR, 0x102a)];
/// Address at which memory is attached and detached.
pub(super) const WINDOW: u64 = 0x10_0000;

/// Flag in `r15`: memory can be attached read-only.
pub(super) const HAS_READ_ONLY: u64 = 1;
/// Flag in `r15`: port [`DOORBELL`] has a doorbell.
pub(super) const HAS_DOORBELL: u64 = 2;
/// The port with the doorbell.
pub(super) const DOORBELL: u16 = 0x609;

/// Accesses of every kind, registers, attached memory, halt, kick, and a triple fault. `edx` is the port, 0x600
/// by default.
#[rustfmt::skip]
pub(super) const ACCESSES: &[&[u8]] = &[
    // a write of each size to a port
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 1000: mov edx, 0x600
    &[0xb0, 0x41],                                                       // 1005: mov al, 0x41
    &[0xee],                                                             // 1007: out dx, al
    &[0x66, 0xb8, 0x41, 0x42],                                           // 1008: mov ax, 0x4241
    &[0x66, 0xef],                                                       // 100c: out dx, ax
    &[0xb8, 0x41, 0x42, 0x43, 0x44],                                     // 100e: mov eax, 0x44434241
    &[0xef],                                                             // 1013: out dx, eax
    // a read of each size; the other bits of eax stay
    &[0x83, 0xc8, 0xff],                                                 // 1014: or eax, 0xffffffff
    &[0xec],                                                             // 1017: in al, dx
    &[0xef],                                                             // 1018: out dx, eax
    &[0x83, 0xc8, 0xff],                                                 // 1019: or eax, 0xffffffff
    &[0x66, 0xed],                                                       // 101c: in ax, dx
    &[0xef],                                                             // 101e: out dx, eax
    &[0xed],                                                             // 101f: in eax, dx
    &[0xef],                                                             // 1020: out dx, eax
    // string accesses: each element is an exit of its own
    &[0x8d, 0x35, 0xd7, 0x00, 0x00, 0x00],                               // 1021: lea esi, [rip+0xd7]
    &[0xb9, 0x03, 0x00, 0x00, 0x00],                                     // 1027: mov ecx, 0x3
    &[0xf3, 0x6e],                                                       // 102c: rep outs dx, byte [rsi]
    &[0xbf, 0x00, 0x18, 0x00, 0x00],                                     // 102e: mov edi, 0x1800
    &[0xb9, 0x02, 0x00, 0x00, 0x00],                                     // 1033: mov ecx, 0x2
    &[0xf3, 0x6c],                                                       // 1038: rep ins byte es:[rdi], dx
    &[0x0f, 0xb7, 0x04, 0x25, 0x00, 0x18, 0x00, 0x00],                   // 103a: movzx eax, word 0x1800
    &[0xef],                                                             // 1042: out dx, eax
    // a write of each size to memory that is none
    &[0xbf, 0x00, 0x00, 0xb0, 0xfe],                                     // 1043: mov edi, 0xfeb00000
    &[0x48, 0xb8, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],       // 1048: mov rax, 0x8877665544332211
    &[0x88, 0x07],                                                       // 1052: mov byte [rdi], al
    &[0x66, 0x89, 0x47, 0x02],                                           // 1054: mov word [rdi+0x2], ax
    &[0x89, 0x47, 0x04],                                                 // 1058: mov dword [rdi+0x4], eax
    &[0x48, 0x89, 0x47, 0x08],                                           // 105b: mov qword [rdi+0x8], rax
    // a read of each size from there
    &[0x0f, 0xb6, 0x47, 0x10],                                           // 105f: movzx eax, byte [rdi+0x10]
    &[0xef],                                                             // 1063: out dx, eax
    &[0x0f, 0xb7, 0x47, 0x12],                                           // 1064: movzx eax, word [rdi+0x12]
    &[0xef],                                                             // 1068: out dx, eax
    &[0x8b, 0x47, 0x14],                                                 // 1069: mov eax, dword [rdi+0x14]
    &[0xef],                                                             // 106c: out dx, eax
    &[0x48, 0x8b, 0x47, 0x18],                                           // 106d: mov rax, qword [rdi+0x18]
    &[0xef],                                                             // 1071: out dx, eax
    &[0x48, 0xc1, 0xe8, 0x20],                                           // 1072: shr rax, 0x20
    &[0xef],                                                             // 1076: out dx, eax
    // registers: r12 came from the VMM, r13 goes to it
    &[0x4c, 0x89, 0xe0],                                                 // 1077: mov rax, r12
    &[0xef],                                                             // 107a: out dx, eax
    &[0x49, 0xbd, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],       // 107b: mov r13, 0x1122334455667788
    &[0xba, 0x04, 0x06, 0x00, 0x00],                                     // 1085: mov edx, 0x604
    &[0xee],                                                             // 108a: out dx, al
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 108b: mov edx, 0x600
    // memory comes and goes
    &[0xbb, 0x00, 0x00, 0x10, 0x00],                                     // 1090: mov ebx, 0x100000
    &[0x8b, 0x03],                                                       // 1095: mov eax, dword [rbx]
    &[0xef],                                                             // 1097: out dx, eax
    &[0xba, 0x05, 0x06, 0x00, 0x00],                                     // 1098: mov edx, 0x605
    &[0xee],                                                             // 109d: out dx, al
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 109e: mov edx, 0x600
    &[0x8b, 0x03],                                                       // 10a3: mov eax, dword [rbx]
    &[0xef],                                                             // 10a5: out dx, eax
    &[0xc7, 0x43, 0x04, 0x33, 0x33, 0x33, 0x33],                         // 10a6: mov dword [rbx+0x4], 0x33333333
    &[0xba, 0x06, 0x06, 0x00, 0x00],                                     // 10ad: mov edx, 0x606
    &[0xee],                                                             // 10b2: out dx, al
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 10b3: mov edx, 0x600
    &[0x8b, 0x03],                                                       // 10b8: mov eax, dword [rbx]
    &[0xef],                                                             // 10ba: out dx, eax
    // read-only memory, if r15 says that there is some
    &[0x41, 0xf6, 0xc7, 0x01],                                           // 10bb: test r15b, 0x1
    &[0x74, 0x14],                                                       // 10bf: je 10d5
    &[0xba, 0x07, 0x06, 0x00, 0x00],                                     // 10c1: mov edx, 0x607
    &[0xee],                                                             // 10c6: out dx, al
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 10c7: mov edx, 0x600
    &[0x8b, 0x03],                                                       // 10cc: mov eax, dword [rbx]
    &[0xef],                                                             // 10ce: out dx, eax
    &[0xc7, 0x03, 0x66, 0x66, 0x66, 0x66],                               // 10cf: mov dword [rbx], 0x66666666
    // a doorbell, if r15 says so
    &[0x41, 0xf6, 0xc7, 0x02],                                           // 10d5: test r15b, 0x2
    &[0x74, 0x06],                                                       // 10d9: je 10e1
    &[0xba, 0x09, 0x06, 0x00, 0x00],                                     // 10db: mov edx, 0x609
    &[0xee],                                                             // 10e0: out dx, al
    // a halt, and a spin that only a kick ends
    &[0xf4],                                                             // 10e1: hlt
    &[0x31, 0xc0],                                                       // 10e2: xor eax, eax
    &[0xba, 0x08, 0x06, 0x00, 0x00],                                     // 10e4: mov edx, 0x608
    &[0xee],                                                             // 10e9: out dx, al
    &[0xf3, 0x90],                                                       // 10ea: pause
    &[0x4d, 0x85, 0xf6],                                                 // 10ec: test r14, r14
    &[0x74, 0xf9],                                                       // 10ef: je 10ea
    &[0x4c, 0x89, 0xf0],                                                 // 10f1: mov rax, r14
    &[0xef],                                                             // 10f4: out dx, eax
    // an empty interrupt table, and a fault
    &[0x0f, 0x01, 0x1d, 0x05, 0x00, 0x00, 0x00],                         // 10f5: lidt [rip+0x5]
    &[0x0f, 0x0b],                                                       // 10fc: ud2
    &[0x61, 0x62, 0x63],                                                 // 10fe: "abc"
    &[0x00, 0x00, 0, 0, 0, 0, 0, 0, 0, 0],                               // 1101: limit 0, base 0
];

/// Interrupts: delivered, awaited by `hlt`, and awaited in a halt by the VMM.
#[rustfmt::skip]
pub(super) const INTERRUPTED: &[&[u8]] = &[
    // switch the local interrupt controller on
    &[0xbf, 0x00, 0x00, 0xe0, 0xfe],                                     // 1000: mov edi, 0xfee00000
    &[0xc7, 0x87, 0xf0, 0x00, 0x00, 0x00, 0xff, 0x01, 0x00, 0x00],       // 1005: mov dword [rdi+0xf0], 0x1ff
    &[0xfb],                                                             // 100f: sti
    // the VMM triggers the line here
    &[0xba, 0x01, 0x06, 0x00, 0x00],                                     // 1010: mov edx, 0x601
    &[0xee],                                                             // 1015: out dx, al
    // halted: kicked first, then interrupted
    &[0xba, 0x03, 0x06, 0x00, 0x00],                                     // 1016: mov edx, 0x603
    &[0xee],                                                             // 101b: out dx, al
    &[0xf4],                                                             // 101c: hlt
    // halted by the VMM: kicked first, then interrupted
    &[0xba, 0x04, 0x06, 0x00, 0x00],                                     // 101d: mov edx, 0x604
    &[0xee],                                                             // 1022: out dx, al
    // the end
    &[0xba, 0x05, 0x06, 0x00, 0x00],                                     // 1023: mov edx, 0x605
    &[0xee],                                                             // 1028: out dx, al
    &[0xf4],                                                             // 1029: hlt
    // the handler of vector 0x40, which ends the interrupt
    &[0x50],                                                             // 102a: push rax
    &[0x52],                                                             // 102b: push rdx
    &[0xba, 0x02, 0x06, 0x00, 0x00],                                     // 102c: mov edx, 0x602
    &[0xb0, 0x40],                                                       // 1031: mov al, 0x40
    &[0xee],                                                             // 1033: out dx, al
    &[0xc7, 0x87, 0xb0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],       // 1034: mov dword [rdi+0xb0], 0x0
    &[0x5a],                                                             // 103e: pop rdx
    &[0x58],                                                             // 103f: pop rax
    &[0x48, 0xcf],                                                       // 1040: iretq
];

/// Halts until interrupted. A halt without an exit may end by itself: on some CPUs any host interrupt ends
/// it.
#[rustfmt::skip]
pub(super) const HALTING: &[&[u8]] = &[
    // switch the local interrupt controller on
    &[0xbf, 0x00, 0x00, 0xe0, 0xfe],                                     // 1000: mov edi, 0xfee00000
    &[0xc7, 0x87, 0xf0, 0x00, 0x00, 0x00, 0xff, 0x01, 0x00, 0x00],       // 1005: mov dword [rdi+0xf0], 0x1ff
    &[0x90],                                                             // 100f: nop
    // halted: kicked first, then interrupted
    &[0xba, 0x03, 0x06, 0x00, 0x00],                                     // 1010: mov edx, 0x603
    &[0xee],                                                             // 1015: out dx, al
    &[0xfa],                                                             // 1016: cli
    &[0x4d, 0x85, 0xf6],                                                 // 1017: test r14, r14
    &[0x75, 0x04],                                                       // 101a: jne 1020
    &[0xfb],                                                             // 101c: sti
    &[0xf4],                                                             // 101d: hlt
    &[0xeb, 0xf6],                                                       // 101e: jmp 1016
    // the end
    &[0xba, 0x05, 0x06, 0x00, 0x00],                                     // 1020: mov edx, 0x605
    &[0xee],                                                             // 1025: out dx, al
    &[0xf4],                                                             // 1026: hlt
    &[0x90, 0x90, 0x90],                                                 // 1027: nop
    // the handler of vector 0x40, which ends the interrupt and counts it
    &[0x50],                                                             // 102a: push rax
    &[0x52],                                                             // 102b: push rdx
    &[0xba, 0x02, 0x06, 0x00, 0x00],                                     // 102c: mov edx, 0x602
    &[0xb0, 0x40],                                                       // 1031: mov al, 0x40
    &[0xee],                                                             // 1033: out dx, al
    &[0xc7, 0x87, 0xb0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],       // 1034: mov dword [rdi+0xb0], 0x0
    &[0x49, 0xff, 0xc6],                                                 // 103e: inc r14
    &[0x5a],                                                             // 1041: pop rdx
    &[0x58],                                                             // 1042: pop rax
    &[0x48, 0xcf],                                                       // 1043: iretq
];

/// Tables in memory: address and 64-bit value.
pub(super) fn tables() -> impl Iterator<Item = (u64, u64)> {
    const TABLE: u64 = 3; // present, writable
    const LARGE_PAGE: u64 = 0x83; // present, writable, 2 MiB
    const UNCACHED: u64 = 0x18;
    [
        (TOP_TABLE, GIGABYTES | TABLE),
        (GIGABYTES, LOW_MEGABYTES | TABLE),
        (GIGABYTES + 3 * 8, HIGH_MEGABYTES | TABLE),
        (LOW_MEGABYTES, LARGE_PAGE),
        (high_entry(0xfea0_0000), 0xfea0_0000 | LARGE_PAGE | UNCACHED),
        (high_entry(0xfec0_0000), 0xfec0_0000 | LARGE_PAGE | UNCACHED),
        (high_entry(0xfee0_0000), 0xfee0_0000 | LARGE_PAGE | UNCACHED),
        (SEGMENTS + 0x08, 0x00af_9b00_0000_ffff), // 64-bit code
        (SEGMENTS + 0x10, 0x00cf_9300_0000_ffff), // data
    ]
    .into_iter()
}

/// IDT entry of `vector`, an interrupt gate.
pub(super) fn gate((vector, handler): (u8, u64)) -> (u64, u64) {
    let low = 0x0000_8e00_0008_0000 | (handler & 0xffff) | (handler & 0xffff_0000) << 32;
    (INTERRUPTS + u64::from(vector) * 16, low)
}

/// Address of the page directory entry of `address`, in the fourth gigabyte.
const fn high_entry(address: u64) -> u64 {
    HIGH_MEGABYTES + (address >> 21 & 511) * 8
}

/// 64-bit mode at ring 0, interrupts off, at the first instruction.
pub(super) fn boot_state() -> BootState {
    let data = segment(0x10, 0xc93);
    BootState {
        general: General {
            rip: CODE,
            rsp: STACK,
            rflags: 2,
            ..General::default()
        },
        system: System {
            cs: segment(0x08, 0xa9b),
            ds: data,
            es: data,
            fs: data,
            gs: data,
            ss: data,
            tr: Segment {
                limit: 0x67,
                ..segment(0, 0x8b)
            },
            ldt: Segment {
                limit: 0,
                ..segment(0, 0x82)
            },
            gdt: Table {
                base: SEGMENTS,
                limit: 0x17,
            },
            idt: Table {
                base: INTERRUPTS,
                limit: 0xfff,
            },
            cr0: 0x8000_0033, // paging, numeric errors, extension type, monitoring, protection
            cr2: 0,
            cr3: TOP_TABLE,
            cr4: 0x20,   // physical address extension
            efer: 0x500, // long mode, enabled and active
        },
    }
}

fn segment(selector: u16, attributes: u16) -> Segment {
    Segment {
        selector,
        attributes,
        limit: u32::MAX,
        base: 0,
    }
}
