//! Program of a step of operation `make`, see [`crate::script`].

/// Assembly text of the program of a step, which exits with the first byte of its argument, or with the complement of
/// that byte on failure.
///
/// Parameters are the registers of a system call's number and arguments, and the text that makes the call. The latter
/// preserves `x19` and `x20`, and returns its result in `x0`. Constants of the text: `ARGUMENT`, the offset of the argument's
/// address on the stack; `READ`, `WRITE`, `EXIT`, numbers of system calls; `INPUT` and `OUTPUT`, numbers of the pipes;
/// `WORDS` and `NUMBER`, [`WORDS`](crate::script::WORDS) and [`NUMBER_BYTES`](crate::script::NUMBER_BYTES).
#[macro_export]
macro_rules! step_program {
    ($number:literal, $first:literal, $second:literal, $third:literal, $call:literal) => {
        concat!(
            "ldr x9, [sp, #{ARGUMENT}]\n",
            "ldrb w20, [x9]\n",
            // Untouched pages below those that the kernel and calls use.
            "sub x19, sp, #8 * {WORDS}\n",
            "and x19, x19, #-4096\n",
            $crate::step_program!(@transfer "{READ}", "{INPUT}", $number, $first, $second, $third, $call),
            "ldr x9, [x19]\n",
            "mov x10, #0\n",
            "2: str x9, [x19, x10, lsl #3]\n",
            "add x9, x9, #1\n",
            "add x10, x10, #1\n",
            "cmp x10, #{WORDS}\n",
            "b.ne 2b\n",
            "mov x9, #0\n",
            "mov x10, #0\n",
            "3: ldr x11, [x19, x10, lsl #3]\n",
            "add x9, x9, x11\n",
            "add x10, x10, #1\n",
            "cmp x10, #{WORDS}\n",
            "b.ne 3b\n",
            "str x9, [x19]\n",
            $crate::step_program!(@transfer "{WRITE}", "{OUTPUT}", $number, $first, $second, $third, $call),
            "b 5f\n",
            "4: eor w20, w20, #0xff\n",
            "5: mov ", $first, ", x20\n",
            "mov ", $number, ", #{EXIT}\n",
            $call, "\n",
            "udf #0\n",
        )
    };
    // Reads or writes a number at `x19`.
    (@transfer $what:literal, $pipe:literal, $number:literal, $first:literal, $second:literal, $third:literal, $call:literal) => {
        concat!(
            "mov ", $number, ", #", $what, "\n",
            "mov ", $first, ", #", $pipe, "\n",
            "mov ", $second, ", x19\n",
            "mov ", $third, ", #{NUMBER}\n",
            $call, "\n",
            "cmp x0, #{NUMBER}\n",
            "b.ne 4f\n",
        )
    };
}
