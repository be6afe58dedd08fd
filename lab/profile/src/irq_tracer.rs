//! Traces timer interrupts while the machine runs, in place of the counter: measures how many
//! ticks the machine's clock counts from the host's timer interrupt until the guest's handler
//! reads the clock.
//!
//! QEMU itself adds up executed instructions. The tracer is called only at the start of each
//! translation block and at the few instructions on the path. How many instructions of a block
//! were executed before the next block started gives the instruction that control left it by,
//! which is all that [`Retirement`] needs.
//!
//! Among several host timer interrupts, the last one counts after which a guest's timer was found
//! expired. A halt of the CPU discards everything: the clock then advances by an unknown number
//! of ticks.

use crate::address_space::{AddressLayout, AddressSpace};
use crate::counter::Insn;
use crate::current_block::CurrentBlock;
use crate::insn::{Event, InsnTraits, VMRUN};
use crate::irq_path::{IrqEvent, IrqPath, IrqTimestamps};
use crate::retirement::{OpenWindows, Retirement};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// One window, always open.
const OPEN: OpenWindows = [true, false];

/// A translation block.
#[derive(Debug)]
pub struct Block {
    insns: Vec<(InsnTraits, Option<TracePoint>)>,
    /// True if its first instruction is the target of #VMEXIT.
    is_exit_target: bool,
}

impl Block {
    /// Returns the trace point at the instruction with this index.
    pub fn trace_point(&self, index: usize) -> Option<&TracePoint> {
        self.insns.get(index)?.1.as_ref()
    }

    /// Returns the last of the first `executed` instructions, and its trace point.
    fn last(&self, executed: u64) -> Option<(InsnTraits, Option<TracePoint>)> {
        let index = usize::try_from(executed.checked_sub(1)?).ok()?;
        self.insns.get(index).copied()
    }
}

/// An instruction on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePoint {
    address: u64,
    event: IrqEvent,
}

/// Traces interrupts on one path.
pub struct IrqTracer {
    path: OnceLock<IrqPath>,
    layout: OnceLock<AddressLayout>,
    /// Targets of #VMEXIT.
    exit_targets: Mutex<Option<HashSet<u64>>>,
    block: CurrentBlock<Block>,
    in_guest: AtomicBool,
    /// True from the host's timer interrupt on, and the number of instructions that had begun.
    is_tracing: AtomicBool,
    executed_at_start: AtomicU64,
    retirement: Retirement,
    progress: Mutex<Progress>,
}

/// Events since the host's timer interrupt, as clock ticks.
#[derive(Clone, Copy)]
struct Progress {
    /// Last timer interrupt of the host.
    host_irq: u64,
    /// The one after which a guest timer had expired.
    woke: Option<u64>,
    marked: Option<u64>,
    guest_entry: Option<u64>,
    in_handler: bool,
}

impl Progress {
    const NONE: Self = Self {
        host_irq: 0,
        woke: None,
        marked: None,
        guest_entry: None,
        in_handler: false,
    };
}

impl IrqTracer {
    /// Creates a tracer without a path, which traces nothing.
    pub const fn new() -> Self {
        Self {
            path: OnceLock::new(),
            layout: OnceLock::new(),
            exit_targets: Mutex::new(None),
            block: CurrentBlock::new(),
            in_guest: AtomicBool::new(false),
            is_tracing: AtomicBool::new(false),
            executed_at_start: AtomicU64::new(0),
            retirement: Retirement::new(),
            progress: Mutex::new(Progress::NONE),
        }
    }

    /// Sets the path. Only the first call has an effect.
    pub fn set_path(&self, path: IrqPath) {
        let _ = self.path.set(path);
    }

    /// Sets the address layout. Only the first call has an effect; the default is Linux.
    pub fn set_layout(&self, layout: AddressLayout) {
        let _ = self.layout.set(layout);
    }

    /// Returns true if a path is set.
    pub fn is_enabled(&self) -> bool {
        self.path.get().is_some()
    }

    /// Sets the counter that QEMU increments before each instruction, after the call of
    /// [`Self::trace`] for it. Only the first call has an effect.
    pub fn set_executed(&self, executed: &'static AtomicU64) {
        self.block.set_executed(executed);
    }

    fn layout(&self) -> AddressLayout {
        self.layout.get().copied().unwrap_or_default()
    }

    /// Creates the block of these instructions. Blocks are never freed: QEMU keeps pointers to
    /// them in its translations.
    pub fn block<'a>(&self, insns: impl Iterator<Item = Insn<'a>>) -> &'static Block {
        let layout = self.layout();
        let mut exit_targets = self
            .exit_targets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let exit_targets = exit_targets.get_or_insert_default();
        let mut first = None;
        let insn = |insn: Insn<'a>| {
            let Insn { address, bytes, .. } = insn;
            first.get_or_insert(address);
            let traits = InsnTraits::new(layout, address, bytes, insn.ends_block);
            let event = match layout.is_privileged(address) {
                true if bytes == VMRUN => {
                    exit_targets.insert(address + VMRUN.len() as u64);
                    Some(IrqEvent::GuestEntry)
                }
                true if traits.event() == Some(Event::Halt) => Some(IrqEvent::Halt),
                _ => self.path.get().and_then(|path| path.event(address, bytes)),
            };
            (traits, event.map(|event| TracePoint { address, event }))
        };
        let insns: Vec<_> = insns.map(insn).collect();
        let is_exit_target =
            first.is_some_and(|first| layout.is_privileged(first) && exit_targets.contains(&first));
        Box::leak(Box::new(Block {
            insns,
            is_exit_target,
        }))
    }

    /// Records that a block begins.
    pub fn begin_block(&self, block: &'static Block) {
        let before = self.block.begin(block);
        let last = before.and_then(|(before, executed)| before.last(executed));
        let was_in_guest = self.in_guest.load(Relaxed);
        let enters_guest = last
            .and_then(|(_, point)| point)
            .is_some_and(|point| point.event == IrqEvent::GuestEntry);
        let in_guest = (was_in_guest || enters_guest) && !block.is_exit_target;
        self.in_guest.store(in_guest, Relaxed);
        if !self.is_tracing.load(Relaxed) {
            return;
        }
        if let Some((insn, _)) = last {
            self.retirement.skip_to(insn, was_in_guest.into());
        }
        if let Some((insn, _)) = block.insns.first() {
            if in_guest {
                self.retirement.execute_in_guest(*insn, 1, OPEN)
            } else {
                let exited = block.is_exit_target.then_some(1);
                self.retirement.execute_on_host(*insn, 0, exited, OPEN);
            }
        }
    }

    /// Records that a trace point is executed. Returns the timestamps of an interrupt if this
    /// reads the clock in its handler.
    pub fn trace(&self, point: &TracePoint) -> Option<IrqTimestamps> {
        let in_guest = self.in_guest.load(Relaxed);
        let layout = self.layout();
        let space = layout.space(in_guest.into(), point.address);
        let is_tracing = self.is_tracing.load(Relaxed);
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match (point.event, space) {
            (IrqEvent::GuestHandler, AddressSpace::Guest) => progress.in_handler = true,
            (IrqEvent::ClockRead, AddressSpace::Guest) if progress.in_handler => {
                return Some(self.finish(progress));
            }
            _ if in_guest || !layout.is_privileged(point.address) => {}
            (IrqEvent::HostIrq, _) => {
                if !is_tracing {
                    self.start();
                }
                progress.host_irq = self.ticks();
            }
            (_, _) if !is_tracing => {}
            (IrqEvent::TimerExpired, _) => {
                progress.woke = Some(progress.host_irq);
                progress.marked = None;
            }
            (IrqEvent::IrqPended, _) if progress.woke.is_some() && progress.marked.is_none() => {
                progress.marked = Some(self.ticks());
            }
            // The guest is entered after this instruction.
            (IrqEvent::GuestEntry, _) => progress.guest_entry = Some(self.ticks() + 1),
            (IrqEvent::Halt, _) => {
                *progress = Progress::NONE;
                self.is_tracing.store(false, Relaxed);
            }
            _ => {}
        }
        None
    }

    /// Returns the clock ticks since the start, without the current instruction.
    fn ticks(&self) -> u64 {
        let executed = self.block.executed() - self.executed_at_start.load(Relaxed);
        executed.saturating_sub(self.retirement.unretired(0))
    }

    fn start(&self) {
        self.retirement.reset();
        let executed = self.block.executed();
        self.executed_at_start.store(executed, Relaxed);
        self.is_tracing.store(true, Relaxed);
    }

    /// RDTSC reads the clock including itself.
    fn finish(&self, mut progress: MutexGuard<'_, Progress>) -> IrqTimestamps {
        let was_tracing = self.is_tracing.swap(false, Relaxed);
        let progress = std::mem::replace(&mut *progress, Progress::NONE);
        let Some(woke) = progress.woke.filter(|_| was_tracing) else {
            return IrqTimestamps::default();
        };
        let now = self.ticks() + 1;
        IrqTimestamps {
            woke: Some(now - woke),
            marked: progress.marked.map(|marked| now - marked),
            guest_entry: progress.guest_entry.map(|entry| now - entry),
        }
    }
}

impl Default for IrqTracer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
