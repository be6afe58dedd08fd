//! Gain of each mechanism of a guest without a hypervisor, beside its part of the code.
//!
//! lguest's author asked for a gain of two percent of a macro benchmark for each percent of code. `system/make` stands
//! for it here; the other operation of a mechanism is the one that gains most. Its code lies between the comments
//! `Code of optimisation NAME.` and `End of optimisation NAME.`, or the end of the file. A line counts unless it is blank, a
//! comment or part of a test.

use crate::measurements::cells;
use crate::root;
use crate::run::Place;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Percent of gain for each percent of code.
const RULE: f64 = 2.0;

/// Parts of a guest without a hypervisor: the VMM with this backend, and the kernel of the image.
const DIRECTORIES: [&str; 6] = [
    "vmm/interface/src",
    "vmm/monitor/src",
    "vmm/emulation/src",
    "vmm/machine/src",
    "vmm/process/src",
    "guest/kernel/src",
];

/// The operation that stands for a macro benchmark.
const BENCHMARK: &str = "system/make";

struct Mechanism {
    title: &'static str,
    /// Name of its code.
    code: &'static str,
    operation: &'static str,
    /// Settings of `sim/process` without it.
    without: &'static str,
    /// Settings of `sim/process` with it.
    with: &'static str,
}

const MECHANISMS: [Mechanism; 8] = [
    Mechanism {
        title: "Stops are reported by the process, not by its tracer",
        code: "reports",
        operation: "exits/port-out",
        without: "crossing=ptrace",
        with: "crossing=trap",
    },
    Mechanism {
        title: "Registers are mapped, not copied",
        code: "mapping",
        operation: "exits/port-out",
        without: "state=copied",
        with: "",
    },
    Mechanism {
        title: "System calls of the image are dispatched by the kernel, not by seccomp",
        code: "dispatch",
        operation: "exits/hypercall",
        without: "crossing=trap",
        with: "crossing=dispatch",
    },
    Mechanism {
        title: "They are rewritten as jumps",
        code: "rewriting",
        operation: "exits/hypercall",
        without: "crossing=dispatch",
        with: "crossing=rewrite",
    },
    Mechanism {
        title: "The image makes calls instead",
        code: "calls",
        operation: "exits/hypercall",
        without: "crossing=rewrite",
        with: "",
    },
    Mechanism {
        title: "Four top-level page tables are cached, not one",
        code: "spaces",
        operation: "system/context-switch",
        without: "spaces=1",
        with: "",
    },
    Mechanism {
        title: "The guest switches between them, not the VMM",
        code: "handover",
        operation: "system/context-switch",
        without: "switch=vmm",
        with: "",
    },
    Mechanism {
        title: "Changes of mappings are batched",
        code: "batching",
        operation: "system/page-fault",
        without: "batching=off",
        with: "",
    },
];

/// Prints the table.
///
/// # Panics
/// The plan is not measured whole, or no code has the mark of a mechanism.
pub fn beside_code(place: &Place) {
    let lines = Lines::count();
    let plan = root().join("plans/lguest.toml");
    let plan = plan.to_str().expect("path is UTF-8");
    let run = place.run_storing("run", &format!("-q --format json {plan}"));
    let run = run.json();
    println!("Gain and code of each mechanism");
    println!(
        "code: lines of {}; the rule: gain in % at least twice the code in %",
        lines.all
    );
    println!(
        "{:<16} {:>12} {:>12} {:>6} {:>5} {:>6} {:>9}  rule",
        "", "without", "with", "gain", "lines", "code", "gain/code"
    );
    for mechanism in &MECHANISMS {
        println!("{}", mechanism.title);
        for operation in [mechanism.operation, BENCHMARK] {
            mechanism.print(operation, &run, &lines);
        }
    }
    println!();
}

impl Mechanism {
    fn print(&self, operation: &str, run: &Value, lines: &Lines) {
        let costs = [self.without, self.with].map(|settings| estimate(run, settings, operation));
        let own = lines.parts.get(self.code).copied();
        let own = own.unwrap_or_else(|| panic!("no code has the mark '{}'", self.code));
        println!("{}", row(operation, costs, [own, lines.all]));
    }
}

/// Returns the row of an operation: its costs without a mechanism and with it, beside the lines of its code and of all.
fn row(operation: &str, [without, with]: [f64; 2], [own, all]: [u32; 2]) -> String {
    let gain = 1.0 - with / without;
    let share = f64::from(own) / f64::from(all);
    let ratio = gain / share;
    format!(
        " {:<15} {without:>12.1} {with:>12.1} {:>5.1}% {own:>5} {:>5.2}% {ratio:>9.2}  {}",
        operation.split('/').next_back().unwrap_or(operation),
        gain * 100.0,
        share * 100.0,
        if ratio >= RULE { "holds" } else { "fails" }
    )
}

/// Returns the cost of an operation in `sim/process` with these settings.
fn estimate(run: &Value, settings: &str, operation: &str) -> f64 {
    let (workload, name) = operation.split_once('/').unwrap_or((operation, ""));
    let is_it = |cell: &&Value| {
        cell["environment"] == "sim/process"
            && cell["settings"].as_str().unwrap_or("") == settings
            && cell["workload"] == workload
            && cell["operation"] == name
    };
    let estimate = cells(run).iter().find(is_it);
    let estimate = estimate.and_then(|cell| cell["estimate"].as_f64());
    estimate.unwrap_or_else(|| panic!("no {operation} with '{settings}'"))
}

/// Lines of code: all, and those of each mechanism.
#[derive(Default)]
struct Lines {
    all: u32,
    parts: BTreeMap<String, u32>,
}

impl Lines {
    fn count() -> Self {
        let mut lines = Self::default();
        for directory in DIRECTORIES {
            lines.add_directory(&root().join(directory));
        }
        lines
    }

    fn add_directory(&mut self, path: &Path) {
        let entries = fs::read_dir(path).expect("directory can be read");
        for entry in entries.flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap_or_default();
            let extension = path.extension().unwrap_or_default();
            if path.is_dir() && name != "tests" {
                self.add_directory(&path);
            } else if (extension == "rs" || extension == "s") && name != "tests.rs" {
                self.add_file(&fs::read_to_string(&path).expect("file can be read"));
            }
        }
    }

    fn add_file(&mut self, text: &str) {
        let mut parts: Vec<&str> = Vec::new();
        let lines = text.lines().map(str::trim);
        for line in lines.take_while(|line| *line != "#[cfg(test)]") {
            let is_comment = line.starts_with("//") || line.starts_with("# ");
            let marked = |mark: &str| {
                let (_, name) = line.split_once(mark).filter(|_| is_comment)?;
                Some(name.trim_end_matches('.'))
            };
            parts.extend(marked("Code of optimisation "));
            parts.retain(|part| marked("End of optimisation ") != Some(part));
            if line.is_empty() || is_comment {
                continue;
            }
            self.all += 1;
            for part in &parts {
                *self.parts.entry((*part).to_owned()).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_every_mechanism_is_marked() {
        let lines = Lines::count();
        let marked: Vec<&str> = lines.parts.keys().map(String::as_str).collect();
        let mut named = MECHANISMS.map(|it| it.code);
        named.sort_unstable();
        assert_eq!(marked, named);
        assert!(lines.parts.values().all(|count| *count < lines.all / 10));
    }

    #[test]
    fn gain_is_compared_with_the_part_of_the_code() {
        let of = |with, own| row("exits/port-out", [2_000.0, with], [own, 20_000]);
        let expected = [
            (1_900.0, 500, "5.0%   500  2.50%      2.00  holds"),
            (1_899.0, 500, "5.0%   500  2.50%      2.02  holds"),
            (1_900.0, 501, "5.0%   501  2.50%      2.00  fails"),
            (2_100.0, 1, "-5.0%     1  0.01%  -1000.00  fails"),
        ];
        for (with, own, end) in expected {
            let row = of(with, own);
            assert!(row.ends_with(end), "{row}");
        }
    }
}
