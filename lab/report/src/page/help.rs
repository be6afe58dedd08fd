//! Explanations of figures, behind a question mark. docs/method.md has the details.

use maud::{html, Markup};
use trapline_model::Clock;

/// Renders a question mark that opens paragraphs about `what`.
pub fn help(what: &str, paragraphs: &[&str]) -> Markup {
    html! {
        details.help {
            summary aria-label={ "How to read this: " (what) } { "?" }
            div { @for text in paragraphs { p { (text) } } }
        }
    }
}

/// Explains the table of figures of `clock`.
pub fn of_table(clock: Clock) -> Markup {
    let what = super::clock_title(clock);
    match clock {
        Clock::Wall => help(what, &WALL),
        Clock::Insn => help(what, &INSN),
        Clock::InsnVmx => help(what, &VMX),
        Clock::InsnArm64 => help(what, &ARM64),
    }
}

const WALL: [&str; 4] = [
    "Nanoseconds on this host, for one operation. The cost of reading the clock and of the empty \
     loop is taken off. The figure is the median over boots of each boot's median batch; ± is the \
     greater half of its 95% interval, a percentile bootstrap over boots: the boot is the \
     replicate, because what differs between boots does not average out within one.",
    "× bare is the figure by that of host, the same source as a Linux program. The bar compares \
     the figures of its line; the lighter end of it is the interval.",
    "< stands before what the clock cannot resolve. A small number leads to a note below the \
     table: read it before you trust the figure.",
    "No sample is ever dropped: the distributions below show all of them.",
];

const INSN: [&str; 3] = [
    "Instructions for one operation on the simulated machine, where one instruction is one tick of \
     the clock: nothing about this host's speed or load enters. The figure is the mean over all \
     batches, weighted by their operations. It is reproducible: all boots gave the same digits, \
     batch by batch. Where batches differ, the smallest and the largest stand below it.",
    "× bare is the figure by that of sim, the same image on the bare simulated machine. The bar \
     compares the figures of its line.",
    "An instruction is not a nanosecond: this clock has no cache, no pipeline and no cost of a \
     world switch. It says how much work a path is, and whether it changed.",
];

const VMX: [&str; 2] = [
    "Instructions for one operation on another simulated machine, with Intel's virtualization. It \
     counts differently in places, so it is a clock of its own; × bare is against sim-vmx. The \
     figure is the mean over all batches, with the smallest and the largest where they differ.",
    "An instruction is not a nanosecond: it says how much work a path is, and whether it changed.",
];
const ARM64: [&str; 2] = [
    "Instructions for one operation on a simulated machine with a 64-bit processor of Arm. Its \
     instructions are others than those of x86-64, so it is a clock of its own. The figure is the \
     mean over all batches, with the smallest and the largest where they differ.",
    "An instruction is not a nanosecond: it says how much work a path is, and whether it changed.",
];
