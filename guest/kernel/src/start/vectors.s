# What the processor does on an exception or an interrupt.
#
# Compiled code uses the 128 bytes below its stack pointer (core comes with a
# red zone), so every vector runs on a stack of its own class. At ring 3 nothing
# can switch interrupts off, not even a gate: one class may interrupt another,
# but never itself, because its sender waits for the count to move.

.set VECTORS, 64
.set GATE_RING_0, 0x8e                  # interrupt gate, ring 0
.set GATE_RING_3, 0xef                  # trap gate that ring 3 may enter

# Of the page that Xen shares with a domain (Xen public/xen.h, shared_info): two fields
# of the first CPU, and a bit for each channel.
.set UPCALL_PENDING, 0
.set PENDING_WORDS, 8
.set PENDING, 2048

.section .text.vectors, "ax", @progbits

# One slot of 16 bytes a vector, so that a gate's address is a constant plus 16
# times its number.
.balign 1024
.global trapline_vectors
trapline_vectors:
    .set vector, 0
    .rept VECTORS
    .balign 16
    .if vector == {IPI_VECTOR}
    jmp take_ipi
    .elseif vector == {TIMER_VECTOR}
    jmp take_timer
    .elseif vector == {EVENT_VECTOR}
    jmp take_event
    .elseif vector == {TICK_VECTOR}
    jmp take_tick
    .elseif vector == {SPURIOUS_VECTOR}
    iretq
    .elseif vector == 6
    jmp invalid_opcode
    .else
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)
    push 0                              # in place of an error code
    .endif
    push vector
    jmp report
    .endif
    .set vector, vector + 1
    .endr

report:
    mov rdi, rsp
    cld
    sub rsp, 8                          # seven words lie on a stack aligned to 16
    call trapline_exception
    ud2

# A hypercall instruction that is none here (see hypercall.rs): the probe
# answers no instead.
invalid_opcode:
    cmp qword ptr [rsp], offset probe_vmcall
    je no_hypercall
    cmp qword ptr [rsp], offset probe_vmmcall
    je no_hypercall
    push 0
    push 6
    jmp report
no_hypercall:
    mov qword ptr [rsp], offset probe_failed
    iretq

# Device interrupts only count and acknowledge. The total is what a sleeper
# compares, so it moves last.
.macro take count
    push rax
    inc qword ptr [\count]
    inc dword ptr [trapline_interrupts]
    mov eax, {END_OF_INTERRUPT}
    mov dword ptr [rax], 0
    pop rax
    iretq
.endm
take_ipi:
    take trapline_ipis
take_timer:
    take trapline_timers

# An event of Xen (see xen/events.rs) is acknowledged from the top down: that there is
# any, in which words, and which. Only its own channel's are counted.
take_event:
    push rax
    mov byte ptr [trapline_shared + UPCALL_PENDING], 0
    mov qword ptr [trapline_shared + PENDING_WORDS], 0
    mov rax, qword ptr [trapline_channel]
    lock btr qword ptr [trapline_shared + PENDING], rax
    adc qword ptr [trapline_events], 0
    pop rax
    iretq

# An interrupt of a timer that keeps time: when it came, what it found and which
# expiry it stands for, if a VMM raises it. Only what cannot be known later is put
# down. The thread behind it acknowledges, after it has read all this. Where ring 0 is
# emulated another one may come all the same, at any instruction of this: so it runs on
# the stack that it finds, which is one of this kernel's own code as long as a timer
# ticks, and that has no red zone.
take_tick:
    push rax
    push rdx
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [trapline_tick], rax
    mov rax, [trapline_tick_raised]
    mov rax, [rax]
    mov [trapline_tick + 16], rax
    mov rax, [rsp + 16]
    mov [trapline_tick + 24], rax
    inc qword ptr [trapline_ticks]
    inc dword ptr [trapline_interrupts]
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [trapline_tick + 8], rax
    pop rdx
    pop rax
    iretq

# u64 trapline_probe_vmcall(u64 number), and the same with AMD's instruction:
# 1 if a hypervisor took the instruction.
.global trapline_probe_vmcall
trapline_probe_vmcall:
    mov rax, rdi
probe_vmcall:
    vmcall
    mov eax, 1
    ret
.global trapline_probe_vmmcall
trapline_probe_vmmcall:
    mov rax, rdi
probe_vmmcall:
    vmmcall
    mov eax, 1
    ret
probe_failed:
    xor eax, eax
    ret

.section .data.counts, "aw", @progbits
.balign 8
.global trapline_ipis
trapline_ipis:
    .quad 0
.global trapline_timers
trapline_timers:
    .quad 0
.global trapline_ticks
trapline_ticks:
    .quad 0
# Entered, done, number raised, instruction found.
.global trapline_tick
trapline_tick:
    .quad 0, 0, 0, 0
# Where the number of the last one raised stands.
.global trapline_tick_raised
trapline_tick_raised:
    .quad trapline_tick + 16
.global trapline_interrupts
trapline_interrupts:
    .long 0
.balign 8
.global trapline_events
trapline_events:
    .quad 0
.global trapline_channel
trapline_channel:
    .quad 0

.section .bss.shared, "aw", @nobits
.balign 4096
.global trapline_shared
trapline_shared:
    .zero 4096

.section .data.counts, "aw", @progbits

.macro table name, code, gate
.balign 16
.global \name
\name:
    .set vector, 0
    .rept VECTORS
    .short trapline_vectors_low + 16 * vector
    .short \code
    .if vector == 2 || vector == 8 || vector == 18
    .byte 2
    .elseif vector == {IPI_VECTOR}
    .byte 3
    .elseif vector == {TIMER_VECTOR}
    .byte 4
    .elseif vector == {SPURIOUS_VECTOR}
    .byte 5
    .elseif vector == {EVENT_VECTOR}
    .byte 6
    .elseif vector == {TICK_VECTOR}
    .byte 0                             # on the stack that it finds, see take_tick
    .else
    .byte 1
    .endif
    .byte \gate
    .short trapline_vectors_middle
    .long 0, 0
    .set vector, vector + 1
    .endr
.endm

.section .data.idt, "aw", @progbits
    table trapline_idt0, {CODE0}, GATE_RING_0
    table trapline_idt3, {CODE3}, GATE_RING_3
.global trapline_idt_limit
.set trapline_idt_limit, VECTORS * 16 - 1
