//! Folds call paths into stacks of functions, as shown by flame graphs.
//!
//! A frame has the name of the function that control is in: the one that makes the next call, or
//! that the instruction belongs to. So the target of a tail jump replaces the function that
//! jumped. The plugin records addresses only; everything that depends on names is decided here.

use crate::address_space::{AddressLayout, AddressSpace};
use crate::format::{CallPath, CallStep, StepKind};
use crate::symbols::{Function, Symbols};
use std::collections::BTreeMap;

/// A call stack and the instructions executed on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Functions, each called by the one before.
    pub frames: Vec<Function>,
    /// Instructions in the batch.
    pub count: u64,
}

/// Folds `paths` into stacks, in order of names.
pub fn fold(paths: &[CallPath], symbols: &Symbols, layout: AddressLayout) -> Vec<Stack> {
    let mut folded: BTreeMap<Vec<Function>, u64> = BTreeMap::new();
    // The frames of the last path, one per step.
    let mut frames: Vec<Frame> = Vec::new();
    let names = Names { symbols, layout };
    for path in paths {
        if let Some(step) = &path.step {
            frames.truncate(path.depth - 1);
            let in_guest = frames.last().is_some_and(|frame| frame.in_guest);
            frames.push(names.frame(step, in_guest));
        }
        let in_guest = frames.last().is_some_and(|frame| frame.in_guest);
        let callers = callers(&frames);
        for (address, count) in &path.counts {
            let mut stack = callers.clone();
            let function = names.find(in_guest, *address);
            if stack.is_empty() || !is_thunk(&function) {
                stack.push(function);
            }
            *folded.entry(stack).or_default() += count;
        }
    }
    let stacks = folded.into_iter();
    stacks
        .map(|(frames, count)| Stack { frames, count })
        .collect()
}

/// A step of a path with its name.
struct Frame {
    /// The calling function; `None` if the step does not lead to another function.
    caller: Option<Function>,
    /// True if the code after the step runs in a guest.
    in_guest: bool,
    kind: StepKind,
}

/// First function of a program. Frames below it belong to the program that exec replaced.
const START: &str = "_start";

fn callers(frames: &[Frame]) -> Vec<Function> {
    let mut callers: Vec<Function> = Vec::new();
    let mut guest_entry = 0;
    for frame in frames {
        if let Some(caller) = &frame.caller {
            if caller.name == START {
                callers.truncate(guest_entry);
            }
            callers.push(caller.clone());
        }
        if frame.kind == StepKind::Guest {
            guest_entry = callers.len();
        }
    }
    callers
}

struct Names<'a> {
    symbols: &'a Symbols,
    layout: AddressLayout,
}

impl Names<'_> {
    fn find(&self, in_guest: bool, address: u64) -> Function {
        let space = self.layout.space(in_guest.into(), address);
        let mut function = self.symbols.find(space, address);
        if space == AddressSpace::Kernel {
            merge_syscall_entries(&mut function.name);
        }
        function
    }

    fn frame(&self, step: &CallStep, in_guest: bool) -> Frame {
        let caller = self.find(in_guest, step.site);
        let is_frame = !is_thunk(&caller) && !self.is_local_call(step, in_guest);
        Frame {
            caller: is_frame.then_some(caller),
            in_guest: in_guest || step.kind == StepKind::Guest,
            kind: step.kind,
        }
    }

    /// Returns true if a call leads into the middle of its own function, as those do that only
    /// fill the CPU's return stack.
    fn is_local_call(&self, step: &CallStep, in_guest: bool) -> bool {
        let space = self.layout.space(in_guest.into(), step.target);
        step.kind == StepKind::Call
            && step.target != 0
            && !self.symbols.begins(space, step.target)
            && self.find(in_guest, step.site) == self.find(in_guest, step.target)
    }
}

/// Replaces the labels within the kernel's system call entry by one name.
fn merge_syscall_entries(name: &mut String) {
    const ENTRY: &str = "entry_SYSCALL_64";
    let labels = [ENTRY, "entry_SYSRETQ_", "syscall_return_via_sysret"];
    if labels.iter().any(|label| name.starts_with(label)) {
        ENTRY.clone_into(name);
    }
}

/// Returns true for the kernel's thunks, which call and return without prediction.
fn is_thunk(function: &Function) -> bool {
    let prefixes = [
        "__x86_indirect_",
        "__x86_return_thunk",
        "retbleed_",
        "srso_",
        "its_return_thunk",
    ];
    let name = function.name.as_str();
    function.component == "kernel" && prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    fn symbols() -> Symbols {
        let mut symbols = Symbols::default();
        symbols.add_kallsyms(
            AddressSpace::Kernel,
            "kernel",
            "ffffffff81000000 T entry_SYSCALL_64\n\
             ffffffff81000010 T entry_SYSCALL_64_after_hwframe\n\
             ffffffff81000100 T ioctl\nffffffff81000200 T run\t[kvm_amd]\n\
             ffffffff81000300 T __x86_indirect_thunk_rax\nffffffff81000400 T end\n",
        );
        for space in [AddressSpace::User, AddressSpace::Guest] {
            symbols.add_range(space, 0x3000, 0x4000, "main");
        }
        symbols
    }

    fn path(depth: usize, kind: StepKind, site: u64, target: u64, at: &[u64]) -> CallPath {
        CallPath {
            depth,
            step: (depth > 0).then_some(CallStep { kind, site, target }),
            counts: at.iter().map(|address| (*address, 1)).collect(),
        }
    }

    fn folded(paths: &[CallPath]) -> Vec<(String, u64)> {
        let stacks = fold(paths, &symbols(), AddressLayout::Linux);
        let stacks = stacks.into_iter().map(|stack| {
            let names: Vec<_> = stack.frames.into_iter().map(|f| f.name).collect();
            (names.join(" "), stack.count)
        });
        stacks.collect()
    }

    #[test]
    fn guest_stacks_continue_kernel_and_program() {
        let found = folded(&[
            path(0, StepKind::Call, 0, 0, &[0x3000]),
            path(
                1,
                StepKind::Kernel,
                0x3001,
                KERNEL,
                &[KERNEL, KERNEL + 0x11],
            ),
            path(2, StepKind::Call, KERNEL + 0x12, KERNEL + 0x200, &[]),
            path(3, StepKind::Guest, KERNEL + 0x201, 0, &[0x3000, 0x3001]),
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
    fn thunks_and_local_calls_are_not_frames() {
        let call = |depth, site, target, at| {
            path(depth, StepKind::Call, KERNEL + site, KERNEL + target, at)
        };
        let found = folded(&[
            path(0, StepKind::Call, 0, 0, &[]),
            call(1, 0x100, 0x300, &[KERNEL + 0x300]),
            call(2, 0x300, 0x308, &[KERNEL + 0x308]),
            call(2, 0x200, 0x208, &[KERNEL + 0x208]),
            call(3, 0x208, 0x200, &[KERNEL + 0x200]),
        ]);
        // The last call is recursion: its target is the start of the function.
        let expected = [("ioctl", 2), ("ioctl run", 1), ("ioctl run run", 1)];
        assert_eq!(
            found,
            expected.map(|(names, count)| (names.to_owned(), count))
        );
    }

    #[test]
    fn callers_of_replaced_programs_are_dropped() {
        let frame = |name: &str, kind, in_guest| Frame {
            caller: Some(Function {
                component: String::new(),
                name: name.to_owned(),
            }),
            in_guest,
            kind,
        };
        let frames = [
            frame("spawn", StepKind::Call, false),
            frame(START, StepKind::Call, false),
            frame("run", StepKind::Guest, true),
            frame("previous guest", StepKind::Call, true),
            frame(START, StepKind::Call, true),
            frame("main", StepKind::Call, true),
        ];
        let names = callers(&frames).into_iter().map(|function| function.name);
        let names: Vec<_> = names.collect();
        assert_eq!(names, [START, "run", START, "main"]);
    }
}
