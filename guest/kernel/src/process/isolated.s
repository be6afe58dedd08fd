# Entries of programs whose page tables do not contain the kernel (isolated.rs). entry.s has the same for other programs, and the
# layout of the registers on a kernel stack. Until CR3 is loaded, only code and the page of entries are mapped.

.set KERNEL_TABLES, trapline_entries
.set USER_TABLES, trapline_entries + 8
.set USER_STACK, trapline_entries + 16
.set ENTRY_STACK, trapline_entries + 4096

.section .text.process, "ax", @progbits

.global trapline_system_call_entry_isolated
trapline_system_call_entry_isolated:
    mov [USER_STACK], rsp
    mov rsp, [KERNEL_TABLES]
    mov cr3, rsp
    mov rsp, [trapline_kernel_stack]
    push qword ptr [USER_STACK]
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
    call trapline_system_call_isolated
return_to_program_isolated:
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r11
    pop rcx
    pop rdi
    mov rsp, [USER_TABLES]
    mov cr3, rsp
    mov rsp, rdi
    sysretq

.global trapline_return_to_child_isolated
trapline_return_to_child_isolated:
    xor eax, eax
    jmp return_to_program_isolated

# Page fault. The frame of the CPU and rax stay on the entry stack, which nothing else uses meanwhile: interrupts are off, and
# an exception of the kernel does not return.
.global trapline_page_fault_entry_isolated
trapline_page_fault_entry_isolated:
    test byte ptr [rsp + 16], 3
    jz page_fault_of_kernel
    push rax
    mov rax, [KERNEL_TABLES]
    mov cr3, rax
    mov esp, offset stack_of_faults_top
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    mov rdi, cr2
    mov rsi, [ENTRY_STACK - 48]         # error code
    sub rsp, 512
    cld
    fxsave64 [rsp]
    call trapline_page_fault_isolated
    fxrstor64 [rsp]
    add rsp, 512
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    mov rax, [USER_TABLES]
    mov cr3, rax
    lea rsp, [ENTRY_STACK - 56]
    pop rax
    add rsp, 8
    iretq

# Other exceptions, in slots of 16 bytes: the report is on the kernel's stack of faults.
.balign 16
.global trapline_vectors_isolated
trapline_vectors_isolated:
    .set vector, 0
    .rept {GATES}
    .balign 16
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)
    push 0                              # in place of an error code
    .endif
    push vector
    jmp report_exception
    .set vector, vector + 1
    .endr
page_fault_of_kernel:
    push 14
report_exception:
    mov rax, [KERNEL_TABLES]
    mov cr3, rax
    mov rax, rsp
    mov esp, offset stack_of_faults_top
    .set at, 48
    .rept 7
    push qword ptr [rax + at]
    .set at, at - 8
    .endr
    jmp trapline_report
