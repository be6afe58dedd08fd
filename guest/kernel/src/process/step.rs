//! The program of a step of operation `make`, for both rings.

/// Places the program between a label and the same label with `_end`. Its system calls are this text; further lines follow
/// the second label.
macro_rules! step {
    ($label:literal, $call:literal $(, $behind:literal)?) => {
        core::arch::global_asm!(
            ".pushsection .text.process, \"ax\", @progbits",
            concat!($label, ":"),
            trapline_workloads::step_program!("rdi", "rsi", "rdx", "r8", $call),
            concat!($label, "_end:"),
            $($behind,)?
            ".popsection",
            ARGUMENT = const 8,
            READ = const $crate::process::number::READ,
            WRITE = const $crate::process::number::WRITE,
            EXIT = const $crate::process::number::EXIT,
            INPUT = const $crate::process::number::INPUT,
            OUTPUT = const $crate::process::number::OUTPUT,
            WORDS = const trapline_workloads::script::WORDS,
            NUMBER = const trapline_workloads::script::NUMBER_BYTES,
        );
    };
}

pub(crate) use step;
