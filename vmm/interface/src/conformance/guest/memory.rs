//! A guest with accesses that are more than a load or a store.

/// One page is attached at [`super::WINDOW`], another at [`READ_ONLY`] if `r15` is set; a gap lies between.
#[rustfmt::skip]
pub(in crate::conformance) const CODE: &[&[u8]] = &[
    // an instruction that reads and writes: both show
    &[0xbf, 0x00, 0x00, 0xb0, 0xfe],                                     // 1000: mov edi, 0xfeb00000
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 1005: mov edx, 0x600
    &[0x83, 0x07, 0x05],                                                 // 100a: add dword [rdi], 0x5
    &[0x80, 0x4f, 0x08, 0x80],                                           // 100d: or byte [rdi+0x8], 0x80
    // an exchange, which locks by itself
    &[0xb8, 0x0d, 0xf0, 0x0d, 0x60],                                     // 1011: mov eax, 0x600df00d
    &[0x87, 0x47, 0x10],                                                 // 1016: xchg dword [rdi+0x10], eax
    &[0xef],                                                             // 1019: out dx, eax
    // a comparison only reads
    &[0x66, 0x81, 0x7f, 0x18, 0x34, 0x12],                               // 101a: cmp word [rdi+0x18], 0x1234
    &[0x0f, 0x94, 0xc0],                                                 // 1020: sete al
    &[0xee],                                                             // 1023: out dx, al
    // from outside to the stack
    &[0xff, 0x77, 0x20],                                                 // 1024: push qword [rdi+0x20]
    &[0x58],                                                             // 1027: pop rax
    &[0xef],                                                             // 1028: out dx, eax
    // strings of words: each element is an exit of its own
    &[0x48, 0xb8, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44],       // 1029: mov rax, 0x4444333322221111
    &[0x48, 0x89, 0x04, 0x25, 0x00, 0x18, 0x00, 0x00],                   // 1033: mov qword 0x1800, rax
    &[0xbe, 0x00, 0x18, 0x00, 0x00],                                     // 103b: mov esi, 0x1800
    &[0xbf, 0x30, 0x00, 0xb0, 0xfe],                                     // 1040: mov edi, 0xfeb00030
    &[0xb9, 0x02, 0x00, 0x00, 0x00],                                     // 1045: mov ecx, 0x2
    &[0xf3, 0xa5],                                                       // 104a: rep movs dword [rdi], dword [rsi]
    &[0xbf, 0x00, 0x00, 0xb0, 0xfe],                                     // 104c: mov edi, 0xfeb00000
    // addresses that are no multiple of the size
    &[0x66, 0x89, 0x47, 0x43],                                           // 1051: mov word [rdi+0x43], ax
    &[0x8b, 0x47, 0x46],                                                 // 1055: mov eax, dword [rdi+0x46]
    &[0xef],                                                             // 1058: out dx, eax
    // across two pages: one exit for each, the lower first
    &[0x48, 0xb8, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],       // 1059: mov rax, 0x8877665544332211
    &[0x48, 0x89, 0x87, 0xfc, 0x0f, 0x00, 0x00],                         // 1063: mov qword [rdi+0xffc], rax
    &[0x48, 0x8b, 0x87, 0xfc, 0x0f, 0x00, 0x00],                         // 106a: mov rax, qword [rdi+0xffc]
    &[0xef],                                                             // 1071: out dx, eax
    &[0x48, 0xc1, 0xe8, 0x20],                                           // 1072: shr rax, 0x20
    &[0xef],                                                             // 1076: out dx, eax
    // across the end of memory: what lies within is stored and read without an exit
    &[0xbb, 0xfc, 0x0f, 0x10, 0x00],                                     // 1077: mov ebx, 0x100ffc
    &[0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],       // 107c: mov rax, 0x1122334455667788
    &[0x48, 0x89, 0x03],                                                 // 1086: mov qword [rbx], rax
    &[0x48, 0x8b, 0x03],                                                 // 1089: mov rax, qword [rbx]
    &[0xef],                                                             // 108c: out dx, eax
    &[0x48, 0xc1, 0xe8, 0x20],                                           // 108d: shr rax, 0x20
    &[0xef],                                                             // 1091: out dx, eax
    // writes of each size to read-only memory, if r15 says that there is some
    &[0x41, 0xf6, 0xc7, 0x01],                                           // 1092: test r15b, 0x1
    &[0x74, 0x23],                                                       // 1096: je 10bb
    &[0xbb, 0x00, 0x20, 0x10, 0x00],                                     // 1098: mov ebx, 0x102000
    &[0x48, 0xb8, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],       // 109d: mov rax, 0x8877665544332211
    &[0x88, 0x03],                                                       // 10a7: mov byte [rbx], al
    &[0x66, 0x89, 0x43, 0x02],                                           // 10a9: mov word [rbx+0x2], ax
    &[0x89, 0x43, 0x04],                                                 // 10ad: mov dword [rbx+0x4], eax
    &[0x48, 0x89, 0x43, 0x08],                                           // 10b0: mov qword [rbx+0x8], rax
    // its contents are what they were
    &[0x8b, 0x43, 0x08],                                                 // 10b4: mov eax, dword [rbx+0x8]
    &[0xef],                                                             // 10b7: out dx, eax
    // of an instruction that reads and writes only the write shows
    &[0x83, 0x03, 0x01],                                                 // 10b8: add dword [rbx], 0x1
    // the end
    &[0x31, 0xc0],                                                       // 10bb: xor eax, eax
    &[0xba, 0x05, 0x06, 0x00, 0x00],                                     // 10bd: mov edx, 0x605
    &[0xee],                                                             // 10c2: out dx, al
    &[0xf4],                                                             // 10c3: hlt
];

/// Address of read-only memory.
pub(in crate::conformance) const READ_ONLY: u64 = 0x10_2000;
