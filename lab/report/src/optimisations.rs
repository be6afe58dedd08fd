//! Gain of optimisations, beside their share of the code.

use crate::document::{Look, Section, Span, Table};
use crate::figures;
use crate::report::{Optimisation, Report};
use serde::Serialize;
use trapline_abi::Direction;
use trapline_model::names;

/// Least gain in percent for each percent of code: the rule of lguest (Russell, "lguest: Implementing the little Linux
/// hypervisor", Ottawa Linux Symposium 2007).
const RULE: f64 = 2.0;

impl Optimisation {
    /// Returns the part of the cost that is saved, or the part by which the rate grows; negative for a loss.
    fn gain(&self) -> f64 {
        match self.op.direction() {
            Direction::Less => 1.0 - self.with / self.without,
            Direction::More => self.with / self.without - 1.0,
        }
    }

    /// Returns the part of the code.
    fn share(&self) -> f64 {
        f64::from(self.lines) / f64::from(self.all_lines)
    }

    fn ratio(&self) -> f64 {
        self.gain() / self.share()
    }
}

/// Returns the sections of the optimisations of a plan, if it has any, and then the settings of the tables below, which
/// are not those of the optimisations.
pub fn sections(report: &Report) -> Vec<Section> {
    let Some(section) = section(report) else {
        return Vec::new();
    };
    let settings = Section::new(&format!("With {}", report.settings), "");
    let settings = Some(settings).filter(|_| !report.settings.is_default());
    [section].into_iter().chain(settings).collect()
}

/// Returns the table of the optimisations of a plan, if it has any.
pub fn section(report: &Report) -> Option<Section> {
    let first = report.optimisations.first()?;
    let mut section = Section::new(
        "Gain and code of each optimisation",
        format!(
            "code: lines of {}; the rule: gain in % at least twice the code in %",
            figures::exact(first.all_lines.into())
        ),
    );
    let columns = [
        "without",
        "with",
        "gain",
        "lines",
        "code",
        "gain/code",
        "rule",
    ];
    let mut table = Table::new("", columns);
    let mut title = "";
    for it in &report.optimisations {
        if it.title != title {
            title = &it.title;
            table.heading(title, "");
        }
        let verdict = match it.ratio() >= RULE {
            true => Span::new("holds", Look::Good),
            false => Span::new("fails", Look::Bad),
        };
        let plain = |text: String| Span::new(text, Look::Plain);
        let cells = [
            plain(figures::value(it.without, it.op, it.clock)),
            plain(figures::value(it.with, it.op, it.clock)),
            plain(format!("{:.1}%", it.gain() * 100.0)),
            plain(it.lines.to_string()),
            plain(format!("{:.2}%", it.share() * 100.0)),
            plain(figures::quantity(it.ratio())),
            verdict,
        ];
        table.row(it.op.name(), cells);
    }
    section.table(table);
    Some(section)
}

#[derive(Serialize)]
pub(crate) struct JsonOptimisation {
    title: String,
    operation: String,
    without: f64,
    with: f64,
    lines: u32,
    all_lines: u32,
    gain: f64,
    holds: bool,
}

impl From<&Optimisation> for JsonOptimisation {
    fn from(it: &Optimisation) -> Self {
        Self {
            title: it.title.clone(),
            operation: names::path(it.op),
            without: it.without,
            with: it.with,
            lines: it.lines,
            all_lines: it.all_lines,
            gain: it.gain(),
            holds: it.ratio() >= RULE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::style::Style;
    use crate::{render, Format};
    use expect_test::expect;
    use trapline_abi::Op;
    use trapline_model::Clock;

    fn optimisation(op: Op, without: f64, with: f64, lines: u32) -> Optimisation {
        Optimisation {
            title: format!("{lines} lines"),
            op,
            clock: Clock::Insn,
            without,
            with,
            lines,
            all_lines: 20_000,
        }
    }

    #[test]
    fn gain_is_compared_with_the_part_of_the_code() {
        let report = Report {
            optimisations: vec![
                optimisation(Op::PortOut, 2_000.0, 1_900.0, 500),
                optimisation(Op::PortOut, 2_000.0, 1_899.0, 500),
                optimisation(Op::PortOut, 2_000.0, 1_900.0, 501),
                optimisation(Op::PortOut, 2_000.0, 2_100.0, 1),
                optimisation(Op::Triad, 2_000.0, 2_100.0, 500),
            ],
            ..Report::default()
        };
        let text = render(&report.document(), Format::Text(Style::default()));
        expect![[r#"
            Trapline

            Gain and code of each optimisation
            code: lines of 20,000; the rule: gain in % at least twice the code in %
                       without   with   gain  lines   code  gain/code   rule
            500 lines
             port-out    2,000  1,900   5.0%    500  2.50%       2.00  holds
             port-out    2,000  1,899   5.0%    500  2.50%       2.02  holds
            501 lines
             port-out    2,000  1,900   5.0%    501  2.50%       2.00  fails
            1 lines
             port-out    2,000  2,100  -5.0%      1  0.01%          0  fails
            500 lines
             triad       2,000  2,100   5.0%    500  2.50%       2.00  holds
        "#]]
        .assert_eq(&text.unwrap());
    }
}
