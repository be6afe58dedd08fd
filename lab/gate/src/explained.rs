//! Which functions gained or lost: the ledger that was kept of an operation against
//! that of now.

use crate::baseline::{Baseline, KeptLedger};
use crate::compare::{Comparison, Row, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_profile::{changes, Change, Function, Item, Ledger, MEASUREMENT};

/// The name of what a count does not explain.
const RESIDUAL: &str = "residual";

/// Where the difference of two figures lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The functions that gained or lost, the largest change first.
    pub changes: Vec<Change>,
    /// What the old and the new ledger add up to, in instructions per operation.
    pub totals: (f64, f64),
}

impl Explained {
    fn of(kept: &KeptLedger, now: &Ledger) -> Self {
        let old = items(kept);
        Self {
            changes: changes(&old, &now.items),
            totals: (old.iter().map(|item| item.insn).sum(), now.total),
        }
    }

    /// Whether these ledgers are the figures of `row`. They are not where another run gave
    /// other digits.
    pub fn is_of(&self, row: &Row) -> bool {
        let near = |figure: Option<f64>, total: f64| {
            let rounding = |figure: f64| ROUNDING.0 + ROUNDING.1 * figure.abs();
            figure.is_some_and(|figure| (figure - total).abs() <= rounding(figure))
        };
        near(row.old, self.totals.0) && near(row.new, self.totals.1)
    }
}

/// Sums of quotients differ by less than this from the quotient of sums: in instructions, and
/// as a share.
const ROUNDING: (f64, f64) = (1e-6, 1e-12);

/// A ledger as a baseline keeps it. The residual is there even where it is nothing.
pub fn keep(ledger: &Ledger) -> KeptLedger {
    let name = |item: &Item| {
        let Function { component, name } = &item.function;
        format!("{component} {name}")
    };
    let mut kept = KeptLedger::from([(format!("{MEASUREMENT} {RESIDUAL}"), 0.0)]);
    kept.extend(ledger.items.iter().map(|item| (name(item), item.insn)));
    kept
}

/// Components have no spaces in their names, functions may.
fn items(kept: &KeptLedger) -> Vec<Item> {
    let item = |(name, insn): (&String, &f64)| {
        let (component, name) = name.split_once(' ').unwrap_or(("", name));
        let (component, name) = (component.to_owned(), name.to_owned());
        Item {
            function: Function { component, name },
            insn: *insn,
        }
    };
    kept.iter().map(item).collect()
}

impl Comparison {
    /// The environments in which something changed of which `baseline` has a ledger.
    pub fn to_explain(&self, baseline: &Baseline) -> Vec<EnvironmentId> {
        let rows = self
            .rows
            .iter()
            .filter(|row| kept_of(baseline, row).is_some());
        let environments: BTreeSet<_> = rows.map(|row| row.environment).collect();
        environments.into_iter().collect()
    }

    /// Tells of each figure that changed which functions gained or lost.
    pub fn explain(
        &mut self,
        baseline: &Baseline,
        ledgers: &BTreeMap<(EnvironmentId, Op), Ledger>,
    ) {
        for row in &mut self.rows {
            let now =
                Op::from_path(&row.operation).and_then(|op| ledgers.get(&(row.environment, op)));
            if let (Some(kept), Some(now)) = (kept_of(baseline, row), now) {
                row.explained = Some(Explained::of(kept, now));
            }
        }
    }
}

/// The ledger that was kept of a figure that changed.
fn kept_of<'a>(baseline: &'a Baseline, row: &Row) -> Option<&'a KeptLedger> {
    let kept = baseline.environments.get(row.environment.name())?;
    let changed = row.verdict == Verdict::Changed;
    kept.ledgers.get(&row.operation).filter(|_| changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Kept;

    const ID: EnvironmentId = EnvironmentId::SimKvm;

    fn ledger(functions: &[(&str, &str, f64)]) -> Ledger {
        let item = |(component, name, insn): &(&str, &str, f64)| Item {
            function: Function {
                component: (*component).to_owned(),
                name: (*name).to_owned(),
            },
            insn: *insn,
        };
        Ledger {
            total: functions.iter().map(|(_, _, insn)| insn).sum(),
            operations: 4,
            items: functions.iter().map(item).collect(),
            ..Ledger::default()
        }
    }

    fn comparison(old: f64, new: f64) -> Comparison {
        Comparison {
            causes: Vec::new(),
            notes: Vec::new(),
            rows: vec![Row {
                environment: ID,
                operation: "exits/port-out".to_owned(),
                unit: "insn".to_owned(),
                old: Some(old),
                new: Some(new),
                verdict: if old == new {
                    Verdict::Same
                } else {
                    Verdict::Changed
                },
                reason: None,
                explained: None,
            }],
        }
    }

    fn baseline(ledger: &Ledger) -> Baseline {
        let kept = Kept {
            ledgers: BTreeMap::from([("exits/port-out".to_owned(), keep(ledger))]),
            ..Kept::default()
        };
        Baseline {
            version: crate::baseline::VERSION,
            trapline: String::new(),
            workload: "exits/port-out".to_owned(),
            environments: BTreeMap::from([(ID.name().to_owned(), kept)]),
        }
    }

    #[test]
    fn a_kept_ledger_has_every_function_and_the_residual() {
        let kept = keep(&ledger(&[("vmm", "Machine<V>::run as X", 0.125)]));
        let text: Vec<_> = kept
            .iter()
            .map(|(name, insn)| format!("{name} {insn}"))
            .collect();
        assert_eq!(
            text,
            ["(measurement) residual 0", "vmm Machine<V>::run as X 0.125"]
        );
        let back = items(&kept);
        assert_eq!(back[1].function.component, "vmm");
        assert_eq!(back[1].function.name, "Machine<V>::run as X");
    }

    #[test]
    fn functions_that_gained_or_lost_are_named_the_largest_first() {
        let before = ledger(&[("kvm", "a", 30.0), ("vmm", "b", 7.0), ("kvm", "c", 1.0)]);
        let after = ledger(&[("kvm", "a", 29.0), ("vmm", "b", 27.0), ("kvm", "c", 1.0)]);
        let baseline = baseline(&before);
        let mut compared = comparison(38.0, 57.0);
        assert_eq!(compared.to_explain(&baseline), [ID]);
        compared.explain(&baseline, &BTreeMap::from([((ID, Op::PortOut), after)]));
        let explained = compared.rows[0].explained.as_ref().unwrap();
        let told: Vec<_> = explained
            .changes
            .iter()
            .map(|change| (change.function.name.as_str(), change.difference()))
            .collect();
        assert_eq!(told, [("b", 20.0), ("a", -1.0)]);
        assert!(explained.is_of(&compared.rows[0]));
        assert!(!explained.is_of(&comparison(38.0, 58.0).rows[0]));
    }

    #[test]
    fn only_what_changed_and_was_kept_is_explained() {
        let before = ledger(&[("kvm", "a", 30.0)]);
        let mut baseline = baseline(&before);
        let mut same = comparison(30.0, 30.0);
        assert_eq!(same.to_explain(&baseline), []);
        same.explain(&baseline, &BTreeMap::from([((ID, Op::PortOut), before)]));
        assert_eq!(same.rows[0].explained, None);
        baseline
            .environments
            .get_mut(ID.name())
            .unwrap()
            .ledgers
            .clear();
        assert_eq!(comparison(30.0, 31.0).to_explain(&baseline), []);
    }
}
