//! A guest that takes interrupts from lines and pins, running and halted.

/// Handlers by vector.
pub(in crate::conformance) const HANDLERS: [(u8, u64); 3] =
    [(0x40, 0x1096), (0x42, 0x109b), (0x80, 0x10a0)];
/// Pin routed to vector 0x42. Pins below 16 also lead to the PIC, which is not masked.
pub(in crate::conformance) const PIN: u8 = 20;

#[rustfmt::skip]
pub(in crate::conformance) const CODE: &[&[u8]] = &[
    // switch the local interrupt controller on
    &[0xbf, 0x00, 0x00, 0xe0, 0xfe],                                     // 1000: mov edi, 0xfee00000
    &[0xc7, 0x87, 0xf0, 0x00, 0x00, 0x00, 0xff, 0x01, 0x00, 0x00],       // 1005: mov dword [rdi+0xf0], 0x1ff
    // pin 20 of the other one: vector 0x42 at vCPU 0, by edges
    &[0xbb, 0x00, 0x00, 0xc0, 0xfe],                                     // 100f: mov ebx, 0xfec00000
    &[0xc7, 0x03, 0x39, 0x00, 0x00, 0x00],                               // 1014: mov dword [rbx], 0x39
    &[0xc7, 0x43, 0x10, 0x00, 0x00, 0x00, 0x00],                         // 101a: mov dword [rbx+0x10], 0x0
    &[0xc7, 0x03, 0x38, 0x00, 0x00, 0x00],                               // 1021: mov dword [rbx], 0x38
    &[0xc7, 0x43, 0x10, 0x42, 0x00, 0x00, 0x00],                         // 1027: mov dword [rbx+0x10], 0x42
    &[0x8b, 0x43, 0x10],                                                 // 102e: mov eax, dword [rbx+0x10]
    &[0xba, 0x00, 0x06, 0x00, 0x00],                                     // 1031: mov edx, 0x600
    &[0xef],                                                             // 1036: out dx, eax
    // the VMM triggers vector 0x40 three times and 0x80 once; interrupts are off
    &[0xba, 0x01, 0x06, 0x00, 0x00],                                     // 1037: mov edx, 0x601
    &[0xee],                                                             // 103c: out dx, al
    &[0xba, 0x03, 0x06, 0x00, 0x00],                                     // 103d: mov edx, 0x603
    &[0xee],                                                             // 1042: out dx, al
    // both arrive once, the higher vector first
    &[0xfb],                                                             // 1043: sti
    &[0xf3, 0x90],                                                       // 1044: pause
    &[0x49, 0x83, 0xfe, 0x02],                                           // 1046: cmp r14, 0x2
    &[0x72, 0xf8],                                                       // 104a: jb 1044
    &[0xfa],                                                             // 104c: cli
    // three times the VMM triggers the pin, and the guest waits for it awake
    &[0xb9, 0x03, 0x00, 0x00, 0x00],                                     // 104d: mov ecx, 0x3
    &[0x4d, 0x89, 0xf5],                                                 // 1052: mov r13, r14
    &[0xfb],                                                             // 1055: sti
    &[0xba, 0x04, 0x06, 0x00, 0x00],                                     // 1056: mov edx, 0x604
    &[0xee],                                                             // 105b: out dx, al
    &[0xf3, 0x90],                                                       // 105c: pause
    &[0x4d, 0x39, 0xf5],                                                 // 105e: cmp r13, r14
    &[0x74, 0xf9],                                                       // 1061: je 105c
    &[0xfa],                                                             // 1063: cli
    &[0xff, 0xc9],                                                       // 1064: dec ecx
    &[0x75, 0xea],                                                       // 1066: jne 1052
    // a while later, to the halted guest, the pin
    &[0x4d, 0x89, 0xf5],                                                 // 1068: mov r13, r14
    &[0xba, 0x06, 0x06, 0x00, 0x00],                                     // 106b: mov edx, 0x606
    &[0xee],                                                             // 1070: out dx, al
    &[0xe8, 0x15, 0x00, 0x00, 0x00],                                     // 1071: call 108b
    // a while later, to the halted guest, vector 0x80
    &[0x4d, 0x89, 0xf5],                                                 // 1076: mov r13, r14
    &[0xba, 0x07, 0x06, 0x00, 0x00],                                     // 1079: mov edx, 0x607
    &[0xee],                                                             // 107e: out dx, al
    &[0xe8, 0x07, 0x00, 0x00, 0x00],                                     // 107f: call 108b
    // the end
    &[0xba, 0x05, 0x06, 0x00, 0x00],                                     // 1084: mov edx, 0x605
    &[0xee],                                                             // 1089: out dx, al
    &[0xf4],                                                             // 108a: hlt
    // halts until it was interrupted
    &[0x4d, 0x39, 0xf5],                                                 // 108b: cmp r13, r14
    &[0x75, 0x05],                                                       // 108e: jne 1095
    &[0xfb],                                                             // 1090: sti
    &[0xf4],                                                             // 1091: hlt
    &[0xfa],                                                             // 1092: cli
    &[0xeb, 0xf6],                                                       // 1093: jmp 108b
    &[0xc3],                                                             // 1095: ret
    // the handlers, which end the interrupt and count it
    &[0x50],                                                             // 1096: push rax
    &[0xb0, 0x40],                                                       // 1097: mov al, 0x40
    &[0xeb, 0x08],                                                       // 1099: jmp 10a3
    &[0x50],                                                             // 109b: push rax
    &[0xb0, 0x42],                                                       // 109c: mov al, 0x42
    &[0xeb, 0x03],                                                       // 109e: jmp 10a3
    &[0x50],                                                             // 10a0: push rax
    &[0xb0, 0x80],                                                       // 10a1: mov al, 0x80
    &[0x52],                                                             // 10a3: push rdx
    &[0xba, 0x02, 0x06, 0x00, 0x00],                                     // 10a4: mov edx, 0x602
    &[0xee],                                                             // 10a9: out dx, al
    &[0x49, 0xff, 0xc6],                                                 // 10aa: inc r14
    &[0xc7, 0x87, 0xb0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],       // 10ad: mov dword [rdi+0xb0], 0x0
    &[0x5a],                                                             // 10b7: pop rdx
    &[0x58],                                                             // 10b8: pop rax
    &[0x48, 0xcf],                                                       // 10b9: iretq
];
