//! Profiles as a baseline keeps them, and their differences from new profiles.

use std::collections::BTreeMap;
use trapline_profile::{changes, Change, Function, FunctionCost, Profile, MEASUREMENT};

/// Instructions for one operation by `component function`; they add up to the figure.
pub type KeptProfile = BTreeMap<String, f64>;

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
    /// Compares a stored profile with a new one.
    pub fn of(kept: &KeptProfile, now: &Profile) -> Self {
        let old = items(kept);
        Self {
            changes: changes(&old, &items(&keep(now))),
            totals: (old.iter().map(|item| item.insn).sum(), now.total),
        }
    }

    /// Returns true if the totals are these figures. They are not if another run gave other digits.
    pub fn has_totals(&self, old: Option<f64>, new: Option<f64>) -> bool {
        let near = |figure: Option<f64>, total: f64| {
            let rounding = |figure: f64| ROUNDING.0 + ROUNDING.1 * figure.abs();
            figure.is_some_and(|figure| (figure - total).abs() <= rounding(figure))
        };
        near(old, self.totals.0) && near(new, self.totals.1)
    }
}

/// Sums of quotients differ by less than this from the quotient of sums: in instructions, and
/// as a share.
const ROUNDING: (f64, f64) = (1e-6, 1e-12);

/// Returns a profile as a baseline keeps it. It always has the residual.
pub fn keep(profile: &Profile) -> KeptProfile {
    let name = |item: &FunctionCost| {
        let component = &item.function.component;
        format!("{component} {}", item.function.stable_name())
    };
    let mut kept = KeptProfile::from([(format!("{MEASUREMENT} {RESIDUAL}"), 0.0)]);
    for item in &profile.items {
        *kept.entry(name(item)).or_default() += item.insn;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_profile_has_every_function_and_the_residual() {
        let function = Function {
            component: "vmm".to_owned(),
            name: "Machine<V>::run as X".to_owned(),
        };
        let item = FunctionCost {
            function: function.clone(),
            insn: 0.125,
        };
        let kept = keep(&Profile {
            items: vec![item],
            ..Profile::default()
        });
        let text: Vec<_> = kept
            .iter()
            .map(|(name, insn)| format!("{name} {insn}"))
            .collect();
        assert_eq!(
            text,
            ["(measurement) residual 0", "vmm Machine<V>::run as X 0.125"]
        );
        assert_eq!(items(&kept)[1].function, function);
    }
}
