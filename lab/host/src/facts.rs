//! Facts about this host that matter for figures taken on it.

use crate::control_group::Limited;
use crate::TscRate;
use std::collections::BTreeMap;
use std::fs;

/// Names and values stored with samples.
pub type Facts = BTreeMap<String, String>;

/// Returns facts that are the same for all environments on this host.
pub fn host_facts() -> Facts {
    let mut facts = Facts::new();
    let mut note = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    note("cpu", cpu_field(&cpuinfo, "model name"));
    note("nesting", Some(nesting(&cpuinfo).to_owned()));
    note("host-kernel", first_line("/proc/sys/kernel/osrelease"));
    note("tsc", Some(TscRate::host().describe()));
    note(
        "clocksource",
        first_line(&format!("{CLOCK}/current_clocksource")),
    );
    note(
        "governor",
        first_line(&format!("{CPU0}/cpufreq/scaling_governor")),
    );
    note("placement", allowed_cpus());
    let limited = Limited::now();
    note("limited-to", limited.describe());
    note("seccomp", limited.has_filter.then(|| "filter".to_owned()));
    facts
}

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";
const CPU0: &str = "/sys/devices/system/cpu/cpu0";

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

fn cpu_field(cpuinfo: &str, name: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn nesting(cpuinfo: &str) -> &'static str {
    let flags = cpu_field(cpuinfo, "flags").unwrap_or_default();
    if flags
        .split_ascii_whitespace()
        .any(|flag| flag == "hypervisor")
    {
        "this host is itself a virtual machine"
    } else {
        "none"
    }
}

fn allowed_cpus() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let cpus = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(format!("not pinned, CPUs {}", cpus.trim()))
}

/// Returns the available memory, in MiB.
pub fn available_mib() -> Option<u64> {
    memory_mib("MemAvailable:")
}

/// Returns all memory of the host, in MiB.
pub fn total_mib() -> Option<u64> {
    memory_mib("MemTotal:")
}

fn memory_mib(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024)
}

/// Returns vendor and product of the machine, as its firmware calls them. Providers of virtual machines name the type of the
/// instance there.
pub fn machine() -> Option<String> {
    let words = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|file| first_line(&format!("/sys/class/dmi/id/{file}")));
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_is_parsed() {
        let text = "model name\t: AMD EPYC\nflags\t\t: fpu hypervisor sse\n";
        assert_eq!(cpu_field(text, "model name").unwrap(), "AMD EPYC");
        assert_eq!(nesting(text), "this host is itself a virtual machine");
        assert_eq!(nesting("flags : fpu hypervisors\n"), "none");
    }

    #[test]
    fn this_host_has_facts() {
        let facts = host_facts();
        for name in ["nesting", "host-kernel", "tsc", "placement"] {
            assert!(facts.contains_key(name), "{facts:?}");
        }
        assert!(available_mib().unwrap() > 0);
    }
}
