# Start of a secondary CPU: from real mode to 64-bit mode on the tables of the image.

.section .text.smp, "ax", @progbits

# Copied to the page that the startup IPI names: code segment = page, offset 0. CR0 enables protection and paging at once;
# the far jump loads the 64-bit code segment (Intel SDM volume 3, 10.8.5).
.code16
.global trapline_trampoline
trapline_trampoline:
    cli
    mov ax, cs
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16        # lgdt [secondary_gdt], 32-bit base
    .short secondary_gdt - trapline_trampoline
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
    .byte 0x66, 0xea                    # ljmp CODE0:secondary_long
    .long secondary_long
    .short {CODE0}
.balign 4
secondary_gdt:
    .short trapline_gdt_end - trapline_gdt - 1
    .long trapline_gdt
.global trapline_trampoline_end
trapline_trampoline_end:

.code64
secondary_long:
    mov eax, {DATA0}
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    lidt [secondary_idt]
    mov rdi, [trapline_starting]
    mov rsp, [rdi]                      # Area.stack
    jmp trapline_secondary

# Interrupt of another CPU, which only ends a halt.
.global trapline_take_wake
trapline_take_wake:
    push rax
    mov eax, {END_OF_INTERRUPT}
    mov dword ptr [rax], 0
    pop rax
    iretq

# Interrupt of another CPU, which has changed the page table (page.rs). Interrupts between CPUs have one stack, because the
# gates disable interrupts.
.global trapline_take_invalidate
trapline_take_invalidate:
    push rax
    mov rax, [trapline_remapped_page]
    invlpg [rax]
    lock inc dword ptr [trapline_invalidations]
    mov eax, {END_OF_INTERRUPT}
    mov dword ptr [rax], 0
    pop rax
    iretq

.balign 8
secondary_idt:
    .short trapline_idt_limit
    .quad trapline_idt0
