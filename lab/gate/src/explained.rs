//! Explanation of changed figures by the functions whose instruction counts differ.

use crate::baseline::Baseline;
use crate::compare::{Comparison, Row, Verdict};
use crate::kept_profile::{FunctionChanges, KeptProfile};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::Op;
use trapline_model::Config;
use trapline_profile::Profile;

impl Comparison {
    /// Returns the configurations with a changed figure of which `baseline` has a profile.
    pub fn to_explain(&self, baseline: &Baseline) -> Vec<Config> {
        let rows = self
            .rows
            .iter()
            .filter(|row| kept_of(baseline, row).is_some());
        let configs: BTreeSet<&Config> = rows.map(|row| &row.config).collect();
        configs.into_iter().cloned().collect()
    }

    /// Adds the functions whose counts differ to each changed figure.
    pub fn explain(&mut self, baseline: &Baseline, profiles: &BTreeMap<(Config, Op), Profile>) {
        for row in &mut self.rows {
            let now = Op::from_path(&row.operation)
                .and_then(|op| profiles.get(&(row.config.clone(), op)));
            if let (Some(kept), Some(now)) = (kept_of(baseline, row), now) {
                row.explained = Some(FunctionChanges::of(kept, now));
            }
        }
    }
}

/// Returns the kept profile of a changed figure.
fn kept_of<'a>(baseline: &'a Baseline, row: &Row) -> Option<&'a KeptProfile> {
    let kept = baseline.environments.get(&row.config.to_string())?;
    let changed = row.verdict == Verdict::Changed;
    kept.profiles.get(&row.operation).filter(|_| changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::EnvironmentBaseline;
    use crate::kept_profile::keep;
    use trapline_profile::{Function, FunctionCost};

    use trapline_model::EnvironmentId;

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
                config: ID.into(),
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
    fn changed_functions_are_listed_by_size_of_change() {
        let before = profile(&[("kvm", "a", 30.0), ("vmm", "b", 7.0), ("kvm", "c", 1.0)]);
        let after = profile(&[("kvm", "a", 29.0), ("vmm", "b", 27.0), ("kvm", "c", 1.0)]);
        let baseline = baseline(&before);
        let mut compared = comparison(38.0, 57.0);
        assert_eq!(compared.to_explain(&baseline), [ID.into()]);
        compared.explain(
            &baseline,
            &BTreeMap::from([((ID.into(), Op::PortOut), after)]),
        );
        let explained = compared.rows[0].explained.as_ref().unwrap();
        let changes: Vec<_> = explained
            .changes
            .iter()
            .map(|change| (change.function.name.as_str(), change.difference()))
            .collect();
        assert_eq!(changes, [("b", 20.0), ("a", -1.0)]);
        assert!(explained.has_totals(Some(38.0), Some(57.0)));
        assert!(!explained.has_totals(Some(38.0), Some(58.0)));
    }

    #[test]
    fn only_changed_figures_with_a_kept_profile_are_explained() {
        let before = profile(&[("kvm", "a", 30.0)]);
        let mut baseline = baseline(&before);
        let mut same = comparison(30.0, 30.0);
        assert_eq!(same.to_explain(&baseline), []);
        same.explain(
            &baseline,
            &BTreeMap::from([((ID.into(), Op::PortOut), before)]),
        );
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
