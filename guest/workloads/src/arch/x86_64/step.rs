//! Program of a step of operation `make`, see [`crate::script`].

/// Assembly text of the program of a step, which exits with the first byte of its argument, or with the complement of
/// that byte on failure.
///
/// Parameters are the registers of a system call's number and arguments, and the text that makes the call. The latter
/// preserves `rbx` and `r12`. Constants of the text: `ARGUMENT`, the offset of the argument's address on the stack;
/// `READ`, `WRITE`, `EXIT`, numbers of system calls; `INPUT` and `OUTPUT`, numbers of the pipes; `WORDS` and `NUMBER`,
/// [`WORDS`](crate::script::WORDS) and [`NUMBER_BYTES`](crate::script::NUMBER_BYTES).
#[macro_export]
macro_rules! step_program {
    ($number:literal, $first:literal, $second:literal, $third:literal, $call:literal) => {
        concat!(
            "mov rax, [rsp + {ARGUMENT}]\n",
            "movzx r12d, byte ptr [rax]\n",
            // Untouched pages below those that the kernel and calls use.
            "lea rbx, [rsp - 8 * {WORDS}]\n",
            "and rbx, -4096\n",
            $crate::step_program!(@transfer "{READ}", "{INPUT}", $number, $first, $second, $third, $call),
            "mov rax, [rbx]\n",
            "xor ecx, ecx\n",
            "2: mov [rbx + 8 * rcx], rax\n",
            "inc rax\n",
            "inc rcx\n",
            "cmp rcx, {WORDS}\n",
            "jne 2b\n",
            "xor eax, eax\n",
            "xor ecx, ecx\n",
            "3: add rax, [rbx + 8 * rcx]\n",
            "inc rcx\n",
            "cmp rcx, {WORDS}\n",
            "jne 3b\n",
            "mov [rbx], rax\n",
            $crate::step_program!(@transfer "{WRITE}", "{OUTPUT}", $number, $first, $second, $third, $call),
            "jmp 5f\n",
            "4: xor r12d, 0xff\n",
            "5: mov ", $first, ", r12\n",
            "mov ", $number, ", {EXIT}\n",
            $call, "\n",
            "ud2\n",
        )
    };
    // Reads or writes a number at `rbx`.
    (@transfer $what:literal, $pipe:literal, $number:literal, $first:literal, $second:literal, $third:literal, $call:literal) => {
        concat!(
            "mov ", $number, ", ", $what, "\n",
            "mov ", $first, ", ", $pipe, "\n",
            "mov ", $second, ", rbx\n",
            "mov ", $third, ", {NUMBER}\n",
            $call, "\n",
            "cmp rax, {NUMBER}\n",
            "jne 4f\n",
        )
    };
}
