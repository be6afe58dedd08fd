/* What a VMM finds where it expects Linux, and how it gets from there to the
   image's PVH entry. It runs wherever it was loaded, on no stack but its own, and
   is data to the program that carries it: no instruction here is ever reached
   there.

   esi, rsi: boot_params (Linux Documentation/arch/x86/zero-page.rst)
   ebp: where this was loaded */

.pushsection .rodata.trapline_shim, "a"
.balign 16
.globl trapline_shim
trapline_shim:

/* The 32-bit entry: protected mode, flat segments, paging off. */
.code32
        jmp     .Lshim_protected

/* Filled in by the one who wraps an image. */
.org trapline_shim + 8
        .long   0               /* the image's first address */
        .long   0               /* its length in words of four bytes */
        .long   0               /* its PVH entry */

.Lshim_protected:
        cli
        cld
        mov     eax, ds
        mov     ss, eax
        /* boot_params.scratch is there for this one word. */
        lea     esp, [esi + 0x1e8]
.org trapline_shim + {HERE} - 5, 0x90           /* room for the call, behind no-ops */
        call    .Lshim_here
.Lshim_here:
        pop     ebp
        sub     ebp, {HERE}

/* Moves the image home and tells it in PVH's words what boot_params says in
   Linux's. What is told lies at the far end of the image's boot stack. */
.Lshim_home:
        mov     ebx, esi
        lea     esi, [ebp + {SHIM}]
        mov     edi, [ebp + 8]
        mov     ecx, [ebp + 12]
        cmp     esi, edi
        jae     .Lshim_move
        /* Home may begin within the image: from the end, then. */
        lea     esi, [esi + ecx * 4 - 4]
        lea     edi, [edi + ecx * 4 - 4]
        std
.Lshim_move:
        rep movsd
        cld

        mov     edi, {INFO}
        mov     ecx, {INFO_WORDS}
        xor     eax, eax
        rep stosd
        mov     edi, {INFO}
        mov     dword ptr [edi], {MAGIC}
        mov     dword ptr [edi + 4], 1
        mov     eax, [ebx + 0x228]              /* cmd_line_ptr */
        mov     [edi + 24], eax
        mov     eax, [ebx + 0x70]               /* acpi_rsdp_addr */
        mov     [edi + 32], eax
        mov     dword ptr [edi + 40], {INFO} + {INFO_WORDS} * 4
        movzx   ecx, byte ptr [ebx + 0x1e8]     /* e820_entries */
        mov     [edi + 48], ecx

        /* Entries of an E820 map, 20 bytes each, become 24 bytes each. */
        lea     esi, [ebx + 0x2d0]              /* e820_table */
        lea     edi, [edi + {INFO_WORDS} * 4]
        mov     edx, ecx
        xor     eax, eax
.Lshim_next:
        test    edx, edx
        jz      .Lshim_enter
        mov     ecx, 5
        rep movsd
        stosd
        dec     edx
        jmp     .Lshim_next

.Lshim_enter:
        mov     ebx, {INFO}
        jmp     dword ptr [ebp + 16]

/* The 64-bit entry: long mode, the first memory mapped to itself. */
.org trapline_shim + {LONG_MODE}
.code64
        cli
        cld
        lea     rbp, [rip + trapline_shim]
        lea     rsp, [rip + .Lshim_stack]
        lea     rax, [rip + .Lshim_table]
        mov     [rip + .Lshim_limit + 2], rax
        lgdt    [rip + .Lshim_limit]
        lea     rax, [rip + .Lshim_compatible]
        push    8
        push    rax
        retfq

/* Long mode is left: paging, then the mode, then its page tables' format. */
.code32
.Lshim_compatible:
        mov     eax, 16
        mov     ds, eax
        mov     es, eax
        mov     ss, eax
        mov     eax, cr0
        and     eax, 0x7fffffff
        mov     cr0, eax
        mov     ecx, 0xc0000080                 /* EFER */
        rdmsr
        and     eax, 0xfffffeff                 /* LME */
        wrmsr
        xor     eax, eax
        mov     cr4, eax
        jmp     .Lshim_home

.balign 8
.Lshim_table:
        .quad   0
        .quad   0x00cf9b000000ffff              /* code, 32 bits, all memory */
        .quad   0x00cf93000000ffff              /* data, all memory */
.Lshim_limit:
        .word   23
        .quad   0
.balign 16
        .skip   64
.Lshim_stack:
.org trapline_shim + {SHIM}
.code64
.popsection
