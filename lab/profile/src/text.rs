//! Profiles as tables for a terminal: stages of a launch, components, functions.

use crate::breakdown::{Change, Profile};
use crate::symbols::Function;
use std::fmt::Write;

/// Functions listed one by one; one line sums up the rest.
const MAX_FUNCTIONS: usize = 30;

/// Components listed one by one.
const MAX_COMPONENTS: usize = 15;

/// Widths of the columns for components and numbers.
const COMPONENT: usize = 18;
const NUMBER: usize = 11;

/// Width of the column for stages.
const STAGES: usize = 28;

/// Formats a profile in `width` columns.
pub fn table(title: &str, profile: &Profile, width: usize) -> String {
    let mut text = format!("{title}: {} insn\n\n", number(profile.total));
    stages(&mut text, profile);
    sums(&mut text, "level", profile.levels(), profile.total);
    sums(&mut text, "component", profile.components(), profile.total);
    functions(&mut text, profile, width);
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
    let _ = writeln!(
        text,
        "{:>NUMBER$} {:>7}  {:<COMPONENT$} function",
        "insn", "share", "component"
    );
    let listed = profile.items.len().min(MAX_FUNCTIONS);
    let (listed, rest) = profile.items.split_at(listed);
    for item in listed {
        line(text, item.insn, profile.total, &item.function, width);
    }
    if !rest.is_empty() {
        let insn = rest.iter().map(|item| item.insn).sum();
        let function = Function {
            component: String::new(),
            name: format!("{} more (--format json lists all)", rest.len()),
        };
        line(text, insn, profile.total, &function, width);
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

fn line(text: &mut String, insn: f64, total: f64, function: &Function, width: usize) {
    let left = width.saturating_sub(NUMBER + COMPONENT + 12);
    let _ = writeln!(
        text,
        "{:>NUMBER$} {:>7}  {:<COMPONENT$} {}",
        number(insn),
        share(insn, total),
        clip(&function.component, COMPONENT),
        clip_path(&function.name, left)
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
        halts,
        ..
    } = profile;
    let residual = number(*residual as f64);
    let halted = match halts {
        0 => String::new(),
        1 => ", while the CPU was halted once".to_owned(),
        _ => format!(", while the CPU was halted {halts} times"),
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
         {exits} exits, {faults} faults{interrupted}.\nResidual: {residual}{halted}"
    )
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
    let length = name.chars().count();
    if length <= width || !name.contains("::") {
        return clip(name, width);
    }
    let kept = name.chars().skip(length + 1 - width.max(1));
    std::iter::once('…').chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakdown::{FunctionCost, StageProfile};
    use trapline_abi::Stage;

    fn profile(functions: usize) -> Profile {
        let items = (0..functions).map(|index| FunctionCost {
            function: Function {
                component: "a_component_with_a_long_name".to_owned(),
                name: format!("{}{index}", "function_".repeat(12)),
            },
            insn: 1000.5,
        });
        Profile {
            total: 1000.5 * functions as f64,
            residual: 0,
            operations: 4,
            counted: 4002 * functions as u64,
            items: items.collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn tables_fit_the_width_and_sum_up_the_rest() {
        let text = table("exits/port-out in sim/kvm", &profile(40), 80);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        assert!(text.contains("  10,005   25.0%"), "{text}");
        assert!(text.contains("10 more (--format json"), "{text}");
        assert!(text.ends_with("Residual: 0\n"), "{text}");
        let text = changes(("a", "b"), (&profile(1), &profile(40)), 80);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        assert!(text.contains("b: 40,020 insn, 39,019.50 more"), "{text}");
    }

    #[test]
    fn levels_of_nested_guests_are_summed() {
        let mut nested = profile(3);
        let components = ["kvm", "L2/kvm", "guest"];
        for (item, component) in nested.items.iter_mut().zip(components) {
            component.clone_into(&mut item.function.component);
        }
        let levels: Vec<_> = nested.levels().into_iter().map(|(name, _)| name).collect();
        assert_eq!(levels, ["L1", "L2", "guest"]);
        let text = table("exits/port-out in sim/kvm/kvm", &nested, 80);
        assert!(text.contains("\nlevel "), "{text}");
        assert!(profile(3).levels().is_empty());
    }

    #[test]
    fn launches_are_listed_by_stage_with_halts() {
        let stage = |from, to, residual| StageProfile {
            from,
            to,
            profile: Profile {
                residual,
                operations: 1,
                ..profile(100_000)
            },
        };
        let launch = Profile {
            stages: vec![
                stage(Stage::Exec, Stage::GuestEntry, 0),
                stage(Stage::FirstSample, Stage::GuestExit, 8_657_291),
            ],
            residual: 8_657_291,
            operations: 1,
            halts: 3,
            ..profile(200_000)
        };
        let text = table("boot/exit in sim/kvm", &launch, 80);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        let line = "first-sample to guest-exit   100,050,000   50.0%   8,657,291";
        assert!(text.contains(line), "{text}");
        let last = "Residual: 8,657,291, while the CPU was halted 3 times\n";
        assert!(text.ends_with(last), "{text}");
        assert!(text.contains("\nOnce, "), "{text}");
    }

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(clip_path("a_long_name", 6), "a_lon…");
        assert_eq!(clip_path("machine::Machine::run", 13), "…Machine::run");
        assert_eq!(clip_path("a::b", 4), "a::b");
    }

    #[test]
    fn numbers_are_grouped() {
        let formatted = [3320.0, -1.0, 26.5, 1_234_567.891, 0.0].map(number);
        assert_eq!(formatted, ["3,320", "-1", "26.50", "1,234,567.89", "0"]);
    }
}
