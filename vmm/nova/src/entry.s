/* Entry of the root task, of VM exits and of its own exceptions; memory functions of C.
   Stacks grow down from the symbols. */

.section .text.entry, "ax"
.globl trapline_root_entry
/* NOVA enters with the address of the hypervisor information page in rsp. */
trapline_root_entry:
    mov %rsp, %rdi
    lea trapline_root_stack(%rip), %rsp
    call trapline_root_main
    ud2

.text
.globl trapline_enter_guest, trapline_exit_portal
/* Replies to the pending exit and returns with the next one: the kernel keeps all registers of the handler but
   rdi, rcx and r11 from the reply to the next message, which starts at the portal's address. So both halves look
   like one function that returns. */
trapline_enter_guest:
    mov $1, %edi
    syscall
trapline_exit_portal:
    ret

.globl trapline_handler_portal
/* First message of the handler, from the main thread. */
trapline_handler_portal:
    call trapline_run
    ud2

.globl trapline_exception_portal
/* Exceptions of the root task, and the start of its threads; rdi is the number of the portal. */
trapline_exception_portal:
    call trapline_root_exception
    mov $1, %edi
    syscall
    ud2

.globl memcpy, memmove, memset, memcmp, bcmp
memcpy:
    mov %rdi, %rax
    mov %rdx, %rcx
    shr $3, %rcx
    rep movsq
    mov %edx, %ecx
    and $7, %ecx
    rep movsb
    ret
memmove:
    mov %rdi, %rcx
    sub %rsi, %rcx
    cmp %rdx, %rcx
    jae memcpy
    mov %rdi, %rax
    mov %rdx, %rcx
    lea -1(%rdi,%rdx), %rdi
    lea -1(%rsi,%rdx), %rsi
    std
    rep movsb
    cld
    ret
memset:
    mov %rdi, %r8
    movzbl %sil, %eax
    mov $0x0101010101010101, %rcx
    imul %rcx, %rax
    mov %rdx, %rcx
    shr $3, %rcx
    rep stosq
    mov %edx, %ecx
    and $7, %ecx
    rep stosb
    mov %r8, %rax
    ret
bcmp:
memcmp:
    mov %rdx, %rcx
    xor %eax, %eax
    cmp %rax, %rax
    repe cmpsb
    je 1f
    movzbl -1(%rdi), %eax
    movzbl -1(%rsi), %ecx
    sub %ecx, %eax
1:  ret

.bss
.balign 4096
.skip 0x1000
trapline_root_stack:
.skip 0x10000
.globl trapline_handler_stack
trapline_handler_stack:
.skip 0x4000
.globl trapline_exception_stack
trapline_exception_stack:
.skip 0x1000
.globl trapline_timer_stack
trapline_timer_stack:
