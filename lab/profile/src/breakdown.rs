//! Instruction profiles: a figure broken down into functions.
//!
//! The machine's clock counts every retired instruction. The plugin also counts instructions
//! that a hypervisor intercepts or that fault, which do not retire. So the clock's difference
//! over a batch is `around + counted - unretired`; any difference to that is the residual. What is excluded from the
//! figure is counted, and subtracted in an item of its own.

use crate::address_space::{AddressLayout, AddressSpace};
use crate::format::Window;
use crate::insn::Event;
use crate::source::{CodeOffset, SourceLine, Sources};
use crate::stacks::{self, Stack};
use crate::symbols::{Function, Symbols};
use std::collections::BTreeMap;
use trapline_abi::Stage;

/// Iterations of the empty loop in [`Batch::loop_cost`].
const LOOP_ITERATIONS: f64 = 1024.0;

/// One or more batches of an operation, as measured by the guest, without what is excluded ([`Window::lengths`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Difference of the clock, in instructions.
    pub ticks: u64,
    /// Number of operations.
    pub count: u64,
    /// Instructions of as many empty batches.
    pub clock_cost: u64,
    /// Instructions of 1,024 iterations of the empty loop.
    pub loop_cost: u64,
}

impl Batch {
    /// Returns the instructions per operation. Over all batches this is the reported figure.
    pub fn figure(&self) -> f64 {
        let batch = self.ticks as f64 - self.clock_cost as f64;
        batch / self.count as f64 - self.loop_per_operation()
    }

    fn loop_per_operation(&self) -> f64 {
        self.loop_cost as f64 / LOOP_ITERATIONS
    }

    /// Merges the batches of one operation; `None` without batches.
    pub fn merge(batches: &[Self]) -> Option<Self> {
        let sum = |of: fn(&Self) -> u64| batches.iter().map(of).sum();
        Some(Self {
            ticks: sum(|batch| batch.ticks),
            count: sum(|batch| batch.count),
            clock_cost: sum(|batch| batch.clock_cost),
            loop_cost: batches.first()?.loop_cost,
        })
    }
}

/// Instructions per operation in one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCost {
    /// The function.
    pub function: Function,
    /// Instructions per operation; negative for what is subtracted.
    pub insn: f64,
}

/// Breakdown of one operation's instructions. The items add up to the total.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Measured instructions per operation.
    pub total: f64,
    /// Instructions in all batches that the count does not explain.
    pub residual: i64,
    /// Operations in all batches.
    pub operations: u64,
    /// Instructions counted between the markers.
    pub counted: u64,
    /// Guest exits.
    pub exits: u64,
    /// Faults.
    pub faults: u64,
    /// Interrupts of the machine.
    pub interrupts: u64,
    /// Number of executions in host mode, by event.
    pub events: BTreeMap<Event, u64>,
    /// Instructions that were counted and did not retire: by guest exits, and by faults.
    pub unretired: [u64; 2],
    /// Instructions that were counted and are excluded from the figure: those that find the length of an instruction.
    pub excluded: u64,
    /// Functions by decreasing cost; then what is subtracted.
    pub items: Vec<FunctionCost>,
    /// Counted instructions by call stack; empty unless the plugin recorded stacks.
    pub stacks: Vec<Stack>,
    /// Profiles of the stages of a launch, in order. Their totals add up to this one.
    pub stages: Vec<StageProfile>,
    /// Executions by offset in a function; empty unless source lines are requested.
    pub executed: BTreeMap<CodeOffset, u64>,
    /// Source lines, if requested.
    pub sources: Option<Sources>,
}

/// Profile of one stage, the mean over launches.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProfile {
    /// Stage that it begins with.
    pub from: Stage,
    /// Stage that it ends with.
    pub to: Stage,
    /// Its profile.
    pub profile: Profile,
}

/// A function whose cost differs between two profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The function.
    pub function: Function,
    /// Instructions per operation before and after.
    pub insn: (f64, f64),
}

impl Change {
    /// Returns the increase in instructions per operation.
    pub fn difference(&self) -> f64 {
        self.insn.1 - self.insn.0
    }
}

/// Component of the innermost guest.
const GUEST: &str = "guest";

/// Component of items that are not functions.
pub const MEASUREMENT: &str = "(measurement)";

/// Linux's handlers of faults in instructions that do not retire.
const LINUX_FAULTS: [&str; 2] = ["asm_exc_page_fault", "asm_exc_general_protection"];

/// Linux's handlers of undefined instructions and disabled units, which QEMU finds at
/// translation and counts as retired.
const LINUX_REFUSALS: [&str; 2] = ["asm_exc_invalid_op", "asm_exc_device_not_available"];

/// The same in Xen, by its names until 4.18 and since.
const XEN_FAULTS: [&str; 4] = ["page_fault", "general_protection", "entry_PF", "entry_GP"];
const XEN_REFUSALS: [&str; 4] = ["invalid_op", "device_not_available", "entry_UD", "entry_NM"];

/// The image's handlers of page faults, the second of a kernel that is isolated from programs.
const IMAGE_FAULTS: [&str; 2] = [
    "trapline_page_fault_entry",
    "trapline_page_fault_entry_isolated",
];

/// Xen's entry for all interrupts.
const XEN_INTERRUPT: &str = "common_interrupt";

fn is_linux_interrupt(name: &str) -> bool {
    name.starts_with("asm_sysvec_") || name == "asm_common_interrupt"
}

impl Profile {
    /// Returns how often an event occurred in all batches.
    pub fn count(&self, event: Event) -> u64 {
        self.events.get(&event).copied().unwrap_or(0)
    }

    /// Creates the profile of merged batches from their merged windows. `around` is the number
    /// of instructions between the clock readings and the markers.
    pub fn new(
        batch: &Batch,
        window: &Window,
        symbols: &Symbols,
        layout: AddressLayout,
        around: u64,
    ) -> Self {
        let entries = HandlerEntries::find(symbols, layout);
        let mut functions: BTreeMap<Function, u64> = BTreeMap::new();
        let mut profile = Self {
            total: batch.figure(),
            operations: batch.count,
            stacks: stacks::fold(&window.paths, symbols, layout),
            excluded: window.lengths.unwrap_or(0),
            ..Self::default()
        };
        let mut finding = 0;
        for insn in &window.insns {
            let space = layout.space(insn.level, insn.address);
            let function = symbols.find_insn(space, insn.address, insn.page);
            profile.counted += insn.count;
            if insn.finds_length {
                finding += insn.count;
            } else {
                *functions.entry(function).or_default() += insn.count;
            }
            if let Some(event) = insn.event.filter(|_| !insn.finds_length) {
                *profile.events.entry(event).or_default() += insn.count;
            }
            let entry = (space, insn.address);
            if entries.image_faults.contains(&entry) {
                profile.faults += insn.count;
                profile.unretired[1] += if window.charges_faults { 0 } else { insn.count };
            }
            if insn.is_exit_target && insn.level == 0 {
                profile.exits += insn.count;
                profile.unretired[0] += insn.unretired;
            } else if entries.faults.contains(&entry) {
                profile.faults += insn.count;
                profile.unretired[1] += insn.unretired;
            } else if entries.refusals.contains(&entry) {
                profile.faults += insn.count;
            } else if entries.interrupts.contains(&entry) {
                profile.interrupts += insn.count;
            }
        }
        let unretired: u64 = profile.unretired.iter().sum();
        let ticks = batch.ticks + profile.excluded;
        profile.residual = ticks as i64 - (around + profile.counted) as i64 + unretired as i64;
        profile.items = profile.function_costs(functions);
        profile
            .items
            .extend(profile.corrections(batch, around, finding));
        profile
    }

    fn function_costs(&self, functions: BTreeMap<Function, u64>) -> Vec<FunctionCost> {
        let mut functions: Vec<_> = functions.into_iter().collect();
        // The sort is stable: equal counts stay in order of names.
        functions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let costs = functions.into_iter().map(|(function, count)| FunctionCost {
            function,
            insn: count as f64 / self.operations as f64,
        });
        costs.collect()
    }

    /// Returns the differences between the count and the figure. `finding` is the number of counted instructions that are in
    /// no function, because they find lengths.
    fn corrections(&self, batch: &Batch, around: u64, finding: u64) -> Vec<FunctionCost> {
        let operations = self.operations as f64;
        let clock = (around as f64 - batch.clock_cost as f64) / operations;
        let [exits, faults] = self.unretired.map(|count| -(count as f64) / operations);
        // The excluded length of a search that was interrupted is that of another one.
        let interrupted = (finding as f64 - self.excluded as f64) / operations;
        let corrections = [
            ("interrupted searches for lengths", interrupted),
            ("exits, not charged", exits),
            ("faults, not charged", faults),
            ("loop and clock", clock - batch.loop_per_operation()),
            ("residual", self.residual as f64 / operations),
        ];
        let present = corrections.into_iter().filter(|(_, insn)| *insn != 0.0);
        let costs = present.map(|(name, insn)| FunctionCost {
            function: Function {
                component: MEASUREMENT.to_owned(),
                name: name.to_owned(),
            },
            insn,
        });
        costs.collect()
    }

    /// Returns the first source line of a function, if it was requested and found.
    pub fn source(&self, function: &Function) -> Option<&SourceLine> {
        self.sources.as_ref()?.functions.get(function)
    }

    /// Returns the instructions per operation of each component, the largest first.
    pub fn components(&self) -> Vec<(&str, f64)> {
        self.sums(|component| component)
    }

    /// Returns the instructions per operation of each level of nested virtualization, the largest
    /// first: `L1` is the system of the machine. Empty without nested guests.
    pub fn levels(&self) -> Vec<(&str, f64)> {
        let is_nested = |item: &FunctionCost| item.function.component.contains('/');
        if !self.items.iter().any(is_nested) {
            return Vec::new();
        }
        self.sums(|component| match component.split_once('/') {
            Some((level, _)) => level,
            None if component == GUEST || component == MEASUREMENT => component,
            None => "L1",
        })
    }

    fn sums<'a>(&'a self, name: impl Fn(&'a str) -> &'a str) -> Vec<(&'a str, f64)> {
        let mut sums: Vec<(&str, f64)> = Vec::new();
        for item in &self.items {
            let name = name(&item.function.component);
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += item.insn,
                None => sums.push((name, item.insn)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    /// Returns the functions that differ in `after`, the largest change first.
    pub fn changes(&self, after: &Self) -> Vec<Change> {
        changes(&self.items, &after.items)
    }
}

/// Returns the functions that differ between two profiles' items, the largest change first.
pub fn changes(before: &[FunctionCost], after: &[FunctionCost]) -> Vec<Change> {
    let mut both: BTreeMap<&Function, (f64, f64)> = BTreeMap::new();
    for item in before {
        both.entry(&item.function).or_default().0 += item.insn;
    }
    for item in after {
        both.entry(&item.function).or_default().1 += item.insn;
    }
    let changes = both.into_iter().map(|(function, insn)| Change {
        function: function.clone(),
        insn,
    });
    let mut changes: Vec<_> = changes
        .filter(|c| c.difference().abs() > ROUNDING)
        .collect();
    changes.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    changes
}

/// Largest difference of equal quotients.
const ROUNDING: f64 = 1e-9;

/// First instructions of fault and interrupt handlers.
#[derive(Default)]
struct HandlerEntries {
    faults: Vec<(AddressSpace, u64)>,
    refusals: Vec<(AddressSpace, u64)>,
    interrupts: Vec<(AddressSpace, u64)>,
    /// Page faults of processes of the image. Each is due to an access to data, because all their code
    /// is present, so that the faulting instruction does not retire.
    image_faults: Vec<(AddressSpace, u64)>,
}

impl HandlerEntries {
    fn find(symbols: &Symbols, layout: AddressLayout) -> Self {
        let entries = Self::of_host(symbols, layout);
        let image_faults = symbols.starts(AddressSpace::Guest, |name| IMAGE_FAULTS.contains(&name));
        Self {
            image_faults,
            ..entries
        }
    }

    fn of_host(symbols: &Symbols, layout: AddressLayout) -> Self {
        let linux = |levels| Self::of_kernels(symbols, levels);
        match layout {
            AddressLayout::Bare => Self::default(),
            AddressLayout::Linux | AddressLayout::Nested(_) => linux(layout.levels()),
            // Xen forwards the traps of its first domain.
            AddressLayout::Xen => Self::of_xen(symbols, AddressSpace::Hypervisor),
            AddressLayout::NestedXen(levels) => {
                let mut entries = linux(levels - 1);
                let xen = Self::of_xen(symbols, AddressSpace::NestedHypervisor(levels - 1));
                entries.faults.extend(xen.faults);
                entries.refusals.extend(xen.refusals);
                entries
            }
        }
    }

    /// Finds those of the machine's kernel and of the kernels of guests that host guests, at this many levels.
    fn of_kernels(symbols: &Symbols, levels: u8) -> Self {
        let nested = (1..levels).map(AddressSpace::NestedKernel);
        let kernels: Vec<_> = [AddressSpace::Kernel].into_iter().chain(nested).collect();
        let among = |names: &[&str]| -> Vec<_> {
            let found = kernels
                .iter()
                .flat_map(|space| named(symbols, *space, names));
            found.collect()
        };
        Self {
            faults: among(&LINUX_FAULTS),
            refusals: among(&LINUX_REFUSALS),
            interrupts: symbols.starts(AddressSpace::Kernel, is_linux_interrupt),
            ..Self::default()
        }
    }

    fn of_xen(symbols: &Symbols, space: AddressSpace) -> Self {
        Self {
            faults: named(symbols, space, &XEN_FAULTS),
            refusals: named(symbols, space, &XEN_REFUSALS),
            interrupts: named(symbols, space, &[XEN_INTERRUPT]),
            ..Self::default()
        }
    }
}

fn named(symbols: &Symbols, space: AddressSpace, names: &[&str]) -> Vec<(AddressSpace, u64)> {
    symbols.starts(space, |name| names.contains(&name))
}

#[cfg(test)]
mod tests;
