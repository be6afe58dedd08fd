//! The translated instructions and blocks of a machine.

use super::{Block, Insn, InsnSite, Role};
use crate::format::InsnCount;
use crate::insn::{self, VMRUN};
use crate::levels::EntryId;
use crate::page;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use trapline_abi::marker;

/// Sites, and the file for their counts.
#[derive(Default)]
pub(super) struct State {
    pub sites: HashMap<SiteKey, &'static InsnSite>,
    /// Blocks by the addresses of their sites.
    blocks: HashMap<Vec<usize>, &'static Block>,
    /// Blocks that were executed in the open window of a kind.
    counted: [Vec<&'static Block>; 2],
    /// Targets of #VMEXIT by virtual address and address in QEMU's memory; the latter is 0 in the
    /// page after the entry. Kernels of different levels use equal virtual addresses.
    exit_targets: HashMap<(u64, usize), EntryId>,
    pub output: Option<File>,
}

/// Virtual address, address in QEMU's memory, and whether the translation block ends.
pub(super) type SiteKey = (u64, usize, bool);

impl State {
    /// Returns the function of an instruction.
    pub fn role(&mut self, is_privileged: bool, insn: &Insn<'_>) -> Role {
        let bytes = insn.bytes;
        if is_privileged && bytes == VMRUN {
            return Role::GuestEntry(self.guest_entry(insn));
        }
        let places = [insn.physical, 0].map(|physical| (insn.address, physical));
        let mut entries = places
            .iter()
            .filter_map(|place| self.exit_targets.get(place));
        if let Some(entry) = entries.next().filter(|_| is_privileged) {
            return Role::ExitTarget(*entry);
        }
        match marker::kind(bytes) {
            Some(marker::BEGIN) => Role::BeginBatch,
            Some(marker::END) => Role::EndBatch,
            _ => match marker::stage(bytes) {
                Some(stage) => Role::ReachStage(stage),
                None => insn::flow(bytes).map_or(Role::Ordinary, Role::Flow),
            },
        }
    }

    fn guest_entry(&mut self, vmrun: &Insn<'_>) -> EntryId {
        let target = vmrun.address + VMRUN.len() as u64;
        let physical = if target.is_multiple_of(page::SIZE as u64) {
            0
        } else {
            vmrun.physical + VMRUN.len()
        };
        let number = self.exit_targets.len();
        let known = self.exit_targets.entry((target, physical));
        *known.or_insert_with(|| EntryId::new(number))
    }

    /// Returns the block of these instructions.
    pub fn block(&mut self, sites: Vec<&'static InsnSite>) -> &'static Block {
        let key = sites.iter().map(|site| std::ptr::from_ref(*site) as usize);
        self.blocks
            .entry(key.collect())
            .or_insert_with(|| Box::leak(Box::new(Block::new(sites))))
    }

    /// Records that a block was executed in the open windows of these kinds.
    pub fn add_counted(&mut self, block: &'static Block, kinds: [bool; 2]) {
        for (counted, is_first) in self.counted.iter_mut().zip(kinds) {
            if is_first {
                counted.push(block);
            }
        }
    }

    /// Replaces the site of code that was modified. The old one, with the count of its path, moves to a key
    /// that no instruction has.
    pub fn replace(&mut self, key: SiteKey, site: &'static InsnSite) {
        if let Some(old) = self.sites.insert(key, site) {
            let unused = std::ptr::from_ref(old) as usize;
            self.sites.insert((key.0, unused, key.2), old);
        }
    }

    /// Removes and returns the counts of a window kind, ordered independently of translation. Pages are
    /// returned for level `paged`.
    pub fn take_counts(&mut self, kind: usize, paged: u8) -> Vec<InsnCount> {
        let mut sums: BTreeMap<(u8, u64, Option<u64>, bool), InsnCount> = BTreeMap::new();
        for block in self.counted[kind].drain(..) {
            block.take(kind, |site, (level, finds_length), count| {
                let (address, page) = (site.address, site.page.filter(|_| level == paged));
                let sum = sums
                    .entry((level, address, page, finds_length))
                    .or_default();
                *sum = InsnCount {
                    level,
                    address,
                    page,
                    count: sum.count + count,
                    unretired: 0,
                    finds_length,
                    is_exit_target: sum.is_exit_target || site.target_of().is_some(),
                    event: sum.event.or(site.traits.event().filter(|_| level == 0)),
                };
            });
        }
        sums.into_values().collect()
    }
}
