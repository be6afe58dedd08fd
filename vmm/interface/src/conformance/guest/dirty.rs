//! A guest with dirty tracking.

/// Uses [`PAGES`] pages at [`super::WINDOW`].
#[rustfmt::skip]
pub(in crate::conformance) const CODE: &[&[u8]] = &[
    &[0xbb, 0x00, 0x00, 0x10, 0x00],                                     // 1000: mov ebx, 0x100000
    // touches each of the 70 pages, and the VMM forgets what that brought
    &[0x89, 0xde],                                                       // 1005: mov esi, ebx
    &[0xb9, 0x46, 0x00, 0x00, 0x00],                                     // 1007: mov ecx, 0x46
    &[0x8b, 0x06],                                                       // 100c: mov eax, dword [rsi]
    &[0x81, 0xc6, 0x00, 0x10, 0x00, 0x00],                               // 100e: add esi, 0x1000
    &[0xff, 0xc9],                                                       // 1014: dec ecx
    &[0x75, 0xf4],                                                       // 1016: jne 100c
    &[0xba, 0x04, 0x06, 0x00, 0x00],                                     // 1018: mov edx, 0x604
    &[0xee],                                                             // 101d: out dx, al
    &[0xba, 0x05, 0x06, 0x00, 0x00],                                     // 101e: mov edx, 0x605
    // writes to pages 1, 3 and 4 at once, 64 and 69; page 2 is only read
    &[0xc6, 0x83, 0x00, 0x10, 0x00, 0x00, 0x01],                         // 1023: mov byte [rbx+0x1000], 0x1
    &[0x48, 0x89, 0x83, 0xfc, 0x3f, 0x00, 0x00],                         // 102a: mov qword [rbx+0x3ffc], rax
    &[0x8b, 0x83, 0x00, 0x20, 0x00, 0x00],                               // 1031: mov eax, dword [rbx+0x2000]
    &[0x66, 0x89, 0x83, 0x00, 0x08, 0x04, 0x00],                         // 1037: mov word [rbx+0x40800], ax
    &[0x89, 0x83, 0xfc, 0x5f, 0x04, 0x00],                               // 103e: mov dword [rbx+0x45ffc], eax
    &[0xee],                                                             // 1044: out dx, al
    // only reads
    &[0x8b, 0x83, 0x00, 0x10, 0x00, 0x00],                               // 1045: mov eax, dword [rbx+0x1000]
    &[0x8b, 0x83, 0xfc, 0x5f, 0x04, 0x00],                               // 104b: mov eax, dword [rbx+0x45ffc]
    &[0xee],                                                             // 1051: out dx, al
    // again to page 1; an exchange in page 65; what the kernel stores for the guest in 67
    &[0xc6, 0x83, 0x01, 0x10, 0x00, 0x00, 0x02],                         // 1052: mov byte [rbx+0x1001], 0x2
    &[0xf0, 0x0f, 0xc1, 0x83, 0x00, 0x10, 0x04, 0x00],                   // 1059: lock xadd dword [rbx+0x41000], eax
    &[0x8d, 0xbb, 0x00, 0x30, 0x04, 0x00],                               // 1061: lea edi, [rbx+0x43000]
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 1067: mov edx, 0x600
    &[0x6c],                                                             // 106c: ins byte [rdi], dx
    // the VMM asks, and tracks no longer
    &[0xba, 0x06, 0x06, 0x00, 0x00],                                     // 106d: mov edx, 0x606
    &[0xee],                                                             // 1072: out dx, al
    // to page 5, not tracked; the VMM tracks again
    &[0xc6, 0x83, 0x00, 0x50, 0x00, 0x00, 0x03],                         // 1073: mov byte [rbx+0x5000], 0x3
    &[0xba, 0x07, 0x06, 0x00, 0x00],                                     // 107a: mov edx, 0x607
    &[0xee],                                                             // 107f: out dx, al
    // to page 6
    &[0xc6, 0x83, 0x00, 0x60, 0x00, 0x00, 0x04],                         // 1080: mov byte [rbx+0x6000], 0x4
    &[0xba, 0x05, 0x06, 0x00, 0x00],                                     // 1087: mov edx, 0x605
    &[0xee],                                                             // 108c: out dx, al
    &[0xf4],                                                             // 108d: hlt
];

/// Number of tracked pages: more than one word of the log.
pub(in crate::conformance) const PAGES: usize = 70;
