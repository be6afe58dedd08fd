/* The real-mode entry, for firmware and VMMs that start where a boot loader
   would: it asks the BIOS for the memory map and enters the 32-bit code. The
   setup header lies in its segment where boot_params has it, so that segment
   becomes boot_params. This code follows, from {SETUP} on.

   ds, ss: this segment */

.pushsection .rodata.trapline_setup, "a"
.balign 16
.globl trapline_setup
trapline_setup:
.code16
        cld
        mov     ax, ds
        mov     es, ax
        mov     di, 0x2d0                       /* e820_table */
        xor     ebx, ebx
        xor     bp, bp
.Lsetup_ask:
        mov     eax, 0xe820
        mov     ecx, 20
        mov     edx, 0x534d4150                 /* "SMAP" */
        int     0x15
        jc      .Lsetup_asked
        cmp     eax, 0x534d4150
        jne     .Lsetup_asked
        add     di, 20
        inc     bp
        cmp     bp, 128
        je      .Lsetup_asked
        test    ebx, ebx
        jnz     .Lsetup_ask
.Lsetup_asked:
        mov     ax, bp
        mov     byte ptr ds:[0x1e8], al         /* e820_entries */

        /* Protected mode, with the segments that the protocol asks for. */
        cli
        xor     esi, esi
        mov     si, ds
        shl     esi, 4
        lea     eax, [esi + {SETUP} + {TABLE}]
        mov     dword ptr ds:[{SETUP} + {LIMIT} + 2], eax
        lgdt    ds:[{SETUP} + {LIMIT}]
        mov     ecx, dword ptr ds:[0x214]       /* code32_start */
        mov     eax, cr0
        or      al, 1
        mov     cr0, eax
        mov     dx, 0x18
        mov     ds, dx
        mov     es, dx
        mov     eax, 0x10
        push    eax
        push    ecx
        .byte   0x66, 0xcb                      /* a far return by 32 bits */

.org trapline_setup + {TABLE}
        .quad   0
        .quad   0
        .quad   0x00cf9b000000ffff              /* code, 32 bits, all memory */
        .quad   0x00cf93000000ffff              /* data, all memory */
.org trapline_setup + {LIMIT}
        .word   31
        .long   0
.org trapline_setup + {SETUP_ROOM}
.code64
.popsection
