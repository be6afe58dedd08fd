# Entry points. No SSE here, and no tables are built at run time (tables.s): where ring 0 is
# emulated, it is slow and has no SSE.

.set FLAGS_INTERRUPTS,    0x202

# Marker of the stage, right after the reading of the clock (guest/abi/src/marker.rs). It is the
# same no-op in both modes.
.macro mark_entry
    .byte 0x0f, 0x1f, 0x84, 0x00, {STAGE}, {GUEST_ENTRY}, 0x70, 0x7a
.endm

.section .text.entry, "ax", @progbits

# PVH: 32-bit protected mode, paging off, ebx = start info. Switches to 64-bit mode on the tables
# of direct boot.
.code32
.global trapline_pvh_entry
trapline_pvh_entry:
    rdtsc
    mark_entry
    mov dword ptr [trapline_entry_clock], eax
    mov dword ptr [trapline_entry_clock + 4], edx
    lgdt [gdt_pointer]
    mov eax, {CR4_PAE_SSE}
    mov cr4, eax
    mov eax, offset trapline_page_table
    mov cr3, eax
    mov ecx, {EFER}
    rdmsr
    or eax, {EFER_LONG_MODE}
    wrmsr
    mov eax, {CR0_PROTECTED_PAGED}
    mov cr0, eax
    .byte 0xea                          # ljmp CODE0:pvh_long
    .long pvh_long
    .short {CODE0}

.code64
pvh_long:
    mov eax, {DATA0}
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov eax, {TASK}
    ltr ax
    mov rsp, offset trapline_stack_top - 8
    mov edi, ebx
    mov rsi, [rdi + 24]                 # StartInfo.command_line

# Searches for a word that begins with "trapline.ring=3": compares 15 bytes at the start of each
# word, as two overlapping quadwords.
    movabs r8, 0x656e696c70617274       # "trapline"
    movabs r9, 0x333d676e69722e65       # "e.ring=3"
next_word:
    cmp [rsi], r8
    jne skip_word
    cmp [rsi + 7], r9
    je leave_ring_0
skip_word:
    mov al, [rsi]
    inc rsi
    cmp al, ' '
    ja skip_word
    je next_word
    lidt [idt0_pointer]
    jmp trapline_main

# Switches to ring 3 by iretq. Interrupts are always enabled at ring 3, so the PICs are masked first.
leave_ring_0:
    lidt [idt3_pointer]
    mov al, 0xff
    out 0x21, al
    out 0xa1, al
    mov eax, {DATA3}
    mov ds, eax
    mov es, eax
    push {DATA3}
    push offset trapline_stack_top - 8
    push FLAGS_INTERRUPTS
    push {CODE3}
    push offset trapline_main
    iretq

# Direct boot: 64-bit mode at either ring, with tables and stack, rdi = start info.
.global trapline_direct_entry
trapline_direct_entry:
    rdtsc
    mark_entry
    mov dword ptr [trapline_entry_clock], eax
    mov dword ptr [trapline_entry_clock + 4], edx
    jmp trapline_main

.section .rodata.pointers, "a", @progbits
.balign 8
gdt_pointer:
    .short trapline_gdt_end - trapline_gdt - 1
    .quad trapline_gdt
.balign 8
idt0_pointer:
    .short trapline_idt_limit
    .quad trapline_idt0
.balign 8
idt3_pointer:
    .short trapline_idt_limit
    .quad trapline_idt3

.section .data.clock, "aw", @progbits
.balign 8
.global trapline_entry_clock
trapline_entry_clock:
    .quad 0

# ELF notes of both entry points.
.section .note.pvh, "a", @note
.balign 4
    .long 4, 8, 18                      # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad trapline_pvh_entry

.section .note.direct, "a", @note
.balign 4
    .long 9, 12 * 8, {NOTE_DIRECT}
    .asciz "Trapline"
    .balign 4
    .quad {VERSION}
    .quad trapline_direct_entry
    .quad trapline_stack_top - 8
    .quad trapline_page_table
    .quad trapline_gdt, trapline_gdt_end - trapline_gdt - 1
    .quad trapline_idt0, trapline_idt3, trapline_idt_limit
    .quad trapline_tss, trapline_tss_limit
    .quad trapline_interrupts
