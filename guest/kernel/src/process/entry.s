# Entries of processes into the kernel, and the switch between kernel stacks.

.section .text.process, "ax", @progbits

# syscall: number in rdi, arguments in rsi, rdx, r8, result in rax. Registers that C functions preserve
# are preserved; the others are undefined afterwards. The instruction does not switch stacks. There is
# one CPU, so the program's stack pointer is in a static variable until the stacks are switched.
.global trapline_system_call_entry
trapline_system_call_entry:
    mov [user_stack], rsp
    mov rsp, [trapline_kernel_stack]
    push qword ptr [user_stack]
    push rcx
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov rcx, r8
    mov r8, rsp
    call trapline_system_call
return_to_program:
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r11
    pop rcx
    pop rsp
    sysretq

# First return of a new process, on a kernel stack as above.
.global trapline_return_to_child
trapline_return_to_child:
    xor eax, eax
    jmp return_to_program

# void trapline_switch(u64 **from, u64 *to, u64 tables): saves the context of the running process on its
# kernel stack and the stack pointer at `from`, then restores that of the process whose kernel stack
# pointer is `to` and whose top-level page table is `tables`.
.global trapline_switch
trapline_switch:
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
    mov cr3, rdx
    mov rsp, rsi
    ldmxcsr [rsp]
    fnclex                              # fldcw would raise an exception that a program left pending
    fldcw [rsp + 4]
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

# Page fault. A program's is resolved by the kernel, or ends the program; the kernel's own is reported.
# Compiled code uses SSE, so its registers are saved, too.
.global trapline_page_fault_entry
trapline_page_fault_entry:
    cmp qword ptr [trapline_kernel_stack], 0
    je report_page_fault
    test byte ptr [rsp + 16], 3
    jz report_page_fault
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    mov rdi, cr2
    mov rsi, [rsp + 72]                 # error code
    sub rsp, 520
    cld
    fxsave64 [rsp]
    call trapline_page_fault
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
report_page_fault:
    push 14
    jmp trapline_report

# Start of process 1, at ring 3: argument in rbx, function in r12, which returns the exit status.
.global trapline_start_program
trapline_start_program:
    mov rdi, rbx
    call r12
    mov edi, {EXIT}
    movzx esi, al
    syscall
    ud2

.section .rodata.program, "a", @progbits

# Program of operation `exec`: exits with the first byte of its argument, whose address is the second
# word of its stack.
.global trapline_program
trapline_program:
    mov rax, [rsp + 8]
    movzx esi, byte ptr [rax]
    mov edi, {EXIT}
    syscall
.global trapline_program_end
trapline_program_end:

.section .data.process, "aw", @progbits
.balign 8
user_stack:
    .quad 0
# End of the current process's kernel stack, less 8; 0 without processes.
.global trapline_kernel_stack
trapline_kernel_stack:
    .quad 0
