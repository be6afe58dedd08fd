//! Checks of kernel settings that change figures: frequency, SMT, steal time, mitigations, huge pages.

use super::{Finding, REST};
use trapline_host::control_group::Limited;
use trapline_model::observed::HOST_NOISE;
use trapline_report::host_noise;

/// Returns the distinct frequency governors.
pub fn distinct(governors: &[String]) -> String {
    let mut kinds = governors.to_vec();
    kinds.sort();
    kinds.dedup();
    kinds.join(", ")
}

/// Checks the frequency governors of all CPUs.
pub fn judge_governor(governors: &[String]) -> Finding {
    match distinct(governors).as_str() {
        "" => Finding::ok(
            "governor",
            "none: the kernel does not control the CPU frequency",
        ),
        "performance" => Finding::ok("governor", "performance"),
        kinds => Finding::note(
            "governor",
            format!("{kinds}: the frequency depends on the load"),
        )
        .remedy("sudo cpupower frequency-set -g performance"),
    }
}

/// Checks `/sys/devices/system/cpu/smt/active`.
pub fn judge_smt(active: &str) -> Finding {
    match active {
        "1" => Finding::note("smt", "on: two threads share a core and affect each other")
            .remedy("echo off | sudo tee /sys/devices/system/cpu/smt/control"),
        "0" => Finding::ok("smt", "off, or not visible in this virtual machine"),
        _ => Finding::ok("smt", "not reported by this kernel"),
    }
}

/// Largest acceptable share of stolen time.
const STEAL_LIMIT: f64 = 0.01;

/// Checks the limits of this process's control groups.
pub fn judge_limits(limited: &Limited) -> Finding {
    let filter = if limited.has_filter {
        "; a filter (seccomp) decides about system calls"
    } else {
        ""
    };
    let Some(limits) = limited.describe() else {
        return Finding::ok(
            "limits",
            format!("none of CPU time, CPUs and memory{filter}"),
        );
    };
    let cost = [
        (limited.stopped, "programs had used up their CPU time"),
        (limited.killed, "programs were killed for lack of memory"),
    ];
    let cost = cost.into_iter().filter(|(count, _)| *count > 0);
    let cost: String = cost
        .map(|(count, what)| format!("; {what} {count} times"))
        .collect();
    let found = format!("{limits}{cost}{filter}");
    if limited.cpus.is_some() || limited.killed > 0 {
        Finding::problem("limits", found)
    .remedy("start the container or service without limits of CPU time and memory, or use the instruction clock: --env sim,sim/linux,sim/kvm")
    } else {
        Finding::note("limits", found)
    }
}

/// Checks the share of stolen time between two readings of `/proc/stat`.
pub fn judge_steal(before: &str, after: &str) -> Finding {
    let share = match (cpu_times(before), cpu_times(after)) {
        (Some(before), Some(after)) => stolen_share(&before, &after),
        _ => return Finding::note("steal", "not reported in /proc/stat"),
    };
    let found = format!("{:.1}% of CPU time in half a second", share * 100.0);
    if share > STEAL_LIMIT {
        return Finding::problem("steal", found)
            .remedy("stop co-tenants, pin this machine's CPUs, or use the instruction clock: --env sim,sim/linux,sim/kvm");
    }
    Finding::ok("steal", found)
}

/// Checks the CPU time of other programs.
pub fn judge_load(noise: &[(String, String)]) -> Finding {
    let load = noise.iter().find(|(name, _)| kind(name) == "others");
    match load {
        None => Finding::ok("load", "other programs use less than 10% of a CPU"),
        Some((_, value)) => {
            Finding::problem("load", host_noise::describe("others", value)).remedy(REST)
        }
    }
}

/// Returns the kind of load of a fact.
pub fn kind(fact: &str) -> &str {
    fact.strip_prefix(HOST_NOISE).unwrap_or(fact)
}

/// Parses user, nice, system, idle, iowait, irq, softirq and steal: proc_stat(5).
fn cpu_times(stat: &str) -> Option<[u64; 8]> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    times.get(..8)?.try_into().ok()
}

fn stolen_share(before: &[u64; 8], after: &[u64; 8]) -> f64 {
    let passed = |i: usize| after[i].saturating_sub(before[i]) as f64;
    let all: f64 = (0..8).map(passed).sum();
    if all > 0.0 {
        passed(7) / all
    } else {
        0.0
    }
}

/// Returns the active mitigations and open vulnerabilities in
/// `/sys/devices/system/cpu/vulnerabilities`; empty if there are none.
pub fn mitigations(vulnerabilities: &[(String, String)]) -> String {
    let named = |word: &str, title: &str| {
        let fitting = vulnerabilities
            .iter()
            .filter(|(_, text)| text.contains(word));
        let names: Vec<&str> = fitting.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{title}: {}", names.join(", ")))
    };
    let lists = [named("Mitigation", "active"), named("Vulnerable", "open")];
    lists.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Checks the mitigations.
pub fn judge_mitigations(vulnerabilities: &[(String, String)]) -> Finding {
    let list = mitigations(vulnerabilities);
    if vulnerabilities.is_empty() {
        Finding::note("mitigations", "not reported by this kernel")
    } else if list.is_empty() {
        Finding::ok("mitigations", "none needed by this processor")
    } else {
        Finding::note(
            "mitigations",
            list + "; they add to the cost of kernel entries and exits",
        )
    }
}

/// Checks `/sys/kernel/mm/transparent_hugepage/enabled`.
pub fn judge_huge_pages(enabled: &str) -> Finding {
    let chosen = enabled
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match chosen.map(|(word, _)| word) {
        Some("always") => Finding::ok(
            "huge pages",
            "transparent, always: guest memory has 2 MiB pages where possible",
        ),
        Some("madvise") => Finding::ok("huge pages", "transparent, on request (madvise)"),
        Some("never") => Finding::note(
            "huge pages",
            "never: guest memory has 4 KiB pages, so that first access costs more",
        )
        .remedy("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        _ => Finding::note("huge pages", "not supported by this kernel"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use expect_test::expect;

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn frequency_scaling_is_noted() {
        assert_eq!(judge_governor(&[]).verdict, Verdict::Ok);
        assert_eq!(
            judge_governor(&texts(&["performance", "performance"])).verdict,
            Verdict::Ok
        );
        let mixed = judge_governor(&texts(&["performance", "powersave"]));
        assert_eq!(mixed.verdict, Verdict::Note);
        expect!["performance, powersave: the frequency depends on the load"]
            .assert_eq(&mixed.found);
    }

    #[test]
    fn smt_is_noted() {
        assert_eq!(judge_smt("1").verdict, Verdict::Note);
        assert_eq!(judge_smt("0").verdict, Verdict::Ok);
        assert_eq!(judge_smt("").verdict, Verdict::Ok);
    }

    #[test]
    fn stolen_time_is_a_share_of_total_time() {
        let before = "cpu  100 0 100 800 0 0 0 10 0 0\ncpu0 1 2 3\n";
        let quiet = "cpu  150 0 100 850 0 0 0 10 0 0\n";
        assert_eq!(judge_steal(before, quiet).verdict, Verdict::Ok);
        let busy = "cpu  150 0 100 840 0 0 0 20 0 0\n";
        let stolen = judge_steal(before, busy);
        assert_eq!(stolen.verdict, Verdict::Problem);
        expect!["10.0% of CPU time in half a second"].assert_eq(&stolen.found);
        assert_eq!(judge_steal("", "").verdict, Verdict::Note);
        assert_eq!(judge_steal(before, before).verdict, Verdict::Ok);
    }

    #[test]
    fn load_of_other_programs_is_a_problem() {
        assert_eq!(judge_load(&[]).verdict, Verdict::Ok);
        let fact = (format!("{HOST_NOISE}others"), "112% of a CPU".to_owned());
        let busy = judge_load(&[fact]);
        assert_eq!(busy.verdict, Verdict::Problem);
        assert_eq!(busy.found, "other programs used 112% of a CPU");
        assert!(busy.remedy.is_some());
    }

    #[test]
    fn limits_of_a_container_are_named_with_their_cost() {
        let free = judge_limits(&Limited::default());
        assert_eq!(free.verdict, Verdict::Ok);
        let some = Limited {
            cpus: Some(0.5),
            stopped: 12,
            memory: Some(1 << 30),
            has_filter: true,
            ..Limited::default()
        };
        let some = judge_limits(&some);
        assert_eq!(some.verdict, Verdict::Problem);
        expect!["the time of 0.5 CPUs, 1024 MiB of memory; programs had used up their CPU time 12 times; a filter (seccomp) decides about system calls"]
            .assert_eq(&some.found);
        let pinned = Limited {
            cpu_list: Some("0".to_owned()),
            ..Limited::default()
        };
        assert_eq!(judge_limits(&pinned).verdict, Verdict::Note);
    }

    #[test]
    fn active_mitigations_and_open_vulnerabilities_are_listed() {
        let files = [
            ("meltdown", "Not affected"),
            ("retbleed", "Mitigation: untrained return thunk"),
            ("spec_rstack_overflow", "Vulnerable: Microcode, no safe RET"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
        let found = judge_mitigations(&files).found;
        expect!["active: retbleed; open: spec_rstack_overflow; they add to the cost of kernel entries and exits"].assert_eq(&found);
        assert_eq!(judge_mitigations(&files[..1]).verdict, Verdict::Ok);
    }

    #[test]
    fn the_bracketed_word_is_selected() {
        assert_eq!(
            judge_huge_pages("always [madvise] never").verdict,
            Verdict::Ok
        );
        assert_eq!(
            judge_huge_pages("always madvise [never]").verdict,
            Verdict::Note
        );
        assert_eq!(judge_huge_pages("").verdict, Verdict::Note);
    }
}
