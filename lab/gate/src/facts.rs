//! What figures of the instruction clock depend on beside the code that is
//! measured, and which of it differs: the likely cause of a change.

use crate::baseline::Baseline;
use std::collections::BTreeMap;
use trapline_model::EnvironmentId;
use trapline_stats::Summary;

/// A fact that moves figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mattering {
    /// Its name among an environment's facts.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// Whether it is around the measured code, rather than that code: where it
    /// differs, other figures are to be expected and nobody's fault.
    pub around: bool,
}

const fn around(name: &'static str, title: &'static str) -> Mattering {
    Mattering {
        name,
        title,
        around: true,
    }
}

const fn part(name: &'static str, title: &'static str) -> Mattering {
    Mattering {
        name,
        title,
        around: false,
    }
}

/// The facts that matter, the one that explains most first. What the host is does
/// not: the simulated machine is the same on every host.
pub const MATTERING: [Mattering; 18] = [
    around("scheduler", "the scheduler of guests' CPUs"),
    around("scheduler-cap", "the cap of guests' CPUs"),
    around("scheduler-weight", "the weight of guests' CPUs"),
    around("xen", "Xen"),
    around("xen-sha256", "the bytes of Xen"),
    around("xen-command-line", "the command line of Xen"),
    around("l1-kernel", "the kernel of the simulated machine"),
    around("l1-kernel-sha256", "the bytes of that kernel"),
    around("qemu", "QEMU"),
    around("machine", "the simulated machine"),
    around("l1-command-line", "the command line of its kernel"),
    around("l1-settings", "the settings of its modules"),
    around("toolchain", "the toolchain that built the parts"),
    part("image-sha256", "trapline-image"),
    part("vmm-sha256", "trapline-vmm"),
    part("agent-sha256", "trapline-agent"),
    part("custom-vmm-command", "the command given with --vmm"),
    part("custom-vmm-sha256", "the program given with --vmm"),
];

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which.
    pub fact: Mattering,
    /// What it was; `None` if it was not known.
    pub old: Option<String>,
    /// What it is.
    pub new: Option<String>,
    /// Where.
    pub environments: Vec<EnvironmentId>,
}

/// Those of an environment's facts that matter.
pub fn mattering(facts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = |name: &str| MATTERING.iter().any(|fact| fact.name == name);
    let kept = facts.iter().filter(|(name, _)| known(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What differs between a baseline and what was just measured, the likeliest
/// cause of a change first.
pub fn causes(baseline: &Baseline, summary: &Summary) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for fact in MATTERING {
        for (&id, now) in &summary.facts {
            let Some(kept) = baseline.environments.get(id.name()) else {
                continue;
            };
            let old = kept.facts.get(fact.name).cloned();
            let new = now.get(fact.name).cloned();
            if old != new {
                note(
                    &mut causes,
                    Cause {
                        fact,
                        old,
                        new,
                        environments: vec![id],
                    },
                );
            }
        }
    }
    causes
}

/// The same difference in several environments is one cause.
fn note(causes: &mut Vec<Cause>, cause: Cause) {
    let same = |other: &&mut Cause| {
        other.fact == cause.fact && other.old == cause.old && other.new == cause.new
    };
    match causes.iter_mut().find(same) {
        Some(known) => known.environments.extend(cause.environments),
        None => causes.push(cause),
    }
}
