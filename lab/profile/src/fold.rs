//! From call paths to stacks of functions, as flame graphs show them.
//!
//! A frame has the name of the function that control is in: the one that makes the
//! next call, or that the instruction belongs to. A function that was jumped to
//! therefore stands in the place of the one that jumped. The plugin knows no
//! names; what needs them is decided here.

use crate::symbols::{Function, Symbols};
use crate::wire::{Context, Kind, Step};
use crate::worlds::{Machine, Space};
use std::collections::BTreeMap;

/// What was executed under one stack of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its functions, each called by the one before it.
    pub frames: Vec<Function>,
    /// Instructions of the batch.
    pub count: u64,
}

/// The stacks that `contexts` are the paths of, in order of their names.
pub fn stacks(contexts: &[Context], symbols: &Symbols, machine: Machine) -> Vec<Stack> {
    let mut folded: BTreeMap<Vec<Function>, u64> = BTreeMap::new();
    // The path to the context before, a frame of each step.
    let mut path: Vec<Frame> = Vec::new();
    let names = Names { symbols, machine };
    for context in contexts {
        if let Some(step) = &context.step {
            path.truncate(context.depth - 1);
            let in_guest = path.last().is_some_and(|frame| frame.in_guest);
            path.push(names.frame(step, in_guest));
        }
        let in_guest = path.last().is_some_and(|frame| frame.in_guest);
        let callers = callers(&path);
        for (address, count) in &context.counts {
            let mut frames = callers.clone();
            let function = names.find(in_guest, *address);
            if frames.is_empty() || !is_thunk(&function) {
                frames.push(function);
            }
            *folded.entry(frames).or_default() += count;
        }
    }
    let stacks = folded.into_iter();
    stacks
        .map(|(frames, count)| Stack { frames, count })
        .collect()
}

/// A step of a path, named.
struct Frame {
    /// Who made it, unless it is no step from one function to another.
    caller: Option<Function>,
    /// Whether what is behind it runs in a guest.
    in_guest: bool,
    kind: Kind,
}

/// What a program begins with. Whatever stands below it called the program that
/// was there before.
const START: &str = "_start";

fn callers(path: &[Frame]) -> Vec<Function> {
    let mut callers: Vec<Function> = Vec::new();
    let mut entered = 0;
    for frame in path {
        if let Some(caller) = &frame.caller {
            if caller.name == START {
                callers.truncate(entered);
            }
            callers.push(caller.clone());
        }
        if frame.kind == Kind::Guest {
            entered = callers.len();
        }
    }
    callers
}

struct Names<'a> {
    symbols: &'a Symbols,
    machine: Machine,
}

impl Names<'_> {
    fn find(&self, in_guest: bool, address: u64) -> Function {
        let space = self.machine.space(in_guest, address);
        let mut function = self.symbols.find(space, address);
        if space == Space::Kernel {
            one_entry(&mut function.name);
        }
        function
    }

    fn frame(&self, step: &Step, in_guest: bool) -> Frame {
        let caller = self.find(in_guest, step.site);
        let is_real = !is_thunk(&caller) && !self.stays_within(step, in_guest);
        Frame {
            caller: is_real.then_some(caller),
            in_guest: in_guest || step.kind == Kind::Guest,
            kind: step.kind,
        }
    }

    /// Whether a call leads into the midst of the function that makes it, as those
    /// do that only fill the processor's return stack.
    fn stays_within(&self, step: &Step, in_guest: bool) -> bool {
        let space = self.machine.space(in_guest, step.target);
        step.kind == Kind::Call
            && step.target != 0
            && !self.symbols.begins(space, step.target)
            && self.find(in_guest, step.site) == self.find(in_guest, step.target)
    }
}

/// The kernel's entry for system calls has several labels, as has its way back.
fn one_entry(name: &mut String) {
    const ENTRY: &str = "entry_SYSCALL_64";
    let parts = [ENTRY, "entry_SYSRETQ_", "syscall_return_via_sysret"];
    if parts.iter().any(|part| name.starts_with(part)) {
        ENTRY.clone_into(name);
    }
}

/// The kernel's ways to call and return without prediction: no functions, but ways
/// from one to another.
fn is_thunk(function: &Function) -> bool {
    let name = function.name.as_str();
    let parts = [
        "__x86_indirect_",
        "__x86_return_thunk",
        "retbleed_",
        "srso_",
        "its_return_thunk",
    ];
    function.component == "kernel" && parts.iter().any(|part| name.starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    fn symbols() -> Symbols {
        let mut symbols = Symbols::default();
        symbols.add_kallsyms(
            "kernel",
            "ffffffff81000000 T entry_SYSCALL_64\n\
             ffffffff81000010 T entry_SYSCALL_64_after_hwframe\n\
             ffffffff81000100 T ioctl\nffffffff81000200 T run\t[kvm_amd]\n\
             ffffffff81000300 T __x86_indirect_thunk_rax\nffffffff81000400 T end\n",
        );
        for space in [Space::User, Space::Guest] {
            symbols.add_range(space, 0x3000, 0x4000, "main");
        }
        symbols
    }

    fn context(depth: usize, kind: Kind, site: u64, target: u64, at: &[u64]) -> Context {
        Context {
            depth,
            step: (depth > 0).then_some(Step { kind, site, target }),
            counts: at.iter().map(|address| (*address, 1)).collect(),
        }
    }

    fn told(contexts: &[Context]) -> Vec<(String, u64)> {
        let stacks = stacks(contexts, &symbols(), Machine::Linux);
        let stacks = stacks.into_iter().map(|stack| {
            let names: Vec<_> = stack.frames.into_iter().map(|f| f.name).collect();
            (names.join(" "), stack.count)
        });
        stacks.collect()
    }

    #[test]
    fn a_guest_stands_on_kernel_and_program() {
        let found = told(&[
            context(0, Kind::Call, 0, 0, &[0x3000]),
            context(1, Kind::Kernel, 0x3001, KERNEL, &[KERNEL, KERNEL + 0x11]),
            context(2, Kind::Call, KERNEL + 0x12, KERNEL + 0x200, &[]),
            context(3, Kind::Guest, KERNEL + 0x201, 0, &[0x3000, 0x3001]),
        ]);
        let expected = [
            ("[main]", 1),
            ("[main] entry_SYSCALL_64", 2),
            ("[main] entry_SYSCALL_64 run [main]", 2),
        ];
        assert_eq!(
            found,
            expected.map(|(names, count)| (names.to_owned(), count))
        );
    }

    #[test]
    fn thunks_and_calls_within_a_function_are_no_frames() {
        let found = told(&[
            context(0, Kind::Call, 0, 0, &[]),
            context(
                1,
                Kind::Call,
                KERNEL + 0x100,
                KERNEL + 0x300,
                &[KERNEL + 0x300],
            ),
            context(
                2,
                Kind::Call,
                KERNEL + 0x300,
                KERNEL + 0x308,
                &[KERNEL + 0x308],
            ),
            context(
                2,
                Kind::Call,
                KERNEL + 0x200,
                KERNEL + 0x208,
                &[KERNEL + 0x208],
            ),
            context(
                3,
                Kind::Call,
                KERNEL + 0x208,
                KERNEL + 0x200,
                &[KERNEL + 0x200],
            ),
        ]);
        // The last call is recursion: it leads to where the function begins.
        let expected = [("ioctl", 2), ("ioctl run", 1), ("ioctl run run", 1)];
        assert_eq!(
            found,
            expected.map(|(names, count)| (names.to_owned(), count))
        );
    }

    #[test]
    fn what_called_the_program_before_is_left_out() {
        let frame = |name: &str, kind, in_guest| Frame {
            caller: Some(Function {
                component: String::new(),
                name: name.to_owned(),
            }),
            in_guest,
            kind,
        };
        let path = [
            frame("spawn", Kind::Call, false),
            frame(START, Kind::Call, false),
            frame("run", Kind::Guest, true),
            frame("of the guest before", Kind::Call, true),
            frame(START, Kind::Call, true),
            frame("main", Kind::Call, true),
        ];
        let names = callers(&path).into_iter().map(|function| function.name);
        let names: Vec<_> = names.collect();
        assert_eq!(names, [START, "run", START, "main"]);
    }
}
