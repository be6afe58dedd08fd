//! Counts instructions while the machine runs; called by the plugin.
//!
//! Every translated instruction has an [`InsnSite`]. Those of a translation block are counted together: the emulator
//! adds up executed instructions itself, and how many of a block were executed before the next one began gives the
//! instruction that control left it by. Instructions that open or close windows or change the level, and all if call
//! paths are counted, are watched one by one. When a window closes, its counts are written. Two kinds of windows are
//! independent of each other: batches, and the intervals between the stages of a launch.
//!
//! Guest mode is derived from VMRUN: the guest runs from VMRUN until the instruction after it,
//! the target of #VMEXIT, is executed. [`crate::levels`] extends that to nested guests. [`path_counter`]
//! counts by call path.

mod block;
mod call_chains;
mod call_tree;
mod path_counter;
mod sites;

pub use crate::insn::Flow;
pub use crate::lengths::Lengths;
pub use block::Block;
pub use call_chains::StackSlot;

use crate::address_space::{AddressLayout, AddressSpace};
use crate::current_block::CurrentBlock;
use crate::format::{self, InsnCount, MarkerError, Window, WindowKind};
use crate::insn::InsnTraits;
use crate::lengths::Point;
use crate::levels::{EntryId, Levels, Reached};
use crate::retirement::{OpenWindows, Retirement};
use path_counter::{PathCount, PathCounter};
use sites::State;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use trapline_abi::{marker, Stage};

/// Indices of the window kinds.
const BATCH: usize = 0;
const STAGE: usize = 1;

/// Value of [`Counter::stage`] outside of launches.
const NO_STAGE: u8 = u8::MAX;

/// Function of an instruction for the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ordinary,
    Flow(Flow),
    BeginBatch,
    EndBatch,
    GuestEntry(EntryId),
    /// Target of the #VMEXIT after a guest entry.
    ExitTarget(EntryId),
    ReachStage(Stage),
}

/// A translated instruction.
#[derive(Debug)]
pub struct InsnSite {
    address: u64,
    next_address: u64,
    role: Role,
    traits: InsnTraits,
    page: Option<u64>,
    path_count: PathCount,
    /// Its meaning for [`Lengths`], with [`Insn::counted_ahead`].
    point: Option<(Point, u64)>,
}

impl InsnSite {
    /// Returns the effect on the return addresses in memory.
    pub fn flow(&self) -> Option<Flow> {
        match self.role {
            Role::Flow(flow) => Some(flow),
            _ => None,
        }
    }

    /// Returns whether its execution affects neither windows nor the level.
    fn is_ordinary(&self) -> bool {
        matches!(self.role, Role::Ordinary | Role::Flow(_)) && self.point.is_none()
    }

    /// Returns the guest entry whose #VMEXIT leads to it, if any.
    fn target_of(&self) -> Option<EntryId> {
        match self.role {
            Role::ExitTarget(entry) => Some(entry),
            _ => None,
        }
    }
}

/// An instruction in translation.
#[derive(Clone, Copy, Debug)]
pub struct Insn<'a> {
    /// Virtual address.
    pub address: u64,
    /// Address of its first byte in QEMU's memory, which distinguishes instructions at equal
    /// virtual addresses.
    pub physical: usize,
    /// Machine code.
    pub bytes: &'a [u8],
    /// True for the last instruction of a translation block.
    pub ends_block: bool,
    /// [`page::fingerprint`](crate::page::fingerprint) of its page, if
    /// [`Counter::needs_page`].
    pub page: Option<u64>,
    /// Instructions of its block from this one on that [`Lengths`] has counted before it begins.
    pub counted_ahead: u64,
}

/// Method of counting a translation block.
#[derive(Clone, Debug)]
pub enum Translation {
    /// As a whole: [`Counter::begin_block`] is called when it begins.
    Whole(&'static Block),
    /// Instruction by instruction, each of which is a block: [`Counter::execute`] is called when it begins; not for those
    /// without a block.
    Single(Vec<Option<&'static Block>>),
}

/// Counts per instruction and the mode of the machine.
pub struct Counter {
    has_xen: AtomicBool,
    /// Number of levels, if there are nested guests.
    nested_levels: AtomicU8,
    levels: Levels,
    in_batch: AtomicBool,
    /// Stage reached last in the current launch.
    stage: AtomicU8,
    retirement: Retirement,
    paths: PathCounter,
    /// The block that executes, if it is counted as a whole and a window is open.
    block: CurrentBlock<Block>,
    /// Instructions that find lengths.
    lengths: Lengths,
    /// Only those are counted.
    counts_lengths_alone: AtomicBool,
    /// Value of [`Lengths::total`] at the begin of the window of a kind.
    lengths_before: [AtomicU64; 2],
    state: Mutex<Option<State>>,
}

impl Counter {
    /// Creates a counter without output.
    pub const fn new() -> Self {
        Self {
            has_xen: AtomicBool::new(false),
            nested_levels: AtomicU8::new(0),
            levels: Levels::new(),
            in_batch: AtomicBool::new(false),
            stage: AtomicU8::new(NO_STAGE),
            retirement: Retirement::new(),
            paths: PathCounter::new(),
            block: CurrentBlock::new(),
            lengths: Lengths::new(),
            counts_lengths_alone: AtomicBool::new(false),
            lengths_before: [AtomicU64::new(0), AtomicU64::new(0)],
            state: Mutex::new(None),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state: MutexGuard<'_, Option<State>> =
            self.state.lock().unwrap_or_else(PoisonError::into_inner);
        act(state.get_or_insert_with(State::default))
    }

    /// Sets the file that windows are written to.
    pub fn set_output(&self, file: File) {
        self.with(|state| state.output = Some(file));
    }

    /// Sets the address layout to Xen instead of Linux.
    pub fn set_xen(&self) {
        self.has_xen.store(true, Relaxed);
    }

    /// Counts instructions that find the length of an intercepted instruction; nothing else if `alone`.
    pub fn count_lengths(&self, alone: bool) {
        self.lengths.enable();
        self.counts_lengths_alone.store(alone, Relaxed);
    }

    /// Returns the counter of these instructions if it needs the number of executed instructions of a block that begins at
    /// `address`.
    pub fn lengths_at(&self, address: u64) -> Option<&Lengths> {
        let is_counted = self.lengths.is_enabled() && self.layout().is_privileged(address);
        is_counted.then_some(&self.lengths)
    }

    /// Sets the number that the emulator increments when an instruction of a block begins that is counted as a whole;
    /// without it none is. Only the first call has an effect.
    pub fn set_executed(&self, executed: &'static AtomicU64) {
        self.block.set_executed(executed);
    }

    /// Starts a launch without a marker.
    pub fn start_launch(&self) {
        self.stage.store(Stage::Exec as u8, Relaxed);
    }

    /// Sets the number of levels of virtualization on a machine with nested guests.
    pub fn set_nested(&self, levels: u8) {
        self.nested_levels.store(levels, Relaxed);
    }

    fn layout(&self) -> AddressLayout {
        match (self.has_xen.load(Relaxed), self.nested_levels.load(Relaxed)) {
            (true, 0) => AddressLayout::Xen,
            (true, levels) => AddressLayout::NestedXen(levels),
            (false, 0) => AddressLayout::Linux,
            (false, levels) => AddressLayout::Nested(levels),
        }
    }

    /// Returns true if the page of an instruction is needed to identify it: the first domain of
    /// Xen runs many programs at the same addresses.
    pub fn needs_page(&self, address: u64) -> bool {
        self.has_xen.load(Relaxed) && self.layout().space(0, address) == AddressSpace::User
    }

    /// Enables counts by call path. The plugin then calls [`Self::access_slot`], too.
    pub fn enable_paths(&self) {
        self.paths.enable();
    }

    /// Returns true if call paths are counted.
    pub fn counts_paths(&self) -> bool {
        self.paths.is_enabled()
    }

    /// Returns how the translation block of these instructions is counted. Blocks and sites are never freed: QEMU keeps
    /// pointers to them in its translations.
    pub fn translate<'a>(&self, insns: impl Iterator<Item = Insn<'a>>) -> Translation {
        if self.counts_lengths_alone.load(Relaxed) {
            return Translation::Single(insns.map(|insn| self.watched(&insn)).collect());
        }
        let sites: Vec<_> = insns.map(|insn| self.site(&insn)).collect();
        let is_whole = self.block.is_counted()
            && !self.counts_paths()
            && sites.iter().all(|site| site.is_ordinary());
        self.with(|state| {
            if is_whole {
                Translation::Whole(state.block(sites))
            } else {
                let sites = sites.into_iter();
                let single = sites.map(|site| Some(state.block(vec![site])));
                Translation::Single(single.collect())
            }
        })
    }

    /// Returns the block of an instruction if it opens or closes a window, or means something for [`Lengths`].
    fn watched(&self, insn: &Insn<'_>) -> Option<&'static Block> {
        let is_marker = marker::kind(insn.bytes).is_some() || marker::stage(insn.bytes).is_some();
        (is_marker || self.point(insn).is_some()).then(|| {
            let site = self.site(insn);
            self.with(|state| state.block(vec![site]))
        })
    }

    fn point(&self, insn: &Insn<'_>) -> Option<Point> {
        let is_privileged = self.layout().is_privileged(insn.address);
        self.lengths.point(insn.address, insn.bytes, is_privileged)
    }

    fn site(&self, insn: &Insn<'_>) -> &'static InsnSite {
        let Insn { address, page, .. } = *insn;
        let layout = self.layout();
        let traits = InsnTraits::new(layout, address, insn.bytes, insn.ends_block);
        let point = self.point(insn).map(|point| (point, insn.counted_ahead));
        self.with(|state| {
            let role = state.role(layout.is_privileged(address), insn);
            let key = (address, insn.physical, insn.ends_block);
            let is_same = |site: &InsnSite| {
                (site.role, site.traits, site.page, site.point) == (role, traits, page, point)
            };
            match state.sites.get(&key) {
                Some(site) if is_same(site) => site,
                _ => {
                    let site: &'static InsnSite = Box::leak(Box::new(InsnSite {
                        address,
                        next_address: address.wrapping_add(insn.bytes.len() as u64),
                        role,
                        traits,
                        page,
                        path_count: PathCount::new(),
                        point,
                    }));
                    state.replace(key, site);
                    site
                }
            }
        })
    }

    /// Records that a block begins that is counted as a whole.
    #[inline]
    pub fn begin_block(&self, block: &'static Block) {
        // The block before has been counted when the last window closed.
        if self.open_windows() != [false; 2] {
            self.count_left(self.block.begin(block));
        }
    }

    /// Counts the executed instructions of a block that control left.
    fn count_left(&self, left: Option<(&'static Block, u64)>) {
        let Some((block, executed)) = left else {
            return;
        };
        // Neither windows nor the level changed since it began.
        let level = self.levels.reach(None).level;
        let open = self.open_windows();
        if let Some((index, last)) = block.last(executed) {
            self.count(block, index, level, open);
            self.retire(block.first(), level, None, open);
            if index != 0 {
                self.retirement.skip_to(last.traits, level);
            }
        }
    }

    /// Counts one execution of a block of one instruction.
    ///
    /// # Errors
    /// A window ended and cannot be written.
    pub fn execute(&self, block: &'static Block) -> Result<(), String> {
        self.count_left(self.block.leave());
        let site = block.first();
        if let Some((point, counted_ahead)) = site.point {
            self.lengths.reach(site.address, point, counted_ahead);
        }
        let Reached { level, exited } = self.levels.reach(site.target_of());
        self.paths.reach(site.address, level != 0);
        // A batch contains neither of its markers; the window of a stage begins with its own.
        let closed = match site.role {
            Role::EndBatch => self.end_batch(),
            Role::ReachStage(stage) => self.reach_stage(stage),
            _ => Ok(()),
        };
        let open = self.open_windows();
        if open != [false; 2] && !self.counts_lengths_alone.load(Relaxed) {
            self.count(block, 0, level, open);
            if open[BATCH] {
                self.paths.count(site);
            }
            self.retire(site, level, exited, open);
        }
        match site.role {
            Role::BeginBatch => self.begin_batch(),
            Role::GuestEntry(entry) => {
                self.levels.enter(entry);
                Ok(())
            }
            _ => closed,
        }
    }

    /// Records that the call or return at `site` accessed `slot`.
    pub fn access_slot(&self, site: &InsnSite, slot: StackSlot) {
        if let Some(flow) = site.flow() {
            self.paths
                .access_slot(flow, site.address, site.next_address, slot);
        }
    }

    fn open_windows(&self) -> OpenWindows {
        let in_stage = self.stage.load(Relaxed) != NO_STAGE;
        [self.in_batch.load(Relaxed), in_stage]
    }

    /// Counts an execution of a block that ended with the instruction at `last`.
    fn count(&self, block: &'static Block, last: usize, level: u8, open: OpenWindows) {
        let finds_length = self.lengths.is_finding();
        let is_first = block.count(last, (level, finds_length), open);
        if is_first != [false; 2] {
            self.with(|state| state.add_counted(block, is_first));
        }
    }

    /// Tracks whether the instruction before `site` retired.
    fn retire(&self, site: &InsnSite, level: u8, exited: Option<u8>, open: OpenWindows) {
        if level < self.layout().levels() {
            self.retirement
                .execute_on_host(site.traits, level, exited, open);
        } else {
            self.retirement.execute_in_guest(site.traits, level, open);
        }
    }

    fn reset_if_all_closed(&self) {
        if self.open_windows() == [false; 2] {
            self.retirement.reset();
        }
    }

    fn begin_batch(&self) -> Result<(), String> {
        self.reset_if_all_closed();
        self.open_lengths(BATCH);
        let is_nested = self.in_batch.swap(true, Relaxed);
        self.paths.open();
        if is_nested {
            self.write(MarkerError::Nested.line())
        } else {
            Ok(())
        }
    }

    fn end_batch(&self) -> Result<(), String> {
        if self.in_batch.swap(false, Relaxed) {
            self.close(BATCH, WindowKind::Batch)
        } else {
            self.write(MarkerError::Unbegun.line())
        }
    }

    /// Counts a launch from exec until it is reaped. The next exec discards the window of one
    /// that was never reaped. An exec right after another belongs to the same launch: a toolstack, and then the VMM.
    fn reach_stage(&self, stage: Stage) -> Result<(), String> {
        self.reset_if_all_closed();
        let number = usize::from(self.stage.load(Relaxed));
        match Stage::ALL.get(number) {
            Some(Stage::Exec) if stage == Stage::Exec => return Ok(()),
            Some(_) if stage == Stage::Exec => drop(self.take(STAGE)),
            Some(before) => self.close(STAGE, WindowKind::Stage(*before, stage))?,
            None if stage == Stage::Exec => {}
            None => return Ok(()),
        }
        let next = match stage {
            Stage::Reaped => NO_STAGE,
            _ => stage as u8,
        };
        self.stage.store(next, Relaxed);
        self.open_lengths(STAGE);
        Ok(())
    }

    fn open_lengths(&self, kind: usize) {
        self.lengths_before[kind].store(self.lengths.total(), Relaxed);
    }

    /// Removes and returns the counts of a window kind.
    fn take(&self, kind: usize) -> Vec<InsnCount> {
        let mut unretired = self.retirement.take(kind);
        // Pages identify the programs of Xen's first domain, whose level is the last below the guest.
        let paged = self.layout().levels().saturating_sub(1);
        let mut insns = self.with(|state| state.take_counts(kind, paged));
        for insn in &mut insns {
            let entry = (insn.level, insn.address);
            if !insn.finds_length {
                insn.unretired = unretired.remove(&entry).unwrap_or(0);
            }
        }
        insns
    }

    fn close(&self, index: usize, kind: WindowKind) -> Result<(), String> {
        let insns = self.take(index);
        let paths = self.with(|state| match kind {
            WindowKind::Batch => self.paths.close(state.sites.values().copied()),
            WindowKind::Stage(..) => Vec::new(),
        });
        let lengths = self.lengths.is_known().then(|| self.lengths.total());
        let lengths_before = self.lengths_before[index].load(Relaxed);
        self.write(&format::write(&Window {
            kind,
            insns,
            lengths: lengths.map(|lengths| lengths - lengths_before),
            paths,
            ..Window::default()
        }))
    }

    /// Writes text to the output.
    ///
    /// # Errors
    /// The error of the file.
    pub fn write(&self, text: &str) -> Result<(), String> {
        self.with(|state| match &mut state.output {
            Some(file) => file.write_all(text.as_bytes()),
            None => Ok(()),
        })
        .map_err(|error| format!("output file: {error}"))
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
