//! Profiles as tables for a terminal: stages of a launch, components, functions.

use crate::breakdown::{Change, Profile};
use crate::insn::Event;
use crate::source::{LineCost, SourceLine, Sources};
use crate::symbols::Function;
use std::fmt::Write;

/// Functions listed one by one; one line sums up the rest.
pub const MAX_FUNCTIONS: usize = 30;

/// Components listed one by one.
const MAX_COMPONENTS: usize = 15;

/// Widths of the columns for components and numbers.
const COMPONENT: usize = 18;
const NUMBER: usize = 11;

/// Width of the column for source lines.
const SOURCE: usize = 18;

/// Source lines listed one by one.
const MAX_LINES: usize = 20;

/// Width of the column for stages.
const STAGES: usize = 28;

/// Formats a profile in `width` columns.
pub fn table(title: &str, profile: &Profile, width: usize) -> String {
    let mut text = format!("{title}: {} insn\n\n", number(profile.total));
    stages(&mut text, profile);
    sums(&mut text, "level", profile.levels(), profile.total);
    sums(&mut text, "component", profile.components(), profile.total);
    functions(&mut text, profile, width);
    if let Some(sources) = &profile.sources {
        source_lines(&mut text, profile, sources, width);
    }
    let _ = writeln!(text, "\n{}", balance(profile));
    text
}

/// Formats sums over `kind` as a table, if there are any.
fn sums(text: &mut String, kind: &str, sums: Vec<(&str, f64)>, total: f64) {
    if sums.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{kind:<COMPONENT$} {:>NUMBER$} {:>7}",
        "insn", "share"
    );
    let (listed, rest) = sums.split_at(sums.len().min(MAX_COMPONENTS));
    let rest_name = format!("{} more", rest.len());
    let rest_insn = rest.iter().map(|(_, insn)| insn).sum();
    let last = (!rest.is_empty()).then_some((rest_name.as_str(), rest_insn));
    for (name, insn) in listed.iter().copied().chain(last) {
        let _ = writeln!(
            text,
            "{:<COMPONENT$} {:>NUMBER$} {:>7}",
            clip(name, COMPONENT),
            number(insn),
            share(insn, total)
        );
    }
    text.push('\n');
}

fn functions(text: &mut String, profile: &Profile, width: usize) {
    let source = |function: &Function| {
        profile.sources.as_ref()?;
        Some(
            profile
                .source(function)
                .map_or_else(String::new, SourceLine::short),
        )
    };
    let header = profile
        .sources
        .as_ref()
        .map_or(String::new(), |_| format!("{:<SOURCE$} ", "source"));
    let _ = writeln!(
        text,
        "{:>NUMBER$} {:>7}  {:<COMPONENT$} {header}function",
        "insn", "share", "component"
    );
    let listed = profile.items.len().min(MAX_FUNCTIONS);
    let (listed, rest) = profile.items.split_at(listed);
    for item in listed {
        let cost = (item.insn, profile.total);
        line(text, cost, &item.function, source(&item.function), width);
    }
    if !rest.is_empty() {
        let insn = rest.iter().map(|item| item.insn).sum();
        let function = Function {
            component: String::new(),
            name: format!("{} more (--format json lists all)", rest.len()),
        };
        let source = source(&function);
        line(text, (insn, profile.total), &function, source, width);
    }
}

/// Formats the source lines with the most instructions, if there are any.
fn source_lines(text: &mut String, profile: &Profile, sources: &Sources, width: usize) {
    if sources.lines.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:>NUMBER$} {:>7}  {:<COMPONENT$} line",
        "insn", "share", "component"
    );
    let (listed, rest) = sources.lines.split_at(sources.lines.len().min(MAX_LINES));
    for cost in listed {
        let name = clip_start(&cost.source.to_string(), name_width(width));
        row(text, (cost.insn, profile.total), &cost.component, &name);
    }
    let sum = |lines: &[LineCost]| lines.iter().map(|line| line.insn).sum::<f64>();
    let executed = profile.counted as f64 / profile.operations as f64;
    let unknown = executed - sum(&sources.lines);
    for (insn, name) in [
        (
            sum(rest),
            format!("{} more lines (--format json lists all)", rest.len()),
        ),
        (unknown, "no debug information".to_owned()),
    ] {
        if insn > 0.005 {
            row(text, (insn, profile.total), "", &name);
        }
    }
}

/// Formats the functions that differ between two profiles.
pub fn changes(titles: (&str, &str), profiles: (&Profile, &Profile), width: usize) -> String {
    let (before, after) = profiles;
    let mut text = format!(
        "{}: {} insn\n{}: {} insn, {} more\n\n",
        titles.0,
        number(before.total),
        titles.1,
        number(after.total),
        number(after.total - before.total)
    );
    let _ = writeln!(
        text,
        "{:>NUMBER$} {:>NUMBER$} {:>NUMBER$}  {:<COMPONENT$} function",
        "difference", "before", "after", "component"
    );
    let changes = before.changes(after);
    for change in changes.iter().take(MAX_FUNCTIONS) {
        change_line(&mut text, change, width);
    }
    if let Some(rest) = changes.get(MAX_FUNCTIONS..).filter(|rest| !rest.is_empty()) {
        let sum: f64 = rest.iter().map(Change::difference).sum();
        let (sum, count) = (number(sum), rest.len());
        let _ = writeln!(
            text,
            "{sum:>NUMBER$} in {count} more (--format json lists all)"
        );
    }
    let _ = writeln!(text, "\n{}\n{}", balance(before), balance(after));
    text
}

/// Formats the stages of a launch, with their residuals per launch.
fn stages(text: &mut String, profile: &Profile) {
    if profile.stages.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{:<STAGES$} {:>NUMBER$} {:>7} {:>NUMBER$}",
        "stage", "insn", "share", "residual"
    );
    for stage in &profile.stages {
        let Profile {
            total,
            residual,
            operations,
            ..
        } = stage.profile;
        let name = format!("{} to {}", stage.from.name(), stage.to.name());
        let residual = number(residual as f64 / operations.max(1) as f64);
        let insn = number(total);
        let share = share(total, profile.total);
        let _ = writeln!(
            text,
            "{name:<STAGES$} {insn:>NUMBER$} {share:>7} {residual:>NUMBER$}"
        );
    }
    text.push('\n');
}

/// Formats a function with its cost and the total; `source` is present if there is a column for it.
fn line(
    text: &mut String,
    cost: (f64, f64),
    function: &Function,
    source: Option<String>,
    width: usize,
) {
    let left = name_width(width);
    let name = match source {
        None => clip_path(&function.name, left),
        Some(source) => {
            let name = clip_path(&function.name, left.saturating_sub(SOURCE + 1));
            format!("{:<SOURCE$} {name}", clip_start(&source, SOURCE))
        }
    };
    row(text, cost, &function.component, &name);
}

/// Returns the width left for the last column.
fn name_width(width: usize) -> usize {
    width.saturating_sub(NUMBER + COMPONENT + 12)
}

fn row(text: &mut String, (insn, total): (f64, f64), component: &str, name: &str) {
    let _ = writeln!(
        text,
        "{:>NUMBER$} {:>7}  {:<COMPONENT$} {name}",
        number(insn),
        share(insn, total),
        clip(component, COMPONENT),
    );
}

fn change_line(text: &mut String, change: &Change, width: usize) {
    let left = width.saturating_sub(3 * NUMBER + COMPONENT + 6);
    let _ = writeln!(
        text,
        "{:>NUMBER$} {:>NUMBER$} {:>NUMBER$}  {:<COMPONENT$} {}",
        number(change.difference()),
        number(change.insn.0),
        number(change.insn.1),
        clip(&change.function.component, COMPONENT),
        clip_path(&change.function.name, left)
    );
}

fn balance(profile: &Profile) -> String {
    let Profile {
        residual,
        operations,
        counted,
        exits,
        faults,
        interrupts,
        ..
    } = profile;
    let residual = number(*residual as f64);
    let halted = match profile.count(Event::Halt) {
        0 => String::new(),
        1 => ", while the CPU was halted once".to_owned(),
        halts => format!(", while the CPU was halted {halts} times"),
    };
    let interrupted = match interrupts {
        0 => String::new(),
        _ => format!(", {interrupts} interrupts"),
    };
    let operations = match operations {
        1 => "Once".to_owned(),
        _ => format!("{operations} operations"),
    };
    let counted = number(*counted as f64);
    format!(
        "{operations}, {counted} instructions counted, \
         {exits} exits, {faults} faults{interrupted}.{}{}\nResidual: {residual}{halted}",
        events(profile),
        excluded(profile)
    )
}

/// Returns how many instructions of an operation are excluded, in a line that begins with a line feed; empty for none.
fn excluded(profile: &Profile) -> String {
    if profile.excluded == 0 {
        return String::new();
    }
    let each = profile.excluded as f64 / profile.operations.max(1) as f64;
    format!(
        "\nExcluded: {} by operation, which find the length of an instruction",
        number(each)
    )
}

/// Columns of a line of events.
const EVENTS: usize = 80;

/// Returns how often each event occurs in an operation, in lines that begin with a line feed; empty for none.
fn events(profile: &Profile) -> String {
    let mut text = String::new();
    let mut column = EVENTS;
    for event in Event::ALL {
        let words = match event {
            Event::Halt => continue,
            Event::GuestEntry => "guest entries",
            Event::SystemReturn => "returns from system calls",
            Event::TrapReturn => "returns from interrupts",
            Event::MsrWrite => "writes of MSRs",
            Event::PageTableRoot => "page-table roots",
            Event::StringIteration => "string iterations",
        };
        let count = profile.count(event) as f64 / profile.operations.max(1) as f64;
        if count == 0.0 {
            continue;
        }
        let item = format!("{words} {}", number(count));
        let begin = if text.is_empty() {
            "\nBy operation: "
        } else if column + item.len() + 2 > EVENTS {
            ",\n "
        } else {
            ", "
        };
        let line = begin.rsplit('\n').next().unwrap_or(begin);
        column = item.len() + line.len() + if line == begin { column } else { 0 };
        text.push_str(begin);
        text.push_str(&item);
    }
    text
}

/// Formats a number with grouped thousands, and with two decimals unless it is whole.
pub fn number(value: f64) -> String {
    let hundredths = (value * 100.0).round();
    let sign = if hundredths < 0.0 { "-" } else { "" };
    let hundredths = hundredths.abs() as u64;
    let whole = (hundredths / 100).to_string();
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index != 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match hundredths % 100 {
        0 => format!("{sign}{grouped}"),
        part => format!("{sign}{grouped}.{part:02}"),
    }
}

fn share(insn: f64, total: f64) -> String {
    match total {
        0.0 => "–".to_owned(),
        _ => format!("{:.1}%", 100.0 * insn / total),
    }
}

/// Shortens a name to `width` columns.
pub fn clip(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let kept: String = name.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Shortens a function name to `width` columns; of a Rust path it keeps the end.
pub fn clip_path(name: &str, width: usize) -> String {
    if name.chars().count() <= width || !name.contains("::") {
        return clip(name, width);
    }
    clip_start(name, width)
}

/// Shortens a name to the last `width` columns.
fn clip_start(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept = name.chars().skip(length + 1 - width.max(1));
    std::iter::once('…').chain(kept).collect()
}

#[cfg(test)]
mod tests;
