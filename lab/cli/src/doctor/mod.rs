//! Checks of this host: capabilities, sources of noise, and their remedies.
//!
//! Each topic has a pure function from the text of the kernel or of a program to a [`Finding`];
//! [`examine`] reads the texts. The host is not changed.

mod environments;
mod finding;
mod hypervisor;
mod processor;
mod ring0;
mod settings;
mod tools;

pub use finding::{text, to_json, Finding, Verdict};
pub use settings::kind;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use trapline_host::control_group::Limited;
use trapline_host::host_noise::NoiseSampler;
use trapline_host::{facts, identity};
use trapline_model::Host;
use trapline_runner::{Failure, Inventory};

/// Interval in which stolen CPU time is measured.
const STEAL_WATCH: Duration = Duration::from_millis(500);

/// Returns all findings, in some seconds.
pub fn examine(inventory: Result<Inventory, Failure>) -> Vec<Finding> {
    let cpuinfo = read("/proc/cpuinfo");
    let processor = processor::parse(&cpuinfo);
    let stat_before = read("/proc/stat");
    let noise = NoiseSampler::begin();
    let tsc_hertz = processor::measure_tsc(STEAL_WATCH);
    let stat_after = read("/proc/stat");
    let noise = noise.end();
    let mut findings = vec![
        judge_host(host_name()),
        processor::judge(&processor),
        processor::judge_tsc(&processor, &read(CLOCK_SOURCE), tsc_hertz),
        processor::judge_nesting(&processor, processor::hypervisor_signature()),
        hypervisor::judge(&hypervisor::examine(&processor, tsc_hertz)),
        settings::judge_governor(&read_each_cpu(GOVERNOR)),
        settings::judge_smt(&read(SMT)),
        settings::judge_steal(&stat_before, &stat_after),
        settings::judge_load(&noise),
        settings::judge_limits(&Limited::now()),
        settings::judge_mitigations(&read_directory(VULNERABILITIES)),
        settings::judge_huge_pages(&read(HUGE_PAGES)),
    ];
    findings.extend(tools::examine());
    findings.extend(environments::examine(inventory));
    findings
}

/// Advice for a host that is not at rest.
pub const REST: &str =
    "stop other programs, or use the instruction clock: --env sim,sim/linux,sim/kvm";

/// Returns the facts of this host that are stored with its samples.
pub fn facts() -> BTreeMap<String, String> {
    let processor = processor::parse(&read("/proc/cpuinfo"));
    let hertz = processor::measure_tsc(FACTS_WATCH);
    let limited = Limited::now();
    let nested = processor::hypervisor_signature().filter(|_| processor.has("hypervisor"));
    let facts = [
        ("cpu", processor.model.clone()),
        ("cpus", processor.count.to_string()),
        ("microcode", processor.microcode.clone()),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("kvm", hypervisor::examine(&processor, hertz).describe()),
        ("nested in", nested.unwrap_or_default()),
        ("tsc mhz", format!("{:.1}", hertz / 1e6)),
        ("clock source", read(CLOCK_SOURCE)),
        ("governor", settings::distinct(&read_each_cpu(GOVERNOR))),
        ("limited to", limited.describe().unwrap_or_default()),
        (
            "seccomp",
            if limited.has_filter { "filter" } else { "" }.to_owned(),
        ),
        ("smt active", read(SMT)),
        ("huge pages", read(HUGE_PAGES)),
        (
            "mitigations",
            settings::mitigations(&read_directory(VULNERABILITIES)),
        ),
    ];
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    known
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Facts of [`facts`] that figures on the wall clock depend on. The frequency of the time stamp counter is measured, and other facts
/// of a run are the user's, or settings of workloads.
pub const CONDITIONS: [&str; 13] = [
    "cpu",
    "cpus",
    "microcode",
    "kernel",
    "kvm",
    "nested in",
    "clock source",
    "governor",
    "limited to",
    "seccomp",
    "smt active",
    "huge pages",
    "mitigations",
];

/// Returns this host, with those of its facts (of [`facts`]) that figures depend on, its memory and the machine.
///
/// # Errors
/// The name that the user gave it is invalid.
pub fn host(facts: &BTreeMap<String, String>) -> Result<Host, Failure> {
    let name = host_name()?;
    let known = facts
        .iter()
        .filter(|(name, _)| CONDITIONS.contains(&name.as_str()));
    let mut known: BTreeMap<_, _> = known.map(|(name, it)| (name.clone(), it.clone())).collect();
    let memory = facts::total_mib().map(|mib| format!("{} GiB", mib.div_ceil(1024)));
    for (name, value) in [("machine", facts::machine()), ("memory", memory)] {
        known.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(Host {
        id: identity::id(&name),
        name,
        facts: known,
    })
}

/// Returns the name that the user gave this host.
fn host_name() -> Result<String, Failure> {
    identity::name().map_err(|error| {
        let help = "up to 63 letters, digits, hyphens, dots and underscores are one";
        Failure::usage(error, help)
    })
}

/// Returns identity and name of this host in stores.
fn judge_host(name: Result<String, Failure>) -> Finding {
    match name {
        Ok(name) => {
            let id = identity::id(&name);
            let found = match name.as_str() {
                "" => format!("{id}, which has no name: TRAPLINE_HOST gives it one"),
                name => format!("{name} ({id})"),
            };
            Finding::ok("host", found)
        }
        Err(failure) => Finding {
            remedy: failure.help,
            ..Finding::problem("host", failure.message)
        },
    }
}

/// Interval in which [`facts`] measures the time stamp counter.
const FACTS_WATCH: Duration = Duration::from_millis(50);

const GOVERNOR: &str = "cpufreq/scaling_governor";
const SMT: &str = "/sys/devices/system/cpu/smt/active";
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

/// Returns the text of a file without surrounding space; empty if the file does not exist.
fn read(path: impl AsRef<Path>) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// Returns name and text of every file in a directory, sorted by name.
fn read_directory(path: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                read(entry.path()),
            )
        })
        .collect();
    files.sort();
    files
}

/// Returns the text of a file in each CPU's directory, if it exists.
fn read_each_cpu(file: &str) -> Vec<String> {
    let cpus = std::fs::read_dir("/sys/devices/system/cpu")
        .into_iter()
        .flatten()
        .flatten();
    let texts = cpus.map(|cpu| read(cpu.path().join(file)));
    texts.filter(|text| !text.is_empty()).collect()
}
