//! `trapline list`: prints environments and workloads, and why any are unavailable.

use crate::args::{ListArgs, PlainFormat};
use crate::failure::Failure;
use crate::terminal;
use serde::Serialize;
use std::collections::BTreeMap;
use trapline_abi::{Direction, Op, OpSet, Unit, Workload};
use trapline_model::names::{self, Selection};
use trapline_model::{request, EnvironmentId, Feature, SETTINGS};
use trapline_runner::{EnvironmentEntry, Inventory};

#[derive(Serialize)]
struct List {
    trapline: &'static str,
    environments: Vec<EnvironmentRow>,
    workloads: Vec<WorkloadRow>,
}

#[derive(Serialize)]
struct EnvironmentRow {
    name: &'static str,
    clock: &'static str,
    what: &'static str,
    by_default: bool,
    ready: bool,
    reason: Option<String>,
}

#[derive(Serialize)]
struct WorkloadRow {
    name: &'static str,
    question: &'static str,
    by_default: bool,
    operations: Vec<OperationRow>,
}

#[derive(Serialize)]
struct OperationRow {
    name: &'static str,
    counts: &'static str,
    better: &'static str,
    what: &'static str,
}

/// Lists environments and workloads: those that are named, all, or on one screen the usual ones.
///
/// # Errors
/// An option is invalid, or output cannot be written.
pub fn list(args: &ListArgs) -> Result<(), Failure> {
    let inventory = args.environment_options().inventory()?;
    let chosen = Chosen::of(&args.names);
    if args.format == PlainFormat::Json {
        return print_json(&inventory, &chosen);
    }
    let width = terminal::width();
    if args.names.is_empty() && !args.all {
        return print_screen(&inventory, width);
    }
    if args.all {
        terminal::print_text("Environments\n")?;
    }
    inventory.try_for_each(
        |id| chosen.has(id),
        |entry| {
            let row = environment_row(&inventory, entry);
            terminal::print_text(&if args.all {
                environment_text(&row, width)
            } else {
                details(entry.id, &row, width)
            })
        },
    )?;
    let text = workloads_text(&chosen.workloads(), width);
    terminal::print_text(if args.all { &text } else { text.trim_start() })
}

/// Environments and operations to list.
struct Chosen {
    /// All if it is empty, and no operations are named.
    environments: Vec<EnvironmentId>,
    operations: OpSet,
}

impl Chosen {
    fn of(names: &[Selection]) -> Self {
        let mut chosen = Self {
            environments: Vec::new(),
            operations: OpSet::EMPTY,
        };
        for name in names {
            match name {
                Selection::Environment(id) => chosen.environments.push(*id),
                Selection::Operations(set) => chosen.operations |= *set,
            }
        }
        if names.is_empty() {
            chosen.environments = EnvironmentId::all().collect();
            chosen.operations = OpSet::ALL;
        }
        chosen
    }

    fn has(&self, id: EnvironmentId) -> bool {
        self.environments.contains(&id)
    }

    fn workloads(&self) -> Vec<WorkloadRow> {
        let rows = Workload::ALL.into_iter();
        let rows = rows.map(|workload| workload_row(workload, self.operations));
        rows.filter(|row| !row.operations.is_empty()).collect()
    }
}

fn print_json(inventory: &Inventory, chosen: &Chosen) -> Result<(), Failure> {
    let mut environments = Vec::new();
    inventory.try_for_each(
        |id| chosen.has(id),
        |entry| {
            environments.push(environment_row(inventory, entry));
            Ok::<_, Failure>(())
        },
    )?;
    terminal::print_json(&serde_json::json!(List {
        trapline: env!("CARGO_PKG_VERSION"),
        environments,
        workloads: chosen.workloads(),
    }))
}

/// Prints the environments that are measured by default, and the names of everything else.
fn print_screen(inventory: &Inventory, width: usize) -> Result<(), Failure> {
    let (mut clock, mut others) = (None, Vec::new());
    inventory.try_for_each(
        |_| true,
        |entry| {
            let row = environment_row(inventory, entry);
            if !row.by_default {
                others.push(row.ready);
                return Ok(());
            }
            let here = entry.id.clock();
            let heading = if clock.replace(here) == Some(here) {
                String::new()
            } else {
                format!("Clock {}\n", here.description())
            };
            terminal::print_text(&(heading + &short_text(&row, width)))
        },
    )?;
    let ready = others.iter().filter(|is_ready| **is_ready).count();
    terminal::print_text(&rest_of_screen(ready, others.len() - ready, width))
}

/// Returns an environment with its description, or with the first line of the reason why it is unavailable: its details
/// have the whole.
fn short_text(row: &EnvironmentRow, width: usize) -> String {
    let state = if row.ready { "ready" } else { "missing" };
    let name = format!("{:<13}{state}", row.name);
    let text = row.reason.as_deref().unwrap_or(row.what);
    let text = entry(&name, 2, SHORT_TEXT, text, width);
    match text.trim_end().split_once('\n') {
        Some((first, _)) if !row.ready => format!("{}…\n", first.trim_end_matches([',', ';', ':'])),
        _ => text,
    }
}

fn rest_of_screen(ready: usize, missing: usize, width: usize) -> String {
    let by_default = |wanted: bool| {
        let all = Chosen::of(&[]).workloads().into_iter();
        let names = all.filter(|row| row.by_default == wanted);
        names.map(|row| row.name).collect::<Vec<_>>().join(", ")
    };
    let lines = [
        (
            "Other environments",
            format!("{ready} ready, {missing} missing"),
        ),
        ("Workloads", by_default(true)),
        ("If asked for", by_default(false)),
    ];
    let lines = lines.map(|(title, text)| entry(title, 0, TITLE, &text, width));
    format!(
        "\n{}\nDetails: trapline list NAME, such as sim/kvm or exits\n\
         Everything: trapline list --all\n",
        lines.concat()
    )
}

/// Returns an environment with its settings.
fn details(id: EnvironmentId, row: &EnvironmentRow, width: usize) -> String {
    let settings = SETTINGS.iter().filter(|it| it.is_supported_by(id));
    let settings: Vec<_> = settings.map(|setting| setting.name).collect();
    let lines = [
        ("clock", id.clock().description().to_owned()),
        ("measured", measured(id, row)),
        ("without", without(id)),
        ("state", state(row)),
        ("settings", settings.join(", ")),
    ];
    let lines = lines.into_iter().filter(|(_, text)| !text.is_empty());
    let lines = lines.map(|(title, text)| entry(title, 2, DETAIL, &text, width));
    let lines: String = lines.collect();
    let title = textwrap::fill(&format!("{}: {}", row.name, row.what), width);
    format!("{title}\n{lines}\n")
}

fn measured(id: EnvironmentId, row: &EnvironmentRow) -> String {
    match id.why_not(Feature::Default) {
        Some(why) if !row.by_default => format!("only if asked for: {why}"),
        _ => "by default".to_owned(),
    }
}

/// Returns the operations that an environment does not measure, with the reasons.
fn without(id: EnvironmentId) -> String {
    let mut by_reason: BTreeMap<&str, OpSet> = BTreeMap::new();
    for (feature, needing) in Feature::needed() {
        if let Some(why) = id.why_not(*feature) {
            *by_reason.entry(why).or_default() |= *needing;
        }
    }
    let texts = by_reason.into_iter().map(|(why, operations)| {
        let of_workload = |workload: Workload| match workload.set() {
            all if all.is_subset(operations) => vec![workload.name().to_owned()],
            all => (all & operations).iter().map(names::path).collect(),
        };
        let names: Vec<_> = Workload::ALL.into_iter().flat_map(of_workload).collect();
        format!("{} ({why})", names.join(", "))
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn state(row: &EnvironmentRow) -> String {
    match &row.reason {
        None => "Ready".to_owned(),
        Some(reason) => format!("Missing: {reason}"),
    }
}

fn environment_row(inventory: &Inventory, entry: &EnvironmentEntry) -> EnvironmentRow {
    EnvironmentRow {
        name: entry.id.name(),
        clock: entry.id.clock().name(),
        what: entry.id.description(),
        by_default: inventory.is_default(entry.id),
        ready: entry.unavailable().is_none(),
        reason: entry.unavailable().map(ToString::to_string),
    }
}

fn workload_row(workload: Workload, chosen: OpSet) -> WorkloadRow {
    let usual = request::usual_operations();
    WorkloadRow {
        name: workload.name(),
        question: workload.question(),
        by_default: names::selected_by(workload).is_subset(usual),
        operations: (chosen & workload.set())
            .iter()
            .map(operation_row)
            .collect(),
    }
}

fn operation_row(op: Op) -> OperationRow {
    OperationRow {
        name: op.name(),
        counts: match op.unit() {
            Unit::Time => "time",
            Unit::Rate => "rate",
        },
        better: match op.direction() {
            Direction::Less => "less",
            Direction::More => "more",
        },
        what: op.description(),
    }
}

/// Columns left of the text of an environment, of an operation, on the first screen, below it, and of a detail.
const NAME: usize = 22;
const OPERATION: usize = 24;
const SHORT_TEXT: usize = 23;
const TITLE: usize = 20;
const DETAIL: usize = 12;

fn environment_text(environment: &EnvironmentRow, width: usize) -> String {
    let clock = environment.clock;
    let only = if environment.by_default {
        ""
    } else {
        "; only if asked for"
    };
    let what = format!("{} ({clock} clock{only})", environment.what);
    let state = state(environment);
    entry(environment.name, 2, NAME, &what, width) + &entry("", 2, NAME, &state, width)
}

fn workloads_text(workloads: &[WorkloadRow], width: usize) -> String {
    let mut text = String::new();
    for workload in workloads {
        let only = if workload.by_default {
            ""
        } else {
            " (only if asked for)"
        };
        let title = format!("\nWorkload {}: {}{only}", workload.name, workload.question);
        text.push_str(&textwrap::fill(&title, width));
        text.push('\n');
        for operation in &workload.operations {
            text.push_str(&entry(operation.name, 2, OPERATION, operation.what, width));
        }
    }
    text
}

/// Returns a name and, right of it, a wrapped text.
fn entry(name: &str, indent: usize, column: usize, text: &str, width: usize) -> String {
    let name = format!("{name} ");
    let first = format!("{:indent$}{name:<rest$}", "", rest = column - indent);
    let other = " ".repeat(column);
    let options = textwrap::Options::new(width)
        .initial_indent(&first)
        .subsequent_indent(&other)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn entries_are_wrapped_in_their_column() {
        let text = entry("name", 2, NAME, &"words ".repeat(30), 60);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0].find("words"), Some(NAME), "{text}");
        assert_eq!(lines[1].find("words"), Some(NAME), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 60), "{text}");
    }

    fn row(name: &'static str, reason: Option<&str>) -> EnvironmentRow {
        EnvironmentRow {
            name,
            clock: "insn",
            what: "the image in trapline-vmm on KVM on the simulated machine",
            by_default: true,
            ready: reason.is_none(),
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn a_missing_environment_of_the_first_screen_has_one_line() {
        let reason = "there is no QEMU of version 7.2 or later: apt-get install qemu-system-x86";
        let lines = [row("sim/kvm", None), row("sim/kvm", Some(reason))];
        let lines = lines.map(|row| short_text(&row, 80)).concat();
        let expected =
            "  sim/kvm      ready   the image in trapline-vmm on KVM on the simulated machine
  sim/kvm      missing there is no QEMU of version 7.2 or later: apt-get install…
";
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_first_screen_fits_80x24() {
        let usual = EnvironmentId::all().filter(|id| id.has(Feature::Default));
        let rows = usual.map(|id| EnvironmentRow {
            what: id.description(),
            ..row(id.name(), None)
        });
        let rows: String = rows.map(|row| short_text(&row, 80)).collect();
        let headings = 2;
        let text = rows + &rest_of_screen(20, 8, 80);
        assert!(text.lines().count() + headings < 24, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn names_choose_environments_and_operations() {
        let chosen = ["sim/kvm", "exits/port-out"].map(|name| names::selection(name).unwrap());
        let chosen = Chosen::of(&chosen);
        assert_eq!(chosen.environments, [EnvironmentId::SIM_KVM]);
        let [workload] = chosen.workloads().try_into().ok().unwrap();
        assert_eq!(workload.operations.len(), 1);
        let text = details(EnvironmentId::SIM_KVM, &row("sim/kvm", None), 80);
        expect![[r#"
            sim/kvm: the image in trapline-vmm on KVM on the simulated machine
              clock     insn: instructions on a simulated machine
              measured  by default
              without   memory (a load is one instruction, whatever the caches hold);
                        net/vsock-ping, net/vsock-send, net/vsock-receive (the image has no
                        driver for vsock); net/sendfile (the image has no file in memory
                        while it has a network card)
              state     Ready
              settings  cpus, guests, memory, pages, paging, thp, cgroup, mitigations,
                        layout, wake, path, peer, zeroing, isolation, idle, image, agent,
                        vmm, qemu, kernel, modules

        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn every_operation_is_listed() {
        let workloads = Chosen::of(&[]).workloads();
        let count: usize = workloads.iter().map(|w| w.operations.len()).sum();
        assert_eq!(count, Op::ALL.len());
        for operation in workloads.iter().flat_map(|w| &w.operations) {
            let text = entry(operation.name, 2, OPERATION, operation.what, 80);
            let gap = &text[2 + operation.name.len()..OPERATION];
            assert!(gap.trim().is_empty() && !gap.is_empty(), "{text}");
        }
    }
}
