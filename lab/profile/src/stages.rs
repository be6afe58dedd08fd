//! The account of a start, stage by stage.
//!
//! Between the stamps of two stages the clock moves by exactly the instructions from
//! the mark of the first to that of the second (`trapline_abi::stamp!`), so each
//! stage has an account of its own, and all of them together that of the start. Several
//! starts have one account, the mean over them.

use crate::account::{Batch, Ledger};
use crate::symbols::Symbols;
use crate::wire::{Span, Window};
use crate::worlds::Machine;
use std::collections::BTreeMap;
use trapline_abi::Stage;

/// Where the instructions of one stage went, as the mean over starts.
#[derive(Clone, Debug, PartialEq)]
pub struct StageLedger {
    /// The stage that it begins with.
    pub from: Stage,
    /// The stage that it ends with.
    pub to: Stage,
    /// Its account.
    pub ledger: Ledger,
}

/// A start for which there are marks and stamps.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// What was counted, stage by stage, from exec on.
    pub windows: &'a [Window],
    /// When each stage was reached, in instructions since exec.
    pub reached: &'a BTreeMap<Stage, u64>,
}

/// Why a start has no account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unstaged {
    /// A mark was executed, but nobody told when.
    #[error(
        "stage {0} was marked but not stamped: build all parts from one source with 'make build'"
    )]
    Unstamped(&'static str),
    /// The start was stamped, but the marks do not lead there.
    #[error("no mark of stage {0} was seen: build all parts from one source with 'make build'")]
    Unmarked(&'static str),
}

/// The starts of which the windows of stages are, each from exec on, in order of
/// time. Windows of batches are left out.
pub fn starts(windows: &[Window]) -> Vec<Vec<Window>> {
    let mut starts: Vec<Vec<Window>> = Vec::new();
    for window in windows {
        match (window.span, starts.last_mut()) {
            (Span::Batch, _) => {}
            (Span::Stage(Stage::Exec, _), _) | (_, None) => starts.push(vec![window.clone()]),
            (_, Some(start)) => start.push(window.clone()),
        }
    }
    starts
}

/// When each stage of a start was reached, in instructions since exec, as far as the
/// count tells: where nobody can say how the guest's clock relates to the machine's, as
/// below Xen. `took` is known from the machine's clock alone, from exec until it was
/// reaped. What is not counted was slept: it belongs to the last stage in which the
/// machine slept, or, if it never did, to the last of all, where it shows as residual.
pub fn placed_by_count(
    windows: &[Window],
    took: u64,
    symbols: &Symbols,
    machine: Machine,
) -> BTreeMap<Stage, u64> {
    let account = |window: &Window| Ledger::new(&uncalibrated(0, 1), window, symbols, machine, 0);
    let accounts: Vec<_> = windows.iter().map(account).collect();
    let counted = |ledger: &Ledger| ledger.residual.unsigned_abs();
    let slept = took.saturating_sub(accounts.iter().map(counted).sum());
    let asleep = accounts.iter().rposition(|ledger| ledger.halts != 0);
    let asleep = asleep.unwrap_or(accounts.len().saturating_sub(1));
    let mut reached = BTreeMap::from([(Stage::Exec, 0)]);
    let mut at = 0;
    for (number, (window, ledger)) in windows.iter().zip(&accounts).enumerate() {
        at += counted(ledger) + if number == asleep { slept } else { 0 };
        if let Span::Stage(_, to) = window.span {
            reached.insert(to, at);
        }
    }
    reached.insert(Stage::Reaped, took);
    reached
}

/// The account of `starts` until `end`, the mean over them: in all, and stage by stage.
///
/// # Errors
/// Marks and stamps are not of the same stages.
pub fn account(
    starts: &[Start<'_>],
    end: Stage,
    symbols: &Symbols,
    machine: Machine,
) -> Result<Ledger, Unstaged> {
    let mut ticks = 0;
    let mut stages: BTreeMap<(Stage, Stage), (u64, Window)> = BTreeMap::new();
    for start in starts {
        for (from, to, window) in start.until(end)? {
            let (ticks, counted) = stages.entry((from, to)).or_default();
            *ticks += start.at(to)? - start.at(from)?;
            counted.add(window);
        }
        ticks += start.at(end)?;
    }
    let account = |ticks, window: &Window| {
        let batch = uncalibrated(ticks, starts.len() as u64);
        Ledger::new(&batch, window, symbols, machine, 0)
    };
    let all = Window::all(stages.values().map(|(_, window)| window));
    let stages = stages
        .iter()
        .map(|((from, to), (ticks, window))| StageLedger {
            from: *from,
            to: *to,
            ledger: account(*ticks, window),
        });
    Ok(Ledger {
        stages: stages.collect(),
        ..account(ticks, &all)
    })
}

impl<'a> Start<'a> {
    /// The windows from exec to `end`, with the stages that they begin and end with.
    fn until(&self, end: Stage) -> Result<Vec<(Stage, Stage, &'a Window)>, Unstaged> {
        let mut until = Vec::new();
        for window in self.windows {
            if let Span::Stage(from, to) = window.span {
                until.push((from, to, window));
                if to == end {
                    return Ok(until);
                }
            }
        }
        Err(Unstaged::Unmarked(end.name()))
    }

    fn at(&self, stage: Stage) -> Result<u64, Unstaged> {
        let at = self.reached.get(&stage).copied();
        at.ok_or(Unstaged::Unstamped(stage.name()))
    }
}

/// Of starts nothing is taken off.
fn uncalibrated(ticks: u64, count: u64) -> Batch {
    Batch {
        ticks,
        count,
        clock_cost: 0,
        loop_cost: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Line;
    use crate::worlds::Space;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    fn symbols() -> Symbols {
        let mut symbols = Symbols::default();
        symbols.add_kallsyms(
            "kernel",
            "ffffffff81000000 T do_execveat_common\nffffffff81000100 T asm_exc_page_fault\n\
             ffffffff81000200 T asm_sysvec_apic_timer_interrupt\nffffffff81000300 T end\n",
        );
        symbols.add_range(Space::User, 0x1000, 0x2000, "vmm");
        symbols
    }

    fn line(address: u64, count: u64, uncharged: u64) -> Line {
        Line {
            address,
            count,
            uncharged,
            ..Line::default()
        }
    }

    fn window(from: Stage, to: Stage, lines: &[Line]) -> Window {
        let (span, lines) = (Span::Stage(from, to), lines.to_vec());
        Window {
            span,
            lines,
            ..Window::default()
        }
    }

    /// 100 instructions of the kernel's, and 3 faults, of which one could not fetch;
    /// an interrupt, of which nobody knows what it came after; 40 of the VMM's.
    fn windows() -> Vec<Window> {
        let exec = [line(KERNEL, 100, 0), line(KERNEL + 0x100, 3, 2)];
        let main = [line(0x1000, 40, 0), line(KERNEL + 0x200, 1, 1)];
        vec![
            Window::default(),
            window(Stage::Exec, Stage::VmmMain, &exec),
            window(Stage::VmmMain, Stage::Reaped, &main),
        ]
    }

    fn account_of(until: Stage, stages: &[(Stage, u64)]) -> Result<Ledger, Unstaged> {
        let starts = starts(&windows());
        let reached = stages.iter().copied().collect();
        let start = Start {
            windows: &starts[0],
            reached: &reached,
        };
        account(&[start], until, &symbols(), Machine::Linux)
    }

    const STAMPS: [(Stage, u64); 3] = [
        (Stage::Exec, 0),
        (Stage::VmmMain, 101),
        (Stage::Reaped, 101 + 41 + 5),
    ];

    #[test]
    fn faults_of_data_are_taken_off_and_those_of_code_are_not() {
        let all = account_of(Stage::Reaped, &STAMPS).unwrap();
        let told: Vec<_> = all
            .stages
            .iter()
            .map(|stage| {
                (
                    stage.from,
                    stage.to,
                    stage.ledger.total,
                    stage.ledger.residual,
                )
            })
            .collect();
        let expected = [
            (Stage::Exec, Stage::VmmMain, 101.0, 0),
            (Stage::VmmMain, Stage::Reaped, 46.0, 5),
        ];
        assert_eq!(told, expected);
        assert_eq!((all.total, all.residual, all.faults), (147.0, 5, 3));
        let sum: f64 = all.items.iter().map(|item| item.insn).sum();
        assert_eq!(sum, all.total);
    }

    #[test]
    fn starts_are_accounted_for_together_and_the_figure_is_their_mean() {
        let starts = starts(&windows());
        let slower = STAMPS.map(|(stage, at)| (stage, if at == 147 { 149 } else { at }));
        let reached = [STAMPS.into(), slower.into()];
        let both = reached.each_ref().map(|reached| Start {
            windows: &starts[0],
            reached,
        });
        let all = account(&both, Stage::Reaped, &symbols(), Machine::Linux).unwrap();
        assert_eq!((all.total, all.residual, all.operations), (148.0, 12, 2));
        let stages: Vec<_> = all.stages.iter().map(|stage| stage.ledger.total).collect();
        assert_eq!(stages, [101.0, 47.0]);
        assert_eq!(all.counted, 2 * 144);
    }

    #[test]
    fn stages_are_placed_by_what_was_counted_and_slept() {
        let told = |windows: &[Window], took| {
            let reached = placed_by_count(windows, took, &symbols(), Machine::Linux);
            reached.values().copied().collect::<Vec<_>>()
        };
        let mut windows = windows().split_off(1);
        assert_eq!(told(&windows, 101 + 41), [0, 101, 142]);
        assert_eq!(told(&windows, 101 + 41 + 5), [0, 101, 147]);
        windows[0].lines[0].halts = true;
        assert_eq!(told(&windows, 101 + 41 + 5), [0, 106, 147]);
    }

    #[test]
    fn an_account_ends_where_it_is_asked_to() {
        let all = account_of(Stage::VmmMain, &STAMPS).unwrap();
        assert_eq!((all.total, all.stages.len()), (101.0, 1));
        let error = account_of(Stage::GuestMain, &STAMPS).unwrap_err();
        assert_eq!(error, Unstaged::Unmarked("guest-main"));
        let error = account_of(Stage::Reaped, &STAMPS[..2]).unwrap_err();
        assert_eq!(error, Unstaged::Unstamped("reaped"));
    }
}
