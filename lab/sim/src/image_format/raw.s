/* The first bytes of a flat binary, entered at its first byte in real mode, protected mode or long mode
   (module raw). They add the address of the binary to that of its command line, and enter the shim of
   a bzImage behind them as a boot loader of Linux does. The stack is below {STACK}, because that of the
   VMM may be within the binary. */

.pushsection .rodata.trapline_raw, "a"
.balign 16
.globl trapline_raw
trapline_raw:
.code16
        cli
        cld
/* mov ax, 0; jmp .Lraw_real in real mode, mov eax, imm32 otherwise. */
        .byte   0xb8, 0, 0, 0xeb, .Lraw_real - .Lraw_modes
.Lraw_modes:
/* xor eax, eax; inc eax; nop in protected mode; xor eax, eax; rex nop in long mode. */
        .byte   0x31, 0xc0, 0x40, 0x90
        .byte   0x75, .Lraw_protected - .Lraw_long      /* jnz */

.code64
.Lraw_long:
        lea     rbx, [rip + trapline_raw]
        lea     rax, [rbx + {COMMAND_LINE}]
        mov     [rbx + {PARAMETERS} + 0x228], eax       /* cmd_line_ptr */
        lea     rsi, [rbx + {PARAMETERS}]
        lea     rax, [rbx + {SHIM} + {LONG_MODE}]
        jmp     rax

.org trapline_raw + {PROTECTED}
.code32
.Lraw_protected:
        mov     esp, {STACK}
        call    .Lraw_here
.Lraw_here:
        pop     ebx
        sub     ebx, {PROTECTED} + 10
.Lraw_enter:
        lea     eax, [ebx + {COMMAND_LINE}]
        mov     [ebx + {PARAMETERS} + 0x228], eax
        lea     esi, [ebx + {PARAMETERS}]
        lea     eax, [ebx + {SHIM}]
        jmp     eax

/* From real mode: the segment of the code is that of the data. */
.org trapline_raw + {REAL}
.code16
.Lraw_real:
        mov     ss, ax                          /* 0 */
        mov     sp, {STACK}
        .byte   0xe8, 0, 0                      /* a call of the next instruction by 16 bits */
        pop     si
        sub     si, {REAL} + 8
        mov     ax, cs
        mov     ds, ax
        movzx   ebx, ax
        shl     ebx, 4
        movzx   eax, si
        add     ebx, eax                        /* address of the binary */
        lea     eax, [ebx + {TABLE}]
        mov     dword ptr ds:[si + {LIMIT} + 2], eax
        lgdt    ds:[si + {LIMIT}]
        lea     ecx, [ebx + {FLAT}]
        mov     eax, cr0
        or      al, 1
        mov     cr0, eax
        mov     eax, 8
        push    eax
        push    ecx
        .byte   0x66, 0xcb                      /* a far return by 32 bits */

.org trapline_raw + {FLAT}
.code32
        mov     eax, 16
        mov     ds, eax
        mov     es, eax
        jmp     .Lraw_enter

.org trapline_raw + {TABLE}
        .quad   0
        .quad   0x00cf9b000000ffff              /* code, 32 bits, all memory */
        .quad   0x00cf93000000ffff              /* data, all memory */
.org trapline_raw + {LIMIT}
        .word   23
        .long   0
.org trapline_raw + {SIZE}
.code64
.popsection
