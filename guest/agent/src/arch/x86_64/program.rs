//! Programs in assembly.

/// Machine in the header of an ELF file: EM_X86_64.
pub const MACHINE: u16 = 62;

/// Text of a program that exits with the first byte of its first argument.
macro_rules! exit_program {
    () => {
        concat!(
            "mov rax, [rsp + 16]\n",
            "movzx edi, byte ptr [rax]\n",
            "mov eax, {EXIT}\n",
            "syscall\n",
        )
    };
}

/// Text of the program of a step of operation `make`, with system calls of Linux.
macro_rules! call_step_program {
    () => {
        trapline_workloads::step_program!("rax", "rdi", "rsi", "rdx", "syscall")
    };
}

pub(crate) use {call_step_program, exit_program};
