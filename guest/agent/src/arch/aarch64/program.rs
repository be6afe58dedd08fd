//! Programs in assembly.

/// Machine in the header of an ELF file: EM_AARCH64.
pub const MACHINE: u16 = 183;

/// Text of a program that exits with the first byte of its first argument.
macro_rules! exit_program {
    () => {
        concat!(
            "ldr x0, [sp, #16]\n",
            "ldrb w0, [x0]\n",
            "mov x8, #{EXIT}\n",
            "svc #0\n",
        )
    };
}

/// Text of the program of a step of operation `make`, with system calls of Linux.
macro_rules! call_step_program {
    () => {
        trapline_workloads::step_program!("x8", "x0", "x1", "x2", "svc #0")
    };
}

pub(crate) use {call_step_program, exit_program};
