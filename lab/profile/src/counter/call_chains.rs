//! The call chains of the machine and of the guest on it, at every moment.
//!
//! A frame is identified by the memory word that its call stored the return address in. A return
//! pops the frame of the word that it loads, and all frames above. So thread switches need no
//! rule of their own: the return that ends one loads a word of the other thread's stack, whose
//! frame records its callers. Words are identified by physical address, because programs and
//! guests use equal virtual addresses.

use super::call_tree::{CallTree, ROOT};
use crate::address_space::KERNEL;
use crate::format::{CallPath, CallStep, StepKind};
use crate::insn::Flow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Smallest distance between words of different stacks: a guard page separates stacks.
const STACK_DISTANCE: u64 = 4096;

/// Largest depth of a chain. Deeper chains start again at the root.
const MAX_DEPTH: u32 = 2048;

/// A memory word with a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSlot {
    /// Virtual address.
    pub address: u64,
    /// Physical address.
    pub physical: u64,
}

/// A call or return before its successor is known.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Call or return.
    pub flow: Flow,
    /// Its address.
    pub site: u64,
    /// The address after it.
    pub next_address: u64,
    /// The word that it stored or loaded.
    pub slot: StackSlot,
}

/// A call that has not returned, or an entry from user space into the kernel.
#[derive(Debug)]
struct Frame {
    caller: Link,
    step: CallStep,
    /// Virtual address of the return address, and its value; 0 for kernel entries.
    slot: u64,
    return_address: u64,
    depth: u32,
    /// Cached path that ends here, and the epoch it is valid in.
    cached_path: AtomicU64,
}

type Link = Option<Arc<Frame>>;

impl Frame {
    fn is_call(&self) -> bool {
        self.step.kind == StepKind::Call
    }

    /// Returns true if a call that uses `slot`, on the same stack, overwrites this frame.
    fn is_overwritten_by(&self, slot: u64) -> bool {
        self.is_call() && slot >= self.slot && slot - self.slot < STACK_DISTANCE
    }

    /// Returns true if `slot` lies above this frame on the same stack.
    fn continues_at(&self, slot: u64) -> bool {
        !self.is_call() || (slot < self.slot && self.slot - slot < STACK_DISTANCE)
    }
}

/// Call chain of the machine, or of the guest.
#[derive(Debug, Default)]
struct Chain {
    top: Link,
    in_kernel: bool,
    /// Last instruction before the other chain continued.
    last: u64,
    /// Path that the frames continue, and the epoch it is valid in.
    base: u32,
    epoch: u32,
}

const HOST: usize = 0;
const GUEST: usize = 1;

/// Both chains and the call tree of the open window.
#[derive(Debug, Default)]
pub struct CallChains {
    chains: [Chain; 2],
    in_guest: bool,
    slots: HashMap<u64, Arc<Frame>>,
    transfer: Option<Transfer>,
    tree: Option<CallTree>,
    epochs: u32,
}

impl CallChains {
    /// Creates the empty chains of a machine that has executed nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a call or return, which takes effect at the next instruction.
    pub fn transfer(&mut self, transfer: Transfer) {
        self.transfer = Some(transfer);
    }

    /// Records that execution goes from `last` to `address`.
    pub fn reach(&mut self, address: u64, in_guest: bool, last: u64) {
        let in_kernel = address >= KERNEL;
        if let Some(transfer) = self.transfer.take() {
            let is_direct = in_guest == self.in_guest && in_kernel == self.chain().in_kernel;
            let next = is_direct.then_some(address);
            match transfer.flow {
                Flow::Call => self.call(transfer, next.unwrap_or(0)),
                Flow::Return => self.return_from(transfer.slot, next),
            }
        }
        self.chain().last = last;
        if in_guest != self.in_guest {
            self.in_guest = in_guest;
            self.set_guest_base(last);
        }
        let chain = self.chain();
        if in_kernel != chain.in_kernel {
            chain.in_kernel = in_kernel;
            if in_kernel {
                self.enter_kernel(address);
            } else {
                self.leave_kernel();
            }
        }
    }

    fn chain(&mut self) -> &mut Chain {
        &mut self.chains[usize::from(self.in_guest)]
    }

    fn call(&mut self, call: Transfer, target: u64) {
        // Frames below the new word were left without a return: by an exception, or by adding to
        // the stack pointer.
        let slot = call.slot.address;
        while let Some(left) = self.chain().top.take_if(|top| top.is_overwritten_by(slot)) {
            self.chain().top = left.caller.clone();
        }
        let step = CallStep {
            kind: StepKind::Call,
            site: call.site,
            target,
        };
        let frame = self.push(step, slot, call.next_address);
        self.slots.insert(call.slot.physical, frame);
    }

    fn push(&mut self, step: CallStep, slot: u64, return_address: u64) -> Arc<Frame> {
        let chain = self.chain();
        let caller = chain.top.take().filter(|caller| caller.depth < MAX_DEPTH);
        let frame = Arc::new(Frame {
            depth: caller.as_ref().map_or(0, |caller| caller.depth + 1),
            caller,
            step,
            slot,
            return_address,
            cached_path: AtomicU64::new(0),
        });
        chain.top = Some(frame.clone());
        frame
    }

    /// Handles a return that loaded `slot`. `next` is where it led, unless an exit or interrupt
    /// came in between.
    fn return_from(&mut self, slot: StackSlot, next: Option<u64>) {
        let found = self.slots.remove(&slot.physical);
        let chain = self.chain();
        let is_top = |frame: &Arc<Frame>| {
            let top = chain.top.as_ref();
            top.is_some_and(|top| Arc::ptr_eq(top, frame))
        };
        let is_matching = |frame: &Frame| next.is_none_or(|next| next == frame.return_address);
        // A thunk overwrites its return address and returns to the function it calls.
        if let Some(frame) = found.filter(|frame| is_matching(frame) || is_top(frame)) {
            chain.top = frame.caller.clone();
            return;
        }
        // No call stored the address. It was copied, or pushed to be jumped to; otherwise this
        // starts a thread.
        chain.top = match chain.top.take() {
            Some(top) if top.is_call() && Some(top.return_address) == next => top.caller.clone(),
            top => top.filter(|top| top.continues_at(slot.address)),
        };
    }

    fn enter_kernel(&mut self, target: u64) {
        let step = CallStep {
            kind: StepKind::Kernel,
            site: self.chain().last,
            target,
        };
        self.push(step, 0, 0);
    }

    /// Pops up to the thread's kernel entry; a new thread has none.
    fn leave_kernel(&mut self) {
        let chain = self.chain();
        while let Some(top) = chain.top.take() {
            chain.top = top.caller.clone();
            if !top.is_call() {
                break;
            }
        }
    }

    /// Opens a window with an empty tree.
    pub fn open(&mut self) {
        self.tree = Some(CallTree::default());
        for index in [HOST, GUEST] {
            self.chains[index].base = ROOT;
            self.chains[index].epoch = self.next_epoch();
        }
        if self.in_guest {
            self.set_guest_base(self.chains[HOST].last);
        }
    }

    fn next_epoch(&mut self) -> u32 {
        self.epochs += 1;
        self.epochs
    }

    /// Lets the guest's paths continue the host's path, which entered it at `site`.
    fn set_guest_base(&mut self, site: u64) {
        if !self.in_guest || self.tree.is_none() {
            return;
        }
        let host = self.path_of(HOST);
        let step = CallStep {
            kind: StepKind::Guest,
            site,
            target: 0,
        };
        let base = self.child(host, step);
        if base != self.chains[GUEST].base {
            self.chains[GUEST].base = base;
            self.chains[GUEST].epoch = self.next_epoch();
        }
    }

    /// Returns the current path; the root without an open window.
    pub fn path(&mut self) -> u32 {
        match self.tree {
            Some(_) => self.path_of(usize::from(self.in_guest)),
            None => ROOT,
        }
    }

    fn path_of(&mut self, index: usize) -> u32 {
        let Chain {
            top, base, epoch, ..
        } = &self.chains[index];
        let (mut path, epoch) = (*base, *epoch);
        let (mut uncached, mut frame) = (Vec::new(), top.clone());
        while let Some(next) = frame {
            let (cached_epoch, cached) = unpack(next.cached_path.load(Relaxed));
            if cached_epoch == epoch {
                path = cached;
                break;
            }
            frame = next.caller.clone();
            uncached.push(next);
        }
        for frame in uncached.into_iter().rev() {
            path = self.child(path, frame.step);
            frame.cached_path.store(pack(epoch, path), Relaxed);
        }
        path
    }

    fn child(&mut self, parent: u32, step: CallStep) -> u32 {
        let tree = self.tree.as_mut();
        tree.map_or(ROOT, |tree| tree.child(parent, step))
    }

    /// Adds `count` executions of the instruction at `address` to a path of the open window.
    pub fn count(&mut self, path: u32, address: u64, count: u64) {
        if let Some(tree) = &mut self.tree {
            tree.count(path, address, count);
        }
    }

    /// Closes the window and returns its paths.
    pub fn close(&mut self) -> Vec<CallPath> {
        self.tree.take().map_or_else(Vec::new, CallTree::into_paths)
    }
}

/// Packs a cached path. Epochs start at 1, so that 0 is never valid.
fn pack(epoch: u32, path: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(path)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests;
