# Entries of processes into the kernel, and the switch between kernel stacks, where the kernel is at ring 3.
# entry.s has the same for ring 0, and the layout of the registers on a kernel stack.

.section .text.process, "ax", @progbits

# System call: a call of this entry, with the registers of `syscall`. The return address takes the place of
# rcx; flags are not saved.
.global trapline_enter_kernel
trapline_enter_kernel:
    pop rcx
    mov [user_stack], rsp
    mov rsp, [trapline_kernel_stack]
    push qword ptr [user_stack]
    push rcx
    push 0
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov rcx, r8
    mov r8, rsp
    call trapline_system_call3
return_to_program3:
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop rcx
    pop rcx
    pop rsp
    jmp rcx

.global trapline_return_to_child3
trapline_return_to_child3:
    xor eax, eax
    jmp return_to_program3

# void trapline_switch3(u64 **from, u64 *to, u64 tables): as trapline_switch.
.global trapline_switch3
trapline_switch3:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 8
    stmxcsr [rsp]
    fnstcw [rsp + 4]
    mov [rdi], rsp
    mov rbx, rsi
    mov edi, {LOAD}
    mov rsi, rdx
    call trapline_request_space
    mov rsp, rbx
    ldmxcsr [rsp]
    fnclex
    fldcw [rsp + 4]
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

# void trapline_request_space(u64 operation, u64 first, u64 second): makes a request to the VMM.
.global trapline_request_space
trapline_request_space:
    cmp byte ptr [trapline_spaces_by_call], 0
    je by_port
    movabs rax, {ENTRY}
    push rdi
    push rsi
    push rdx
    call rax
    pop rdx
    pop rsi
    pop rdi
    test eax, eax
    jnz by_port
    ret
by_port:
    mov [trapline_space_request], rdi
    mov [trapline_space_request + 8], rsi
    mov [trapline_space_request + 16], rdx
    mov rcx, rdx
    mov eax, offset trapline_space_request
    mov edx, {PORT}
    out dx, eax
    mov rdx, rcx
    cmp byte ptr [trapline_spaces_by_call], 0
    jne trapline_request_space
    ret

# Page fault of a program that does not reach the VMM, which reports its address on request.
.global trapline_page_fault_entry3_by_port
trapline_page_fault_entry3_by_port:
    push rax
    push rdx
    mov qword ptr [trapline_space_request], {FAULT}
    mov eax, offset trapline_space_request
    mov edx, {PORT}
    out dx, eax
    pop rdx
    pop rax

# Page fault of a program whose address the VMM has written to the request.
.global trapline_page_fault_entry3
trapline_page_fault_entry3:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    mov rdi, [trapline_space_request + 24]
    mov rsi, [rsp + 72]                 # error code
    mov rdx, [rsp + 72 + 4 * 8]         # stack pointer
    sub rsp, 520
    cld
    fxsave64 [rsp]
    call trapline_page_fault3
    fxrstor64 [rsp]
    add rsp, 520
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    add rsp, 8
    iretq

# Start of process 1: argument in rbx, function in r12, which returns the exit status.
.global trapline_start_program3
trapline_start_program3:
    mov rdi, rbx
    call r12
    mov edi, {EXIT}
    movzx esi, al
    call trapline_enter_kernel
    ud2

.section .rodata.program, "a", @progbits

# Program of operation `exec`.
.global trapline_program3
trapline_program3:
    mov rax, [rsp + 8]
    movzx esi, byte ptr [rax]
    mov edi, {EXIT}
    mov eax, offset trapline_enter_kernel
    call rax
.global trapline_program3_end
trapline_program3_end:

.section .data.process, "aw", @progbits
.balign 8
.global trapline_space_request
trapline_space_request:
    .quad 0, 0, 0, 0
# Not 0: the VMM's code is called.
.global trapline_spaces_by_call
trapline_spaces_by_call:
    .byte 0
