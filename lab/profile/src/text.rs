//! A ledger as a table for a terminal: of a start its stages; components, then
//! functions.

use crate::account::{Change, Ledger};
use crate::symbols::Function;
use std::fmt::Write;

/// Functions that are told one by one; the rest are told in one line.
const MOST: usize = 30;

/// Components that are told one by one.
const MOST_COMPONENTS: usize = 15;

/// Columns of a component and of each number.
const COMPONENT: usize = 18;
const NUMBER: usize = 11;

/// Columns of the names of two stages.
const STAGES: usize = 28;

/// The table of a ledger, `width` columns wide.
pub fn table(title: &str, ledger: &Ledger, width: usize) -> String {
    let mut text = format!("{title}: {} insn\n\n", number(ledger.total));
    stages(&mut text, ledger);
    let rule = |text: &mut String, name: &str| {
        let _ = writeln!(
            text,
            "{name:<COMPONENT$} {:>NUMBER$} {:>7}",
            "insn", "share"
        );
    };
    rule(&mut text, "component");
    let components = ledger.components();
    let (told, rest) = components.split_at(components.len().min(MOST_COMPONENTS));
    let rest = (!rest.is_empty()).then(|| {
        let insn = rest.iter().map(|(_, insn)| insn).sum::<f64>();
        (format!("{} more", rest.len()), insn)
    });
    let rest = rest.iter().map(|(name, insn)| (name.as_str(), *insn));
    for (component, insn) in told.iter().copied().chain(rest) {
        let share = share(insn, ledger.total);
        let insn = number(insn);
        let _ = writeln!(
            text,
            "{:<COMPONENT$} {insn:>NUMBER$} {share:>7}",
            clip(component, COMPONENT)
        );
    }
    let _ = writeln!(
        text,
        "\n{:>NUMBER$} {:>7}  {:<COMPONENT$} function",
        "insn", "share", "component"
    );
    let (told, rest) = ledger.items.split_at(ledger.items.len().min(MOST));
    for item in told {
        line(&mut text, item.insn, ledger.total, &item.function, width);
    }
    if !rest.is_empty() {
        let insn = rest.iter().map(|item| item.insn).sum();
        let function = Function {
            component: String::new(),
            name: format!("{} more (--format json tells all)", rest.len()),
        };
        line(&mut text, insn, ledger.total, &function, width);
    }
    let _ = writeln!(text, "\n{}", balance(ledger));
    text
}

/// The table of what differs between two ledgers.
pub fn changes(titles: (&str, &str), ledgers: (&Ledger, &Ledger), width: usize) -> String {
    let (before, after) = ledgers;
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
    for change in changes.iter().take(MOST) {
        change_line(&mut text, change, width);
    }
    if let Some(rest) = changes.get(MOST..).filter(|rest| !rest.is_empty()) {
        let sum: f64 = rest.iter().map(Change::difference).sum();
        let (sum, count) = (number(sum), rest.len());
        let _ = writeln!(
            text,
            "{sum:>NUMBER$} in {count} more (--format json tells all)"
        );
    }
    let _ = writeln!(text, "\n{}\n{}", balance(before), balance(after));
    text
}

/// The stages of a start, each with what its count does not explain, by operation.
fn stages(text: &mut String, ledger: &Ledger) {
    if ledger.stages.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{:<STAGES$} {:>NUMBER$} {:>7} {:>NUMBER$}",
        "stage", "insn", "share", "residual"
    );
    for stage in &ledger.stages {
        let Ledger {
            total,
            residual,
            operations,
            ..
        } = stage.ledger;
        let name = format!("{} to {}", stage.from.name(), stage.to.name());
        let residual = number(residual as f64 / operations.max(1) as f64);
        let insn = number(total);
        let share = share(total, ledger.total);
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

fn balance(ledger: &Ledger) -> String {
    let Ledger {
        residual,
        operations,
        counted,
        exits,
        faults,
        interrupts,
        halts,
        ..
    } = ledger;
    let residual = number(*residual as f64);
    let asleep = match halts {
        0 => String::new(),
        1 => ", while the machine slept once".to_owned(),
        _ => format!(", while the machine slept {halts} times"),
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
         {exits} exits, {faults} faults{interrupted}.\nResidual: {residual}{asleep}"
    )
}

/// Whole numbers without decimals, others with two; thousands apart.
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

/// A name in at most `width` columns.
pub fn clip(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let kept: String = name.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// The same of a function: of a path with modules the end says most.
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
    use crate::account::Item;
    use crate::stages::StageLedger;
    use trapline_abi::Stage;

    fn ledger(functions: usize) -> Ledger {
        let items = (0..functions).map(|index| Item {
            function: Function {
                component: "a_component_with_a_long_name".to_owned(),
                name: format!("{}{index}", "function_".repeat(12)),
            },
            insn: 1000.5,
        });
        Ledger {
            total: 1000.5 * functions as f64,
            residual: 0,
            operations: 4,
            counted: 4002 * functions as u64,
            items: items.collect(),
            ..Ledger::default()
        }
    }

    #[test]
    fn tables_fit_and_leave_nothing_out() {
        let text = table("exits/port-out in sim/kvm", &ledger(40), 80);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        assert!(text.contains("  10,005   25.0%"), "{text}");
        assert!(text.contains("10 more (--format json"), "{text}");
        assert!(text.ends_with("Residual: 0\n"), "{text}");
        let text = changes(("a", "b"), (&ledger(1), &ledger(40)), 80);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        assert!(text.contains("b: 40,020 insn, 39,019.50 more"), "{text}");
    }

    #[test]
    fn a_start_is_told_by_stage_and_with_the_sleep_of_the_machine() {
        let stage = |from, to, residual| StageLedger {
            from,
            to,
            ledger: Ledger {
                residual,
                operations: 1,
                ..ledger(100_000)
            },
        };
        let start = Ledger {
            stages: vec![
                stage(Stage::Exec, Stage::GuestEntry, 0),
                stage(Stage::FirstSample, Stage::GuestExit, 8_657_291),
            ],
            residual: 8_657_291,
            operations: 1,
            halts: 3,
            ..ledger(200_000)
        };
        let text = table("boot/exit in sim/kvm", &start, 80);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        let line = "first-sample to guest-exit   100,050,000   50.0%   8,657,291";
        assert!(text.contains(line), "{text}");
        let last = "Residual: 8,657,291, while the machine slept 3 times\n";
        assert!(text.ends_with(last), "{text}");
        assert!(text.contains("\nOnce, "), "{text}");
    }

    #[test]
    fn long_names_keep_what_tells_them_apart() {
        assert_eq!(clip_path("a_long_name", 6), "a_lon…");
        assert_eq!(clip_path("machine::Machine::run", 13), "…Machine::run");
        assert_eq!(clip_path("a::b", 4), "a::b");
    }

    #[test]
    fn numbers_are_grouped_and_whole_where_they_can_be() {
        let told = [3320.0, -1.0, 26.5, 1_234_567.891, 0.0].map(number);
        assert_eq!(told, ["3,320", "-1", "26.50", "1,234,567.89", "0"]);
    }
}
