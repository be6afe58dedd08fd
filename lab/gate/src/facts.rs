//! Facts that exact figures depend on, and their differences: likely causes of a change.

use std::collections::BTreeMap;
use trapline_model::Config;

/// Facts of an environment.
type Facts = BTreeMap<String, String>;

/// A fact that figures depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelevantFact {
    /// Name among an environment's facts.
    pub name: &'static str,
    /// Description.
    pub title: &'static str,
    /// True for the environment of the measured code, false for the code itself. A difference of the
    /// environment explains other figures.
    pub around: bool,
    /// True if older baselines lack it, so that a missing one is no difference.
    is_recent: bool,
}

const fn around(name: &'static str, title: &'static str) -> RelevantFact {
    RelevantFact {
        name,
        title,
        around: true,
        is_recent: false,
    }
}

const fn part(name: &'static str, title: &'static str) -> RelevantFact {
    RelevantFact {
        name,
        title,
        around: false,
        is_recent: false,
    }
}

const fn recent(fact: RelevantFact) -> RelevantFact {
    RelevantFact {
        is_recent: true,
        ..fact
    }
}

/// The hash of all files on the simulated machine. It differs with each of them, and is reported where no other
/// fact explains it.
const MACHINE_FILES: &str = "initramfs-sha256";

/// The relevant facts, the one that explains most first. Facts of the host are not among them: the simulated
/// machine is the same on every host.
pub const RELEVANT_FACTS: [RelevantFact; 25] = [
    around("scheduler", "the scheduler of guests' CPUs"),
    around("scheduler-cap", "the cap of guests' CPUs"),
    around("scheduler-weight", "the weight of guests' CPUs"),
    around("xen", "Xen"),
    around("xen-sha256", "the bytes of Xen"),
    around("xen-command-line", "the command line of Xen"),
    around("l1-kernel", "the kernel of the simulated machine"),
    around("l1-kernel-sha256", "the bytes of that kernel"),
    around("qemu", "QEMU"),
    recent(around("qemu-sha256", "the program of QEMU")),
    recent(around(
        "qemu-files-sha256",
        "the libraries and the firmware of QEMU",
    )),
    around("machine", "the simulated machine"),
    around("l1-command-line", "the command line of its kernel"),
    recent(around(
        "instruction-lengths",
        "whether the search for lengths of instructions is excluded",
    )),
    around("l1-settings", "the settings of its modules"),
    around("toolchain", "the toolchain that built the parts"),
    part("image-sha256", "trapline-image"),
    part("vmm-sha256", "trapline-vmm"),
    part("agent-sha256", "trapline-agent"),
    part("switch-sha256", "trapline-switch"),
    part("custom-vmm-command", "the command given with --vmm"),
    part("custom-vmm-sha256", "the program given with --vmm"),
    recent(part(
        "custom-vmm-files",
        "the files that this command names",
    )),
    part(
        "custom-vmm-files-sha256",
        "the other files and the libraries of that program",
    ),
    recent(part(MACHINE_FILES, "the files on the simulated machine")),
];

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The fact.
    pub fact: RelevantFact,
    /// Value in the baseline; `None` if unknown.
    pub old: Option<String>,
    /// New value; `None` if unknown.
    pub new: Option<String>,
    /// Configurations with this difference.
    pub configs: Vec<Config>,
}

/// Returns the relevant facts of an environment.
pub fn relevant(facts: &Facts) -> Facts {
    let known = |name: &str| RELEVANT_FACTS.iter().any(|fact| fact.name == name);
    let kept = facts.iter().filter(|(name, _)| known(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the differences between kept and measured facts, the likeliest cause of a change first.
pub fn causes<'a>(
    kept: impl Fn(&Config) -> Option<&'a Facts>,
    measured: &BTreeMap<Config, Facts>,
) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for fact in RELEVANT_FACTS {
        for (config, now) in measured {
            let Some(kept) = kept(config) else {
                continue;
            };
            let old = kept.get(fact.name).cloned();
            let new = now.get(fact.name).cloned();
            let is_unknown = fact.is_recent && (old.is_none() || new.is_none());
            let is_explained = fact.name == MACHINE_FILES && has_part(&causes, config);
            if old != new && !is_unknown && !is_explained {
                note(
                    &mut causes,
                    Cause {
                        fact,
                        old,
                        new,
                        configs: vec![config.clone()],
                    },
                );
            }
        }
    }
    causes
}

/// Returns whether another part of a configuration differs.
fn has_part(causes: &[Cause], config: &Config) -> bool {
    let mut parts = causes.iter().filter(|cause| !cause.fact.around);
    parts.any(|cause| cause.configs.contains(config))
}

/// Adds a cause; the same difference in several configurations is one.
fn note(causes: &mut Vec<Cause>, cause: Cause) {
    let same = |other: &&mut Cause| {
        other.fact == cause.fact && other.old == cause.old && other.new == cause.new
    };
    match causes.iter_mut().find(same) {
        Some(known) => known.configs.extend(cause.configs),
        None => causes.push(cause),
    }
}
