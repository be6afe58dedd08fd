//! Functions whose instruction counts differ between the profile of a baseline and a new one.

use crate::baseline::{Baseline, KeptProfile};
use crate::compare::{Comparison, Row, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_profile::{changes, Change, Function, FunctionCost, Profile, MEASUREMENT};

/// Name of the instructions that no function explains.
const RESIDUAL: &str = "residual";

/// Difference of two profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionChanges {
    /// Functions whose counts differ, the largest change first.
    pub changes: Vec<Change>,
    /// Totals of the old and the new profile, in instructions per operation.
    pub totals: (f64, f64),
}

impl FunctionChanges {
    fn of(kept: &KeptProfile, now: &Profile) -> Self {
        let old = items(kept);
        Self {
            changes: changes(&old, &now.items),
            totals: (old.iter().map(|item| item.insn).sum(), now.total),
        }
    }

    /// Returns true if the totals are the figures of `row`. They are not if another run gave other digits.
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

/// A profile as a baseline keeps it. The residual is there even where it is nothing.
pub fn keep(profile: &Profile) -> KeptProfile {
    let name = |item: &FunctionCost| {
        let Function { component, name } = &item.function;
        format!("{component} {name}")
    };
    let mut kept = KeptProfile::from([(format!("{MEASUREMENT} {RESIDUAL}"), 0.0)]);
    kept.extend(profile.items.iter().map(|item| (name(item), item.insn)));
    kept
}

/// Splits names of items: components have no spaces in their names, functions may.
fn items(kept: &KeptProfile) -> Vec<FunctionCost> {
    let item = |(name, insn): (&String, &f64)| {
        let (component, name) = name.split_once(' ').unwrap_or(("", name));
        let (component, name) = (component.to_owned(), name.to_owned());
        FunctionCost {
            function: Function { component, name },
            insn: *insn,
        }
    };
    kept.iter().map(item).collect()
}

impl Comparison {
    /// The environments in which something changed of which `baseline` has a profile.
    pub fn to_explain(&self, baseline: &Baseline) -> Vec<EnvironmentId> {
        let rows = self
            .rows
            .iter()
            .filter(|row| kept_of(baseline, row).is_some());
        let environments: BTreeSet<_> = rows.map(|row| row.environment).collect();
        environments.into_iter().collect()
    }

    /// Adds the functions whose counts differ to each changed figure.
    pub fn explain(
        &mut self,
        baseline: &Baseline,
        profiles: &BTreeMap<(EnvironmentId, Op), Profile>,
    ) {
        for row in &mut self.rows {
            let now =
                Op::from_path(&row.operation).and_then(|op| profiles.get(&(row.environment, op)));
            if let (Some(kept), Some(now)) = (kept_of(baseline, row), now) {
                row.explained = Some(FunctionChanges::of(kept, now));
            }
        }
    }
}

/// The profile that was kept of a figure that changed.
fn kept_of<'a>(baseline: &'a Baseline, row: &Row) -> Option<&'a KeptProfile> {
    let kept = baseline.environments.get(row.environment.name())?;
    let changed = row.verdict == Verdict::Changed;
    kept.profiles.get(&row.operation).filter(|_| changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::EnvironmentBaseline;

    const ID: EnvironmentId = EnvironmentId::SIM_KVM;

    fn profile(functions: &[(&str, &str, f64)]) -> Profile {
        let item = |(component, name, insn): &(&str, &str, f64)| FunctionCost {
            function: Function {
                component: (*component).to_owned(),
                name: (*name).to_owned(),
            },
            insn: *insn,
        };
        Profile {
            total: functions.iter().map(|(_, _, insn)| insn).sum(),
            operations: 4,
            items: functions.iter().map(item).collect(),
            ..Profile::default()
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

    fn baseline(profile: &Profile) -> Baseline {
        let kept = EnvironmentBaseline {
            profiles: BTreeMap::from([("exits/port-out".to_owned(), keep(profile))]),
            ..EnvironmentBaseline::default()
        };
        Baseline {
            version: crate::baseline::VERSION,
            trapline: String::new(),
            workload: "exits/port-out".to_owned(),
            environments: BTreeMap::from([(ID.name().to_owned(), kept)]),
        }
    }

    #[test]
    fn a_kept_profile_has_every_function_and_the_residual() {
        let kept = keep(&profile(&[("vmm", "Machine<V>::run as X", 0.125)]));
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
        let before = profile(&[("kvm", "a", 30.0), ("vmm", "b", 7.0), ("kvm", "c", 1.0)]);
        let after = profile(&[("kvm", "a", 29.0), ("vmm", "b", 27.0), ("kvm", "c", 1.0)]);
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
        let before = profile(&[("kvm", "a", 30.0)]);
        let mut baseline = baseline(&before);
        let mut same = comparison(30.0, 30.0);
        assert_eq!(same.to_explain(&baseline), []);
        same.explain(&baseline, &BTreeMap::from([((ID, Op::PortOut), before)]));
        assert_eq!(same.rows[0].explained, None);
        baseline
            .environments
            .get_mut(ID.name())
            .unwrap()
            .profiles
            .clear();
        assert_eq!(comparison(30.0, 31.0).to_explain(&baseline), []);
    }
}
