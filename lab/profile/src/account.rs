//! From counted instructions to an account that adds up.
//!
//! The machine's clock charges every instruction that is completed. One that a
//! hypervisor intercepts, or that faults, is seen by the plugin and charged
//! nothing. So the clock's difference over a batch must be
//! `around + counted - exits - faults`, those that were not charged; what is left
//! is the residual.

use crate::fold::{self, Stack};
use crate::stages::StageLedger;
use crate::symbols::{Function, Symbols};
use crate::wire::Window;
use crate::worlds::{Machine, Space};
use std::collections::BTreeMap;

/// Turns of the empty loop that [`Batch::loop_cost`] stands for.
const LOOP_TURNS: f64 = 1024.0;

/// One or more batches of an operation as the guest measured them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The difference of the clock, in instructions.
    pub ticks: u64,
    /// Operations.
    pub count: u64,
    /// Instructions of as many empty batches.
    pub clock_cost: u64,
    /// Instructions of 1,024 turns of the empty loop.
    pub loop_cost: u64,
}

impl Batch {
    /// Instructions for one operation. Of all batches of an operation this is the figure
    /// that tables show.
    pub fn figure(&self) -> f64 {
        let batch = self.ticks as f64 - self.clock_cost as f64;
        batch / self.count as f64 - self.loop_cost as f64 / LOOP_TURNS
    }

    /// The batches of one operation as one; `None` if there is no batch.
    pub fn all(batches: &[Self]) -> Option<Self> {
        let sum = |of: fn(&Self) -> u64| batches.iter().map(of).sum();
        Some(Self {
            ticks: sum(|batch| batch.ticks),
            count: sum(|batch| batch.count),
            clock_cost: sum(|batch| batch.clock_cost),
            loop_cost: batches.first()?.loop_cost,
        })
    }
}

/// Instructions per operation of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Which.
    pub function: Function,
    /// Instructions for one operation. Negative where something is taken off.
    pub insn: f64,
}

/// Where the instructions of one operation went. The items add up to the total.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The measured figure: instructions for one operation.
    pub total: f64,
    /// Instructions of all batches that the count does not explain.
    pub residual: i64,
    /// Operations of all batches.
    pub operations: u64,
    /// Instructions that were counted between the marks.
    pub counted: u64,
    /// Exits of guests in the batches.
    pub exits: u64,
    /// Faults in the batches.
    pub faults: u64,
    /// Interrupts that the machine took in the batches.
    pub interrupts: u64,
    /// How often the machine slept in the batches until an interrupt: then its clock
    /// goes on without an instruction.
    pub halts: u64,
    /// Instructions that led to an exit, and those that led to a fault, and were
    /// counted without being charged.
    pub uncharged: [u64; 2],
    /// The functions, the most instructions first; then what is taken off.
    pub items: Vec<Item>,
    /// All that was counted by call stack; empty unless the plugin was asked for it.
    pub stacks: Vec<Stack>,
    /// Of a start: its stages, in order. Their totals add up to this one.
    pub stages: Vec<StageLedger>,
}

/// What differs between two ledgers.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The function.
    pub function: Function,
    /// Instructions per operation before, and after.
    pub insn: (f64, f64),
}

impl Change {
    /// How many instructions more it is after than before.
    pub fn difference(&self) -> f64 {
        self.insn.1 - self.insn.0
    }
}

/// The component of what is no function.
pub const MEASUREMENT: &str = "(measurement)";

/// Where a kernel begins to serve an instruction that could not be completed.
const FAULTS_OF_LINUX: [&str; 2] = ["asm_exc_page_fault", "asm_exc_general_protection"];

/// The same of one that is none, or that is of a unit which is off. QEMU finds that out
/// when it translates the instruction, and charges it.
const REFUSALS_OF_LINUX: [&str; 2] = ["asm_exc_invalid_op", "asm_exc_device_not_available"];

/// The same of Xen, by its names until 4.18 and since.
const FAULTS_OF_XEN: [&str; 4] = ["page_fault", "general_protection", "entry_PF", "entry_GP"];
const REFUSALS_OF_XEN: [&str; 4] = ["invalid_op", "device_not_available", "entry_UD", "entry_NM"];

/// What serves every interrupt of Xen's.
const INTERRUPT_OF_XEN: &str = "common_interrupt";

fn serves_interrupt(name: &str) -> bool {
    name.starts_with("asm_sysvec_") || name == "asm_common_interrupt"
}

impl Ledger {
    /// The account of batches of which `window` was counted. `around` are the
    /// instructions between the readings of the clock that lie outside the marks.
    pub fn new(
        batch: &Batch,
        window: &Window,
        symbols: &Symbols,
        machine: Machine,
        around: u64,
    ) -> Self {
        let starts = Starts::of(symbols, machine);
        let mut sums: BTreeMap<Function, u64> = BTreeMap::new();
        let (mut exits, mut faults, mut interrupts, mut counted) = (0, 0, 0, 0);
        let (mut halts, mut uncharged) = (0, [0, 0]);
        for line in &window.lines {
            let space = machine.space(line.in_guest, line.address);
            let function = symbols.of_instruction(space, line.address, line.page);
            *sums.entry(function).or_default() += line.count;
            counted += line.count;
            halts += if line.halts { line.count } else { 0 };
            if line.leaves {
                exits += line.count;
                uncharged[0] += line.uncharged;
            } else if starts.faults.contains(&(space, line.address)) {
                faults += line.count;
                uncharged[1] += line.uncharged;
            } else if starts.refusals.contains(&(space, line.address)) {
                faults += line.count;
            } else if starts.interrupts.contains(&(space, line.address)) {
                interrupts += line.count;
            }
        }
        let explained = (around + counted) as i64 - uncharged.iter().sum::<u64>() as i64;
        let mut ledger = Self {
            total: batch.figure(),
            residual: batch.ticks as i64 - explained,
            operations: batch.count,
            counted,
            exits,
            faults,
            interrupts,
            halts,
            uncharged,
            stacks: fold::stacks(&window.contexts, symbols, machine),
            ..Self::default()
        };
        ledger.items = ledger.functions(sums);
        ledger.items.extend(ledger.taken_off(batch, around));
        ledger
    }

    fn functions(&self, sums: BTreeMap<Function, u64>) -> Vec<Item> {
        let mut sums: Vec<_> = sums.into_iter().collect();
        // The sort is stable: functions with the same count stay in order of names.
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let each = self.operations as f64;
        let items = sums.into_iter().map(|(function, count)| Item {
            function,
            insn: count as f64 / each,
        });
        items.collect()
    }

    /// What stands between the count and the figure.
    fn taken_off(&self, batch: &Batch, around: u64) -> Vec<Item> {
        let each = self.operations as f64;
        let clock = (around as f64 - batch.clock_cost as f64) / each;
        let parts = [
            ("exits, not charged", -(self.uncharged[0] as f64) / each),
            ("faults, not charged", -(self.uncharged[1] as f64) / each),
            (
                "loop and clock",
                clock - batch.loop_cost as f64 / LOOP_TURNS,
            ),
            ("residual", self.residual as f64 / each),
        ];
        let present = parts.into_iter().filter(|(_, insn)| *insn != 0.0);
        let items = present.map(|(name, insn)| Item {
            function: Function {
                component: MEASUREMENT.to_owned(),
                name: name.to_owned(),
            },
            insn,
        });
        items.collect()
    }

    /// Instructions of each component, the most first.
    pub fn components(&self) -> Vec<(&str, f64)> {
        let mut sums: Vec<(&str, f64)> = Vec::new();
        for item in &self.items {
            let name = item.function.component.as_str();
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += item.insn,
                None => sums.push((name, item.insn)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    /// What differs in `after`, the largest change first.
    pub fn changes(&self, after: &Self) -> Vec<Change> {
        changes(&self.items, &after.items)
    }
}

/// What differs between two ledgers' items, the largest change first.
pub fn changes(before: &[Item], after: &[Item]) -> Vec<Change> {
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
    let mut changes: Vec<_> = changes.filter(|c| c.difference().abs() > NOTHING).collect();
    changes.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    changes
}

/// Quotients of counts that differ by less are the same.
const NOTHING: f64 = 1e-9;

/// Where faults and interrupts are served first.
#[derive(Default)]
struct Starts {
    faults: Vec<(Space, u64)>,
    refusals: Vec<(Space, u64)>,
    interrupts: Vec<(Space, u64)>,
}

impl Starts {
    fn of(symbols: &Symbols, machine: Machine) -> Self {
        let among = |space, names: &[&str]| symbols.starts(space, |name| names.contains(&name));
        match machine {
            Machine::Bare => Self::default(),
            Machine::Linux => Self {
                faults: among(Space::Kernel, &FAULTS_OF_LINUX),
                refusals: among(Space::Kernel, &REFUSALS_OF_LINUX),
                interrupts: symbols.starts(Space::Kernel, serves_interrupt),
            },
            // What its first domain's kernel serves it has been told by Xen.
            Machine::Xen => Self {
                faults: among(Space::Hypervisor, &FAULTS_OF_XEN),
                refusals: among(Space::Hypervisor, &REFUSALS_OF_XEN),
                interrupts: among(Space::Hypervisor, &[INTERRUPT_OF_XEN]),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Line, Span};

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    fn symbols() -> Symbols {
        let mut symbols = Symbols::default();
        symbols.add_kallsyms(
            "kernel",
            "ffffffff81000000 T svm_vcpu_run\t[kvm_amd]\nffffffff81000100 T asm_exc_page_fault\n\
             ffffffff81000200 T asm_sysvec_apic_timer_interrupt\nffffffff81000300 T end\n",
        );
        symbols.add_range(Space::User, 0x1000, 0x2000, "vmm");
        symbols.add_range(Space::Guest, 0x1000, 0x2000, "guest");
        symbols
    }

    fn line(in_guest: bool, address: u64, count: u64) -> Line {
        Line {
            in_guest,
            address,
            count,
            ..Line::default()
        }
    }

    /// 10 operations: each 3 instructions of the guest, one of them intercepted,
    /// 20 of the kernel's and 7 of the VMM's; and one fault in all.
    fn window() -> Window {
        let exit = Line {
            uncharged: 10,
            leaves: true,
            ..line(false, KERNEL + 8, 10)
        };
        let fault = Line {
            uncharged: 1,
            ..line(false, KERNEL + 0x100, 1)
        };
        Window {
            span: Span::Batch,
            lines: vec![
                line(true, 0x1000, 30),
                exit,
                line(false, KERNEL + 16, 190),
                fault,
                line(false, 0x1000, 70),
            ],
            contexts: Vec::new(),
        }
    }

    fn batch() -> Batch {
        Batch {
            ticks: 5 + 301 - 10 - 1,
            count: 10,
            clock_cost: 7,
            loop_cost: 2048,
        }
    }

    fn ledger(batch: &Batch, machine: Machine) -> Ledger {
        Ledger::new(batch, &window(), &symbols(), machine, 5)
    }

    #[test]
    fn an_account_adds_up_to_the_figure() {
        let ledger = ledger(&batch(), Machine::Linux);
        assert_eq!((ledger.exits, ledger.faults, ledger.residual), (10, 1, 0));
        assert_eq!(ledger.total, 28.8 - 2.0);
        let sum: f64 = ledger.items.iter().map(|item| item.insn).sum();
        assert!((sum - ledger.total).abs() < NOTHING, "{ledger:?}");
        let first = &ledger.items[0];
        assert_eq!(first.function.name, "svm_vcpu_run");
        assert_eq!(first.insn, 20.0);
        assert_eq!(ledger.components()[..2], [("kvm_amd", 20.0), ("vmm", 7.0)]);
    }

    #[test]
    fn what_is_not_explained_is_told() {
        let late = Batch {
            ticks: batch().ticks + 4,
            ..batch()
        };
        let ledger = ledger(&late, Machine::Linux);
        assert_eq!(ledger.residual, 4);
        let last = ledger.items.last().unwrap();
        assert_eq!((last.function.name.as_str(), last.insn), ("residual", 0.4));
    }

    #[test]
    fn batches_are_accounted_for_as_one() {
        let slower = Batch {
            ticks: batch().ticks + 4,
            ..batch()
        };
        let (both, windows) = ([batch(), slower], [window(), window()]);
        let (both, windows) = (Batch::all(&both).unwrap(), Window::all(&windows));
        let ledger = Ledger::new(&both, &windows, &symbols(), Machine::Linux, 2 * 5);
        assert_eq!((ledger.exits, ledger.residual), (20, 4));
        assert_eq!(ledger.total, (batch().figure() + slower.figure()) / 2.0);
        assert_eq!(Batch::all(&[]), None);
        let sum: f64 = ledger.items.iter().map(|item| item.insn).sum();
        assert!((sum - ledger.total).abs() < NOTHING, "{ledger:?}");
    }

    #[test]
    fn on_the_bare_machine_all_is_the_image() {
        let ledger = ledger(&batch(), Machine::Bare);
        assert!(ledger.items[..2]
            .iter()
            .all(|item| item.function.component == "guest"));
        assert_eq!(ledger.faults, 0);
    }

    #[test]
    fn the_largest_change_comes_first() {
        let before = ledger(&batch(), Machine::Linux);
        let mut after = before.clone();
        after.items[1].insn += 1.0;
        after.items[0].insn -= 20.0;
        let changes = before.changes(&after);
        let told: Vec<_> = changes.iter().map(Change::difference).collect();
        assert_eq!(told, [-20.0, 1.0]);
    }
}
