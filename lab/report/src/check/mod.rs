//! Output formats of the comparison of a baseline with new figures, one function each.

mod bencher;
mod json;
mod junit;
mod markdown;
mod table;

pub use crate::formats::JunitError;
pub use bencher::bencher;
pub use json::json;
pub use junit::junit;
pub use markdown::markdown;
pub use table::{figures, table};

use trapline_gate::Cause;
use trapline_gate::{Comparison, Row, Verdict};
use trapline_model::line::one_line;
use trapline_profile::Change;

/// Printed decimals, unless a difference is smaller.
const DECIMALS: usize = 3;

/// Formats the old and the new figure, with as many digits as distinguish them.
fn both(row: &Row) -> (String, String) {
    let short = |figure: f64| format!("{figure:.DECIMALS$}");
    let (old, new) = (row.old.map(short), row.new.map(short));
    if old == new && row.old != row.new {
        return (exact(row.old), exact(row.new));
    }
    let shown = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    (shown(old), shown(new))
}

fn exact(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| figure.to_string())
}

fn difference(row: &Row) -> String {
    let found = row.difference().map(signed);
    found.unwrap_or_else(|| row.verdict.name().to_owned())
}

fn signed(difference: f64) -> String {
    let short = format!("{difference:+.DECIMALS$}");
    if short.trim_start_matches(['+', '-', '0', '.']).is_empty() && difference != 0.0 {
        format!("{difference:+.1e}")
    } else {
        short
    }
}

fn percent(row: &Row) -> String {
    row.percent().map_or(String::new(), |percent| {
        if percent.abs() < 0.01 {
            format!("{percent:+.1e}%")
        } else {
            format!("{percent:+.2}%")
        }
    })
}

/// Returns a line with the result.
fn verdict(comparison: &Comparison) -> String {
    let skipped = comparison.count(Verdict::Skipped);
    let total = comparison.rows.len() - skipped;
    let changed = comparison.changes().count();
    let tolerated = comparison.count(Verdict::Tolerated);
    let within = match tolerated {
        0 => String::new(),
        _ => format!(", {tolerated} of them within their tolerance"),
    };
    let left_out = match skipped {
        0 => String::new(),
        1 => "; 1 operation is skipped".to_owned(),
        _ => format!("; {skipped} operations are skipped"),
    };
    match changed {
        0 => format!(
            "same: {} as in the baseline{within}{left_out}",
            figures_of(total)
        ),
        _ => format!("changed: {changed} of {}{left_out}", figures_of(total)),
    }
}

fn figures_of(count: usize) -> String {
    match count {
        1 => "1 figure".to_owned(),
        _ => format!("{count} figures"),
    }
}

/// Number of functions that are listed for a figure; the rest is summed up in a line.
const MOST: usize = 8;

/// Functions of a row: those that are listed, the sum of the rest, and a caveat.
struct Functions<'a> {
    listed: &'a [Change],
    rest: Option<String>,
    caveat: Option<String>,
}

fn functions(row: &Row) -> Option<Functions<'_>> {
    let explained = row.explained.as_ref()?;
    let (listed, rest) = explained
        .changes
        .split_at(explained.changes.len().min(MOST));
    let sum: f64 = rest.iter().map(Change::difference).sum();
    let (old, new) = explained.totals;
    Some(Functions {
        listed,
        rest: (!rest.is_empty()).then(|| format!("{} in {} more", signed(sum), rest.len())),
        caveat: (!explained.has_totals(row.old, row.new)).then(|| {
            format!(
                "profiles of other totals: {old:.DECIMALS$} and {new:.DECIMALS$} {}",
                row.unit
            )
        }),
    })
}

/// Printed if figures changed and no fact did.
const UNEXPLAINED: &str = "no fact differs from those of the baseline";

/// Describes causes, the likely one first. If no figure changed, only those of the environment.
fn causes(comparison: &Comparison) -> Vec<String> {
    let changed = comparison.changes().next().is_some();
    if changed && comparison.causes.is_empty() {
        return vec![UNEXPLAINED.to_owned()];
    }
    let causes = comparison
        .causes
        .iter()
        .filter(|cause| changed || cause.fact.around);
    causes
        .enumerate()
        .map(|(number, cause)| {
            let lead = match (changed, number) {
                (true, 0) => "likely cause",
                (true, _) => "also differs",
                (false, _) => "differs, but moved nothing",
            };
            format!("{lead}: {}", describe(cause))
        })
        .collect()
}

fn describe(cause: &Cause) -> String {
    let value = |value: &Option<String>| match value {
        None => "unknown".to_owned(),
        Some(value) if cause.fact.name.ends_with("-sha256") => {
            one_line(value).chars().take(12).collect()
        }
        Some(value) => one_line(value),
    };
    let names: Vec<_> = cause.configs.iter().map(ToString::to_string).collect();
    let (old, new) = (value(&cause.old), value(&cause.new));
    format!(
        "{}, {old} -> {new} ({})",
        cause.fact.title,
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
