//! Settings of the kernel that move figures: frequency, sharing of cores, time
//! taken by others, mitigations, huge pages.

use super::Finding;

/// Frequency governors of all CPUs, each kind once.
pub fn distinct(governors: &[String]) -> String {
    let mut kinds = governors.to_vec();
    kinds.sort();
    kinds.dedup();
    kinds.join(", ")
}

/// Frequency governors of all CPUs.
pub fn judge_governor(governors: &[String]) -> Finding {
    match distinct(governors).as_str() {
        "" => Finding::ok(
            "governor",
            "none: this kernel does not set the processor's frequency",
        ),
        "performance" => Finding::ok("governor", "performance"),
        kinds => Finding::note(
            "governor",
            format!("{kinds}: the frequency follows the load, and times with it"),
        )
        .mend("sudo cpupower frequency-set -g performance"),
    }
}

/// `/sys/devices/system/cpu/smt/active`.
pub fn judge_smt(active: &str) -> Finding {
    match active {
        "1" => Finding::note(
            "smt",
            "on: two threads share a core, and disturb each other",
        )
        .mend("echo off | sudo tee /sys/devices/system/cpu/smt/control"),
        "0" => Finding::ok("smt", "off, or not visible from inside this machine"),
        _ => Finding::ok("smt", "this kernel tells nothing of it"),
    }
}

/// Above this share of stolen time, times are spoilt.
const STEAL_LIMIT: f64 = 0.01;

/// Share of time that the host of this machine gave to others, from two readings
/// of `/proc/stat`.
pub fn judge_steal(before: &str, after: &str) -> Finding {
    let share = match (cpu_times(before), cpu_times(after)) {
        (Some(before), Some(after)) => stolen_share(&before, &after),
        _ => return Finding::note("steal", "/proc/stat tells nothing of it"),
    };
    let found = format!(
        "{:.1}% of processor time taken by others in half a second",
        share * 100.0
    );
    if share > STEAL_LIMIT {
        return Finding::problem("steal", found)
            .mend("stop the neighbours, pin this machine's CPUs, or use the instruction clock: --env sim,sim/linux,sim/kvm");
    }
    Finding::ok("steal", found)
}

/// user, nice, system, idle, iowait, irq, softirq, steal: proc(5).
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

/// Files of `/sys/devices/system/cpu/vulnerabilities` in few words: which are
/// mitigated, and which are open. Empty where there is neither.
pub fn mitigations(vulnerabilities: &[(String, String)]) -> String {
    let named = |word: &str, title: &str| {
        let fitting = vulnerabilities
            .iter()
            .filter(|(_, text)| text.contains(word));
        let names: Vec<&str> = fitting.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{title}: {}", names.join(", ")))
    };
    let told = [named("Mitigation", "active"), named("Vulnerable", "open")];
    told.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The same, judged.
pub fn judge_mitigations(vulnerabilities: &[(String, String)]) -> Finding {
    let told = mitigations(vulnerabilities);
    if vulnerabilities.is_empty() {
        Finding::note("mitigations", "this kernel tells nothing of them")
    } else if told.is_empty() {
        Finding::ok("mitigations", "none needed by this processor")
    } else {
        Finding::note(
            "mitigations",
            told + "; kernel entries and exits cost what these cost",
        )
    }
}

/// `/sys/kernel/mm/transparent_hugepage/enabled`.
pub fn judge_huge_pages(enabled: &str) -> Finding {
    let chosen = enabled
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match chosen.map(|(word, _)| word) {
        Some("always") => Finding::ok(
            "huge pages",
            "transparent ones always: guest memory is backed by 2 MiB pages where possible",
        ),
        Some("madvise") => Finding::ok(
            "huge pages",
            "transparent ones where a program asks for them",
        ),
        Some("never") => Finding::note(
            "huge pages",
            "never: guest memory is backed by 4 KiB pages, and touching it costs more",
        )
        .mend("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        _ => Finding::note("huge pages", "this kernel has no transparent ones"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn one_cpu_that_scales_is_noted() {
        assert_eq!(judge_governor(&[]).verdict, Verdict::Ok);
        assert_eq!(
            judge_governor(&texts(&["performance", "performance"])).verdict,
            Verdict::Ok
        );
        let mixed = judge_governor(&texts(&["performance", "powersave"]));
        assert_eq!(mixed.verdict, Verdict::Note);
        assert!(
            mixed.found.starts_with("performance, powersave:"),
            "{}",
            mixed.found
        );
    }

    #[test]
    fn shared_cores_are_noted() {
        assert_eq!(judge_smt("1").verdict, Verdict::Note);
        assert_eq!(judge_smt("0").verdict, Verdict::Ok);
        assert_eq!(judge_smt("").verdict, Verdict::Ok);
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let before = "cpu  100 0 100 800 0 0 0 10 0 0\ncpu0 1 2 3\n";
        let quiet = "cpu  150 0 100 850 0 0 0 10 0 0\n";
        assert_eq!(judge_steal(before, quiet).verdict, Verdict::Ok);
        let busy = "cpu  150 0 100 840 0 0 0 20 0 0\n";
        let stolen = judge_steal(before, busy);
        assert_eq!(stolen.verdict, Verdict::Problem);
        assert!(stolen.found.starts_with("10.0% "), "{}", stolen.found);
        assert_eq!(judge_steal("", "").verdict, Verdict::Note);
        assert_eq!(judge_steal(before, before).verdict, Verdict::Ok);
    }

    #[test]
    fn mitigations_are_told_apart() {
        let files = [
            ("meltdown", "Not affected"),
            ("retbleed", "Mitigation: untrained return thunk"),
            ("spec_rstack_overflow", "Vulnerable: Microcode, no safe RET"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
        let found = judge_mitigations(&files).found;
        assert!(
            found.starts_with("active: retbleed; open: spec_rstack_overflow;"),
            "{found}"
        );
        assert_eq!(judge_mitigations(&files[..1]).verdict, Verdict::Ok);
    }

    #[test]
    fn the_chosen_word_is_the_bracketed_one() {
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
