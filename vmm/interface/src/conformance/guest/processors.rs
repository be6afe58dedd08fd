//! A guest of two vCPUs: the first starts the second, interrupts it, and changes the page that the second
//! reads. A step counter in memory synchronizes them.

/// Length of guest memory.
pub(in crate::conformance) const MEMORY: usize = 0xd000;
/// Start address of vCPU 1, in real mode.
pub(in crate::conformance) const REAL: u64 = 0xb000;
/// Handlers by vector.
pub(in crate::conformance) const HANDLERS: [(u8, u64); 2] = [(0x41, 0x10f9), (0x42, 0x1105)];
const PAGE_TABLE: u64 = 0x8000;
const ONE_PAGE: u64 = 0x9000;
const OTHER_PAGE: u64 = 0xa000;

/// Additional tables: at 2 MiB a page that maps one of two frames.
pub(in crate::conformance) const WORDS: [(u64, u64); 4] = [
    (super::LOW_MEGABYTES + 8, PAGE_TABLE | 3),
    (PAGE_TABLE, ONE_PAGE | 3),
    (ONE_PAGE, 0x1111_1111),
    (OTHER_PAGE, 0x2222_2222),
];

/// 64-bit code of both vCPUs.
#[rustfmt::skip]
pub(in crate::conformance) const CODE: &[&[u8]] = &[
    // vCPU 0: switch the local interrupt controller on
    &[0xbf, 0x00, 0x00, 0xe0, 0xfe],                                     // 1000: mov edi, 0xfee00000
    &[0xc7, 0x87, 0xf0, 0x00, 0x00, 0x00, 0xff, 0x01, 0x00, 0x00],       // 1005: mov dword [rdi+0xf0], 0x1ff
    &[0xbd, 0x00, 0xc0, 0x00, 0x00],                                     // 100f: mov ebp, 0xc000
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 1014: mov edx, 0x600
    &[0xb0, 0x01],                                                       // 1019: mov al, 0x1
    &[0xee],                                                             // 101b: out dx, al
    // to vCPU 1: INIT, then start at page 0xb
    &[0xc7, 0x87, 0x10, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01],       // 101c: mov dword [rdi+0x310], 0x1000000
    &[0xc7, 0x87, 0x00, 0x03, 0x00, 0x00, 0x00, 0x45, 0x00, 0x00],       // 1026: mov dword [rdi+0x300], 0x4500
    &[0xc7, 0x87, 0x00, 0x03, 0x00, 0x00, 0x0b, 0x46, 0x00, 0x00],       // 1030: mov dword [rdi+0x300], 0x460b
    // step 1: it is in 64-bit mode and hears interrupts
    &[0xbb, 0x01, 0x00, 0x00, 0x00],                                     // 103a: mov ebx, 0x1
    &[0xe8, 0x5b, 0x00, 0x00, 0x00],                                     // 103f: call 109f
    &[0xb0, 0x02],                                                       // 1044: mov al, 0x2
    &[0xee],                                                             // 1046: out dx, al
    // step 2: it has got vector 0x41
    &[0xc7, 0x87, 0x00, 0x03, 0x00, 0x00, 0x41, 0x40, 0x00, 0x00],       // 1047: mov dword [rdi+0x300], 0x4041
    &[0xff, 0xc3],                                                       // 1051: inc ebx
    &[0xe8, 0x47, 0x00, 0x00, 0x00],                                     // 1053: call 109f
    &[0xb0, 0x03],                                                       // 1058: mov al, 0x3
    &[0xee],                                                             // 105a: out dx, al
    // steps 3 to 5: the other page in place of the one, announced by vector 0x42
    &[0xb9, 0x03, 0x00, 0x00, 0x00],                                     // 105b: mov ecx, 0x3
    &[0x81, 0x34, 0x25, 0x00, 0x80, 0x00, 0x00, 0x00, 0x30, 0x00, 0x00], // 1060: xor dword 0x8000, 0x3000
    &[0xc7, 0x87, 0x00, 0x03, 0x00, 0x00, 0x42, 0x40, 0x00, 0x00],       // 106b: mov dword [rdi+0x300], 0x4042
    &[0xff, 0xc3],                                                       // 1075: inc ebx
    &[0xe8, 0x23, 0x00, 0x00, 0x00],                                     // 1077: call 109f
    &[0xff, 0xc9],                                                       // 107c: dec ecx
    &[0x75, 0xe0],                                                       // 107e: jne 1060
    &[0xb0, 0x04],                                                       // 1080: mov al, 0x4
    &[0xee],                                                             // 1082: out dx, al
    // step 6: it halts; step 7: vector 0x41 has ended that
    &[0xff, 0xc3],                                                       // 1083: inc ebx
    &[0xe8, 0x15, 0x00, 0x00, 0x00],                                     // 1085: call 109f
    &[0xc7, 0x87, 0x00, 0x03, 0x00, 0x00, 0x41, 0x40, 0x00, 0x00],       // 108a: mov dword [rdi+0x300], 0x4041
    &[0xff, 0xc3],                                                       // 1094: inc ebx
    &[0xe8, 0x04, 0x00, 0x00, 0x00],                                     // 1096: call 109f
    &[0xb0, 0x05],                                                       // 109b: mov al, 0x5
    &[0xee],                                                             // 109d: out dx, al
    &[0xf4],                                                             // 109e: hlt
    // waits until vCPU 1 has come to step ebx
    &[0xf3, 0x90],                                                       // 109f: pause
    &[0x39, 0x5d, 0x00],                                                 // 10a1: cmp dword [rbp], ebx
    &[0x72, 0xf9],                                                       // 10a4: jb 109f
    &[0xc3],                                                             // 10a6: ret
    // vCPU 1 in 64-bit mode
    &[0xb8, 0x10, 0x00, 0x00, 0x00],                                     // 10a7: mov eax, 0x10
    &[0x8e, 0xd8],                                                       // 10ac: mov ds, eax
    &[0x8e, 0xc0],                                                       // 10ae: mov es, eax
    &[0x8e, 0xd0],                                                       // 10b0: mov ss, eax
    &[0xbc, 0x00, 0xd0, 0x00, 0x00],                                     // 10b2: mov esp, 0xd000
    &[0x0f, 0x01, 0x1c, 0x25, 0x26, 0x11, 0x00, 0x00],                   // 10b7: lidt 0x1126
    &[0xbf, 0x00, 0x00, 0xe0, 0xfe],                                     // 10bf: mov edi, 0xfee00000
    &[0xc7, 0x87, 0xf0, 0x00, 0x00, 0x00, 0xff, 0x01, 0x00, 0x00],       // 10c4: mov dword [rdi+0xf0], 0x1ff
    &[0xbd, 0x00, 0xc0, 0x00, 0x00],                                     // 10ce: mov ebp, 0xc000
    &[0xbe, 0x00, 0x00, 0x20, 0x00],                                     // 10d3: mov esi, 0x200000
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 10d8: mov edx, 0x600
    &[0xb0, 0x64],                                                       // 10dd: mov al, 0x64
    &[0xee],                                                             // 10df: out dx, al
    // what it reads before the page is changed
    &[0x8b, 0x06],                                                       // 10e0: mov eax, dword [rsi]
    &[0xef],                                                             // 10e2: out dx, eax
    &[0xfb],                                                             // 10e3: sti
    &[0xff, 0x45, 0x00],                                                 // 10e4: inc dword [rbp]
    // reads on, so that its TLB holds the page, until step 5
    &[0x8b, 0x06],                                                       // 10e7: mov eax, dword [rsi]
    &[0x83, 0x7d, 0x00, 0x05],                                           // 10e9: cmp dword [rbp], 0x5
    &[0x72, 0xf8],                                                       // 10ed: jb 10e7
    // halts until vector 0x41 arrives
    &[0xfa],                                                             // 10ef: cli
    &[0xff, 0x45, 0x00],                                                 // 10f0: inc dword [rbp]
    &[0xfb],                                                             // 10f3: sti
    &[0xf4],                                                             // 10f4: hlt
    &[0xb0, 0x65],                                                       // 10f5: mov al, 0x65
    &[0xee],                                                             // 10f7: out dx, al
    &[0xf4],                                                             // 10f8: hlt
    // the handler of vector 0x41
    &[0x50],                                                             // 10f9: push rax
    &[0x52],                                                             // 10fa: push rdx
    &[0xba, 0x02, 0x06, 0x00, 0x00],                                     // 10fb: mov edx, 0x602
    &[0xb0, 0x41],                                                       // 1100: mov al, 0x41
    &[0xee],                                                             // 1102: out dx, al
    &[0xeb, 0x10],                                                       // 1103: jmp 1115
    // the handler of vector 0x42: forgets the mapping and reads through it
    &[0x50],                                                             // 1105: push rax
    &[0x52],                                                             // 1106: push rdx
    &[0xba, 0x02, 0x06, 0x00, 0x00],                                     // 1107: mov edx, 0x602
    &[0xb0, 0x42],                                                       // 110c: mov al, 0x42
    &[0xee],                                                             // 110e: out dx, al
    &[0x0f, 0x01, 0x3e],                                                 // 110f: invlpg [rsi]
    &[0x8b, 0x06],                                                       // 1112: mov eax, dword [rsi]
    &[0xef],                                                             // 1114: out dx, eax
    // ends the interrupt, and then the step
    &[0xc7, 0x87, 0xb0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],       // 1115: mov dword [rdi+0xb0], 0x0
    &[0xff, 0x45, 0x00],                                                 // 111f: inc dword [rbp]
    &[0x5a],                                                             // 1122: pop rdx
    &[0x58],                                                             // 1123: pop rax
    &[0x48, 0xcf],                                                       // 1124: iretq
    &[0xff, 0x0f, 0x00, 0x60, 0x00, 0x00, 0x00, 0x00, 0x00],             // 1126: limit and base of the interrupt table
];

/// Real-mode code of vCPU 1.
#[rustfmt::skip]
pub(in crate::conformance) const REAL_CODE: &[&[u8]] = &[
    // at 0xb000: vCPU 1 in real mode
    &[0xba, 0x00, 0x06],                                                 // b000: mov dx, 0x600
    &[0xb0, 0x16],                                                       // b003: mov al, 0x16
    &[0xee],                                                             // b005: out dx, al
    // the tables and registers that vCPU 0 has, and into 64-bit mode
    &[0x2e, 0x0f, 0x01, 0x16, 0x3c, 0x00],                               // b006: lgdt cs:0x3c
    &[0x66, 0xb8, 0x20, 0x00, 0x00, 0x00],                               // b00c: mov eax, 0x20
    &[0x0f, 0x22, 0xe0],                                                 // b012: mov cr4, eax
    &[0x66, 0xb8, 0x00, 0x20, 0x00, 0x00],                               // b015: mov eax, 0x2000
    &[0x0f, 0x22, 0xd8],                                                 // b01b: mov cr3, eax
    &[0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0],                               // b01e: mov ecx, 0xc0000080
    &[0x0f, 0x32],                                                       // b024: rdmsr
    &[0x80, 0xcc, 0x01],                                                 // b026: or ah, 0x1
    &[0x0f, 0x30],                                                       // b029: wrmsr
    &[0x66, 0xb8, 0x33, 0x00, 0x00, 0x80],                               // b02b: mov eax, 0x80000033
    &[0x0f, 0x22, 0xc0],                                                 // b031: mov cr0, eax
    &[0x66, 0xea, 0xa7, 0x10, 0x00, 0x00, 0x08, 0x00],                   // b034: jmp 0x8:0x10a7
    &[0x17, 0x00, 0x00, 0x70, 0x00],                                     // b03c: limit and base of the segment table
];
