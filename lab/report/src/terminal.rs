//! A report for people at a terminal: a table for each clock, how each
//! environment boots, and below all of it what could not be measured and why.

use crate::sheet::{Look, Span};
use crate::{against, chance, notes, printable, table, timelines, Report, Style};
use std::collections::BTreeMap;
use trapline_abi::{block, OpSet, Workload};
use trapline_model::file::Table;
use trapline_model::{irq, populate, Clock, EnvironmentId};
use trapline_stats::Cell;

/// How many problems of one environment are shown.
const MOST_PROBLEMS: usize = 4;

/// The report as text, each line at most `style.width` columns wide unless the
/// width is too small for a single environment.
pub fn terminal(report: &Report, style: &Style) -> String {
    let mut page = Page {
        style: *style,
        text: String::new(),
    };
    let cells = report.cells();
    page.title(report);
    // Interrupts, memory and disks have tables of their own, which say more.
    let apart = irq::operations() | populate::operations() | block::operations();
    let only_apart = report.operations & !apart == 0;
    for clock in Clock::ALL {
        match report.tables.as_slice() {
            [] if !only_apart => page.table(&cells, clock),
            tables => page.tables(tables, &cells, clock),
        }
        page.interrupts(report, &cells, clock);
        page.populate(report, &cells, clock);
        page.neighbours(report, clock);
        page.requests(report, &cells, clock);
        page.costs(&cells, clock);
    }
    page.against(&cells);
    page.agreement(report, &cells);
    if report.operations & of_boot() != 0 {
        for clock in Clock::ALL {
            page.timelines(report, clock);
        }
    }
    page.reasons("Failed", Look::Bad, &notes::failures(&cells));
    page.reasons("Not measured", Look::Strong, &notes::skips(&cells));
    page.problems(report);
    page.chance(report);
    page.text
}

/// In how many boots the figures of an exact clock were the same.
fn reproduced(cells: &[Cell], clock: Clock) -> String {
    let cells = cells.iter().filter(|cell| cell.clock == clock);
    let boots = cells.filter_map(|cell| Some(cell.value.figure()?.boots));
    match boots.min() {
        Some(boots) if boots > 1 => format!("same in {boots} boots"),
        _ => "not reproduced".to_owned(),
    }
}

/// Whoever asks for none of these does not ask how anything boots.
fn of_boot() -> OpSet {
    Workload::Boot.set()
}

pub(crate) struct Page {
    pub style: Style,
    pub text: String,
}

impl Page {
    /// Which Trapline measured, on what, and in the order of which seed.
    pub(crate) fn measured_by(
        &mut self,
        version: &str,
        facts: &BTreeMap<String, String>,
        seed: Option<u64>,
    ) {
        let mut parts = vec![format!("Trapline {version}")];
        let known = ["cpu", "kernel", "kvm"].into_iter();
        let told = known.filter_map(|name| facts.get(name));
        parts.extend(told.map(|fact| printable(fact)));
        parts.extend(seed.map(|seed| format!("seed {seed}")));
        let separator = if self.style.unicode { " · " } else { ", " };
        self.paragraph("", &parts.join(separator), Look::Faint);
    }

    fn title(&mut self, report: &Report) {
        self.measured_by(&report.version, &report.facts, report.seed);
        if !report.variant.is_usual() {
            self.paragraph("", &format!("With {}", report.variant), Look::Strong);
        }
    }

    fn table(&mut self, cells: &[Cell], clock: Clock) {
        let Some((sheet, notes)) = table::table(cells, clock, self.style.unicode) else {
            return;
        };
        self.heading(&self.explanation(cells, clock));
        self.text.push_str(&sheet.render(&self.style));
        self.notes(&notes.texts());
    }

    /// The tables that a plan has of its own.
    fn tables(&mut self, tables: &[Table], cells: &[Cell], clock: Clock) {
        for one in tables {
            let rows = cells
                .iter()
                .filter(|cell| one.operations & cell.op.bit() != 0);
            let rows: Vec<Cell> = rows.cloned().collect();
            if let Some((sheet, notes)) = table::table(&rows, clock, self.style.unicode) {
                let (of_clock, explanation) = self.explanation(&rows, clock);
                let title = format!("{}, {}", printable(&one.title), of_clock.to_lowercase());
                self.heading(&(&title, explanation));
                self.text.push_str(&sheet.render(&self.style));
                self.notes(&notes.texts());
            }
        }
    }

    fn against(&mut self, cells: &[Cell]) {
        let Some((sheet, notes)) = against::sheet(cells, self.style.unicode) else {
            return;
        };
        let explanation = "times the bare row of the same clock; clocks are never mixed";
        self.heading(&("Against bare", explanation.to_owned()));
        self.text.push_str(&sheet.render(&self.style));
        self.notes(&notes);
    }

    fn notes(&mut self, texts: &[String]) {
        for (number, text) in (1..).zip(texts) {
            let mark = table::marks(&[number], self.style.unicode);
            self.paragraph(&format!(" {mark} "), &printable(text), Look::Faint);
        }
    }

    fn costs(&mut self, cells: &[Cell], clock: Clock) {
        if let Some(sheet) = table::costs(cells, clock, self.style.unicode) {
            let title = match clock {
                Clock::Wall => "Beside it, wall clock",
                Clock::Insn => "Beside it, instruction clock",
                Clock::InsnVmx => "Beside it, Intel instruction clock",
            };
            let explanation = "exits and host CPU time per operation (stream: per MB)";
            self.heading(&(title, explanation.to_owned()));
            self.text.push_str(&sheet.render(&self.style));
        }
    }

    /// How to read a table, in a line or two.
    fn explanation(&self, cells: &[Cell], clock: Clock) -> (&'static str, String) {
        let (spread, times) = if self.style.unicode {
            ("±", "×")
        } else {
            ("+-", "x")
        };
        let bare = clock.bare();
        match clock {
            Clock::Wall => (
                "Wall clock",
                format!(
                    "median over boots, {times} = ratio to {bare}, paired; {spread} {}",
                    table::interval_words(cells, clock)
                ),
            ),
            Clock::Insn | Clock::InsnVmx => (
                match clock {
                    Clock::InsnVmx => "Intel instruction clock",
                    _ => "Instruction clock",
                },
                format!(
                    "mean over batches (min..max if they differ), {}; {times} = times {bare}",
                    reproduced(cells, clock)
                ),
            ),
        }
    }

    fn timelines(&mut self, report: &Report, clock: Clock) {
        let all = &report.summary.timelines;
        let Some(sheet) = timelines::sheet(all, clock, self.style.unicode) else {
            return;
        };
        let title = match clock {
            Clock::Wall => "Boot, wall clock",
            Clock::Insn => "Boot, instruction clock",
            Clock::InsnVmx => "Boot, Intel instruction clock",
        };
        let figure = match clock {
            Clock::Wall => "median",
            Clock::Insn | Clock::InsnVmx => "mean",
        };
        let explanation = format!("since exec, and since the stage before; {figure} over launches");
        self.heading(&(title, explanation));
        self.text.push_str(&sheet.render(&self.style));
        for timeline in all.iter().filter(|timeline| timeline.clock == clock) {
            if timeline.disordered > 0 {
                let text = format!(
                    "{}: in {} of {} launches a stage seems to precede the one before it: \
                     guest's and host's clock could not be reconciled",
                    timeline.environment, timeline.disordered, timeline.launches
                );
                self.paragraph(" ! ", &text, Look::Faint);
            }
        }
    }

    fn reasons(&mut self, title: &'static str, look: Look, reasons: &[notes::Reason]) {
        if reasons.is_empty() {
            return;
        }
        self.text.push('\n');
        self.line(&Span::new(title, look));
        for reason in reasons {
            self.paragraph(&format!(" {}: ", reason.cells), &reason.text, Look::Plain);
        }
    }

    fn problems(&mut self, report: &Report) {
        if report.summary.problems.is_empty() {
            return;
        }
        self.text.push('\n');
        self.line(&Span::new("Noticed", Look::Strong));
        for environment in EnvironmentId::ALL {
            self.problems_of(environment, report);
        }
    }

    fn chance(&mut self, report: &Report) {
        let Some(chance) = &report.chance else { return };
        self.text.push('\n');
        self.line(&Span::new("What chance does here", Look::Strong));
        for sentence in chance::sentences(chance) {
            self.paragraph(" ", &sentence, Look::Plain);
        }
    }

    fn problems_of(&mut self, environment: EnvironmentId, report: &Report) {
        let all = &report.summary.problems;
        let of_environment = all.iter().filter(|((of, _), _)| *of == environment);
        let problems: Vec<(&String, &usize)> = of_environment
            .map(|((_, problem), boots)| (problem, boots))
            .collect();
        for (problem, boots) in problems.iter().take(MOST_PROBLEMS) {
            let boots = match boots {
                1 => "1 boot".to_owned(),
                more => format!("{more} boots"),
            };
            let text = format!("{} ({boots})", printable(problem));
            self.paragraph(&format!(" {environment}: "), &text, Look::Plain);
        }
        let further = problems.len().saturating_sub(MOST_PROBLEMS);
        if further > 0 {
            let text = format!("{further} more; --format json has all of them");
            self.paragraph(&format!(" {environment}: "), &text, Look::Faint);
        }
    }

    pub(crate) fn heading(&mut self, (title, explanation): &(&str, String)) {
        self.text.push('\n');
        let wide = title.len() + 2 + explanation.chars().count() <= self.style.width;
        let title = Span::new(*title, Look::Strong);
        if wide {
            let explanation = Span::new(explanation, Look::Faint).painted(&self.style);
            let line = format!("{}: {explanation}\n", title.painted(&self.style));
            self.text.push_str(&line);
        } else {
            self.line(&title);
            self.paragraph("", explanation, Look::Faint);
        }
    }

    pub(crate) fn line(&mut self, span: &Span) {
        self.text.push_str(&span.painted(&self.style));
        self.text.push('\n');
    }

    /// Wrapped text; further lines are indented below what comes before it.
    pub(crate) fn paragraph(&mut self, before: &str, text: &str, look: Look) {
        let text = format!("{before}{text}");
        let options = textwrap::Options::new(self.style.width)
            .subsequent_indent(if before.is_empty() { "" } else { "   " })
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        for line in textwrap::wrap(&text, options) {
            self.line(&Span::new(line, look));
        }
    }
}
