# Handlers of exceptions and interrupts.
#
# Compiled code uses the red zone of 128 bytes below its stack pointer, so every class of vectors has
# a stack of its own. At ring 3 interrupts cannot be disabled, not even by a gate: one class may
# interrupt another, but not itself, because its sender waits for the counter.

.set VECTORS, 64
.set GATE_RING_0, 0x8e                  # interrupt gate, ring 0
.set GATE_RING_3, 0xef                  # trap gate that ring 3 may enter

# Fields of the page that Xen shares with a domain (Xen public/xen.h, shared_info): two of the first
# CPU, and a bit per channel.
.set UPCALL_PENDING, 0
.set PENDING_WORDS, 8
.set PENDING, 2048

.section .text.vectors, "ax", @progbits

# One slot of 16 bytes per vector, so that the address of a gate is a constant plus 16 times its
# number.
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
    .elseif vector == {VIRTIO_VECTOR}
    jmp trapline_take_virtio
    .elseif vector == {WAKE_VECTOR}
    jmp trapline_take_wake
    .elseif vector == {INVALIDATE_VECTOR}
    jmp trapline_take_invalidate
    .elseif vector == {SPURIOUS_VECTOR}
    iretq
    .elseif vector == 6
    jmp invalid_opcode
    .elseif vector == 14
    jmp trapline_page_fault_entry
    .else
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)
    push 0                              # in place of an error code
    .endif
    push vector
    jmp trapline_report
    .endif
    .set vector, vector + 1
    .endr

# Stack as pushed by the CPU, with the vector below.
.global trapline_report
trapline_report:
    mov rdi, rsp
    cld
    sub rsp, 8                          # seven words lie on a stack aligned to 16
    call trapline_exception
    ud2

# An undefined hypercall instruction in a probe (see hypercall.rs): the probe returns 0.
invalid_opcode:
    cmp qword ptr [rsp], offset probe_vmcall
    je no_hypercall
    cmp qword ptr [rsp], offset probe_vmmcall
    je no_hypercall
    push 0
    push 6
    jmp trapline_report
no_hypercall:
    mov qword ptr [rsp], offset probe_failed
    iretq

# Device interrupts are counted and acknowledged. Sleepers compare the total, so it is written last.
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

# Events of Xen (see xen/events.rs) are acknowledged from the top down: the pending flag, the pending
# words, the bit of the channel. Only events of the own channel are counted.
take_event:
    push rax
    mov byte ptr [trapline_shared + UPCALL_PENDING], 0
    mov qword ptr [trapline_shared + PENDING_WORDS], 0
    mov rax, qword ptr [trapline_channel]
    lock btr qword ptr [trapline_shared + PENDING], rax
    adc qword ptr [trapline_events], 0
    pop rax
    iretq

# Interrupt of a periodic timer: records its time, the interrupted instruction, and the number of
# the expiry if the VMM raises it. The waiting thread reads the record, then acknowledges. Where ring
# 0 is emulated, another one may occur nevertheless, at any instruction. So the handler runs on the
# interrupted stack, which belongs to the kernel's own code, without a red zone.
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

# u64 trapline_probe_vmcall(u64 number), and the same with AMD's instruction: 1 if a hypervisor
# handled the instruction.
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
# Entry, end, number of the expiry, interrupted instruction.
.global trapline_tick
trapline_tick:
    .quad 0, 0, 0, 0
# Address of the number of the last expiry.
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
    .elseif vector == {WAKE_VECTOR} || vector == {INVALIDATE_VECTOR}
    .byte 3
    .elseif vector == {TIMER_VECTOR}
    .byte 4
    .elseif vector == {SPURIOUS_VECTOR}
    .byte 5
    .elseif vector == {EVENT_VECTOR}
    .byte 6
    .elseif vector == {TICK_VECTOR} || vector == {VIRTIO_VECTOR}
    .byte 0                             # on the interrupted stack, see take_tick
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
