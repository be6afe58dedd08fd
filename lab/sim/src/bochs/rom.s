/* The machine's firmware. It enters protected mode, claims the memory that the
   machine was given, and enters what lies there as a PVH loader would. When the
   processor is reset it is back here; then the machine ends.

   Bochs hands out memory in blocks as they are touched, and reads a file behind the
   first of them: so every block is touched once, from the first on, before any
   other. Nothing may lie on a stack until then.

   It is data to the program that carries it: no instruction is ever reached there. */

.pushsection .rodata.trapline_rom, "a"
.balign 16
.globl trapline_rom
trapline_rom:
.code16
        cli
        cld
        .byte   0x66                            /* a base of 32 bits */
        lgdt    cs:[{LIMIT}]
        mov     eax, cr0
        or      al, 1
        mov     cr0, eax
        .byte   0x66, 0xea                      /* a far jump by 32 bits */
        .long   {ROM} + {PROTECTED}
        .word   8

/* Filled in by the one who makes the machine. */
.org trapline_rom + {PLAN}
        .long   0               /* where to enter */
        .long   0               /* what to tell there */
        .long   0               /* where memory that was given ends */

.org trapline_rom + {TABLE}
        .quad   0
        .quad   0x00cf9b000000ffff              /* code, 32 bits, all memory */
        .quad   0x00cf93000000ffff              /* data, all memory */
.org trapline_rom + {LIMIT}
        .word   23
        .long   {ROM} + {TABLE}

.org trapline_rom + {PROTECTED}
.code32
        mov     eax, 16
        mov     ds, eax
        mov     es, eax
        mov     ss, eax
        mov     fs, eax
        mov     gs, eax

        /* The byte of the battery-backed memory that survives a reset, and is
           there to tell why it came. */
        mov     al, 0x0f
        out     0x70, al
        in      al, 0x71
        cmp     al, {SECOND}
        je      .Lrom_end
        mov     al, 0x0f
        out     0x70, al
        mov     al, {SECOND}
        out     0x71, al

        mov     edx, [{ROM} + {PLAN} + 8]
        mov     eax, {START}
.Lrom_touch:
        mov     ecx, [eax]
        add     eax, 4096
        cmp     eax, edx
        jb      .Lrom_touch
        mov     esi, {ROM} + {LOST}
        mov     edx, 0xe9
        cmp     dword ptr [eax - 4], {SEAL}
        jne     .Lrom_say

        mov     ebx, [{ROM} + {PLAN} + 4]
        jmp     dword ptr [{ROM} + {PLAN}]

/* Bochs ends when it reads this word at its port. */
.Lrom_end:
        mov     esi, {ROM} + {WORD}
        mov     edx, 0x8900
.Lrom_say:
        lodsb
        test    al, al
        jz      .Lrom_said
        out     dx, al
        jmp     .Lrom_say
.Lrom_said:
        cmp     edx, 0x8900
        jne     .Lrom_end
        hlt

.org trapline_rom + {WORD}
        .asciz  "Shutdown"
.org trapline_rom + {LOST}
        .asciz  "the machine's memory does not hold what Bochs was given for it\n"
.org trapline_rom + {CODE}
.code64
.popsection
