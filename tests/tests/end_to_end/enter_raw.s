/* A multiboot kernel (Multiboot Specification 0.6.96, 3.1: with addresses in its header) that enters a flat
   binary at {TARGET} in protected mode, or in long mode with the first GiB mapped to itself. */

.pushsection .rodata.trapline_enter_raw, "a"
.balign 16
.globl trapline_enter_raw
trapline_enter_raw:
        .long   0x1badb002, 1 << 16, -(0x1badb002 + (1 << 16))
        .long   {ADDRESS}               /* of this header */
        .long   {ADDRESS}, 0, 0         /* the whole file is loaded there */
.org trapline_enter_raw + {ENTRY}
        .long   0                       /* replaced by the address of one of the following entries */

.org trapline_enter_raw + {PROTECTED}
.code32
        mov     eax, {TARGET}
        jmp     eax

.org trapline_enter_raw + {LONG}
        lea     edi, [{ADDRESS} + {TABLES} + 0x2000]
        mov     eax, 0x83               /* pages of 2 MiB, present, writable */
        mov     ecx, 512
1:      mov     [edi], eax
        mov     dword ptr [edi + 4], 0
        add     eax, 0x200000
        add     edi, 8
        dec     ecx
        jnz     1b
        mov     eax, {ADDRESS} + {TABLES}
        mov     dword ptr [eax], {ADDRESS} + {TABLES} + 0x1003
        mov     [eax + 4], ecx
        mov     dword ptr [eax + 0x1000], {ADDRESS} + {TABLES} + 0x2003
        mov     [eax + 0x1004], ecx
        mov     cr3, eax
        mov     eax, cr4
        or      eax, 0x20               /* PAE */
        mov     cr4, eax
        mov     ecx, 0xc0000080         /* EFER */
        rdmsr
        or      eax, 0x100              /* LME */
        wrmsr
        mov     eax, cr0
        or      eax, 0x80000000         /* PG */
        mov     cr0, eax
        lgdt    [{ADDRESS} + {LIMIT}]
        mov     esp, {ADDRESS} + {TABLES}
        push    8
        push    {ADDRESS} + {FLAT}
        retf

.org trapline_enter_raw + {FLAT}
.code64
        mov     eax, {TARGET}
        jmp     rax

.org trapline_enter_raw + {TABLE}
        .quad   0
        .quad   0x00af9b000000ffff      /* code, 64 bits */
.org trapline_enter_raw + {LIMIT}
        .word   15
        .long   {ADDRESS} + {TABLE}
.org trapline_enter_raw + {SIZE}
.popsection
