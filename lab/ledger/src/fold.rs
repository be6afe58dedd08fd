//! From call paths to stacks of functions, as flame graphs show them.
//!
//! A frame has the name of the function that control is in: the one that makes the
//! next call, or that the instruction belongs to. A function that was jumped to
//! therefore stands in the place of the one that jumped. The plugin knows no
//! names; what needs them is decided here.

use crate::account::{space_of, Machine};
use crate::symbols::{Function, Space, Symbols};
use crate::wire::{Context, Kind, Step};
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
        let space = space_of(self.machine, in_guest, address);
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
        let space = space_of(self.machine, in_guest, step.target);
        step.kind == Kind::Call
            && step.target != 0
            && !self.symbols.begins(space, step.target)
            && self.find(in_guest, step.site) == self.find(in_guest, step.target)
    }
}

/// The kernel's entry has several labels.
fn one_entry(name: &mut String) {
    const ENTRY: &str = "entry_SYSCALL_64";
    if name.starts_with(ENTRY) {
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
