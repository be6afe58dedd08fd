//! How late interrupts were, for people: a row for each environment and timer, then
//! where the time went, and the latest of them.
//!
//! On the wall clock times are in microseconds; on the instruction clock they are
//! instructions, of which one is a nanosecond: so one threshold serves both.

pub(crate) mod conditions;
pub(crate) mod json;
mod latest;
mod picture;
pub(crate) mod shares;
pub(crate) mod tables;
pub(crate) mod untold;
mod verdict;

pub use verdict::{verdicts, Verdict};

use crate::figures;
use crate::grid::Grid;
use crate::notes::Notes;
use crate::sheet::{Look, Span};
use crate::terminal::Page;
use crate::{printable, Report};
use trapline_model::Clock;
use trapline_stats::irq::{Interrupts, Point, Proof};
use trapline_stats::Cell;

impl Page {
    /// All that is to be said of interrupts on one clock.
    pub(crate) fn interrupts(&mut self, report: &Report, cells: &[Cell], clock: Clock) {
        let all = report.interrupts.iter();
        let shown: Vec<&Interrupts> = all.filter(|found| found.clock == clock).collect();
        if shown.is_empty() {
            return;
        }
        self.lateness(&shown, report, clock);
        self.notes_on(cells, clock);
        self.remarks(&shown);
        self.grid(&tables::counts(&shown, &report.irq));
        for words in shares::explanations(&shown) {
            self.paragraph("   ", &words, Look::Faint);
        }
        self.grid(&tables::windows(&shown));
        self.grid(&tables::found(&shown));
        self.stages(&shown, report, clock);
        self.picture(&shown);
        self.latest(&shown);
        self.verdicts(report, clock);
    }

    fn lateness(&mut self, shown: &[&Interrupts], report: &Report, clock: Clock) {
        let title = match clock {
            Clock::Wall => "Interrupts, wall clock",
            Clock::Insn => "Interrupts, instruction clock",
            Clock::InsnVmx => "Interrupts, Intel instruction clock",
        };
        let period = report.irq.period;
        let explanation = match clock {
            Clock::Wall => format!("how late, in {}, every {period}", self.micro()),
            _ => format!("how late, in insn = ns, every {period}"),
        };
        self.heading(&(title, explanation));
        let table = tables::lateness(shown);
        self.text.push_str(&table.render(&self.style));
        let whose = "own: the guest's timer; host: that of whoever runs the guest";
        self.paragraph("   ", whose, Look::Faint);
        let of = "of: number of interrupts that came; missed expiries are in none of these figures";
        self.paragraph("   ", of, Look::Faint);
        if let Some(words) = tables::missing_percentiles(shown) {
            self.paragraph("   ", &words, Look::Faint);
        }
        for words in conditions::words(report, shown, self.micro()) {
            self.paragraph("   ", &printable(&words), Look::Faint);
        }
    }

    /// What the cells' flags say: the table of interrupts has no room for marks.
    pub(crate) fn notes_on(&mut self, cells: &[Cell], clock: Clock) {
        let mut notes = Notes::default();
        for cell in cells.iter().filter(|cell| cell.clock == clock) {
            notes.on(cell);
        }
        for text in notes.texts() {
            self.paragraph(" ! ", &printable(&text), Look::Faint);
        }
    }

    fn remarks(&mut self, shown: &[&Interrupts]) {
        for interrupts in shown {
            for remark in remarks(interrupts, self.style.unicode) {
                let text = format!("{}: {remark}", tables::name(interrupts));
                self.paragraph(" ! ", &text, Look::Faint);
            }
        }
    }

    fn grid(&mut self, (title, explanation, grid): &(&'static str, String, Grid)) {
        self.heading(&(*title, explanation.clone()));
        self.text.push_str(&grid.render(&self.style));
    }

    fn stages(&mut self, shown: &[&Interrupts], report: &Report, clock: Clock) {
        let unit = match clock {
            Clock::Wall => self.micro(),
            _ => "insn",
        };
        let explanation = format!("{unit} since the one before: median, p99, max");
        self.heading(&("Stages", explanation));
        let sheet = tables::stages(shown, self.style.unicode);
        self.text.push_str(&sheet.render(&self.style));
        for text in untold::points(shown, report) {
            self.paragraph(" ! ", &printable(&text), Look::Faint);
        }
        for text in untold::entries(shown, report) {
            self.paragraph("   ", &printable(&text), Look::Faint);
        }
    }

    fn picture(&mut self, shown: &[&Interrupts]) {
        self.heading(&("Where the time goes", "mean of each stage".to_owned()));
        for line in picture::lines(shown, &self.style) {
            self.line(&Span::new(line, Look::Plain));
        }
    }

    fn latest(&mut self, shown: &[&Interrupts]) {
        let most = if shown.len() > 2 {
            latest::FEW
        } else {
            latest::ALL
        };
        let explanation = match most {
            latest::FEW => format!("{most} of each; --env A --timer T shows ten"),
            _ => format!("the {most} of each, how long after they were due"),
        };
        self.heading(&("Latest", explanation));
        let grid = latest::grid(shown, most);
        self.text.push_str(&grid.render(&self.style));
    }

    fn verdicts(&mut self, report: &Report, clock: Clock) {
        let all = verdicts(report);
        let here: Vec<&Verdict> = all
            .iter()
            .filter(|verdict| verdict.clock == clock)
            .collect();
        let (Some(require), false) = (report.irq.require, here.is_empty()) else {
            return;
        };
        let threshold = report.irq.threshold;
        let by = by(clock);
        let explanation = format!("at least {require} within {threshold}, {by}");
        self.heading(&("Verdict", explanation));
        for verdict in here {
            self.paragraph(" ", &verdict.words(), look(verdict.proof));
            if let Some(help) = verdict.help() {
                self.paragraph("   ", &format!("help: {help}"), Look::Plain);
            }
        }
    }

    fn micro(&self) -> &'static str {
        if self.style.unicode {
            "µs"
        } else {
            "us"
        }
    }
}

/// On what verdicts rest.
pub(crate) fn by(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "by the 95% interval for bursts",
        Clock::Insn | Clock::InsnVmx => "by count: every run gives the same",
    }
}

fn look(proof: Proof) -> Look {
    match proof {
        Proof::Met => Look::Good,
        Proof::NotMet => Look::Bad,
        Proof::NotProven => Look::Middling,
    }
}

/// A larger share of unexplained time is told.
const UNEXPLAINED: f64 = 0.01;

/// How long handling one takes - its handler and what stands behind it - and the period,
/// if that is shorter.
fn overlong(interrupts: &Interrupts) -> Option<(f64, f64)> {
    let spans = interrupts.stages.spans.iter();
    let behind = spans.filter(|span| matches!(span.to, Point::Done | Point::Resumed));
    let handling: f64 = behind.map(|span| span.p50).sum();
    let period = interrupts.period?;
    (handling > period).then_some((handling, period))
}

/// What has to be known of some interrupts before their figures are believed.
pub(crate) fn remarks(interrupts: &Interrupts, unicode: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    let time = |value| figures::time_with_unit(value, interrupts.clock, unicode);
    if interrupts.doubt.max > 0.0 {
        remarks.push(format!(
            "setting the timer takes time, so that it may have been due later than it says: by \
             {} in half of all cases, {} at the most",
            time(interrupts.doubt.p50),
            time(interrupts.doubt.max)
        ));
    }
    if interrupts.early > 0 {
        remarks.push(format!(
            "{} interrupts came before the timer was due; they count as 0 late",
            figures::count(interrupts.early)
        ));
    }
    if let Some((handling, period)) = overlong(interrupts) {
        remarks.push(format!(
            "handling one takes {} in half of all cases, longer than the period of {}: expiries \
             are missed for that alone, ask for a longer --period",
            time(handling),
            time(period)
        ));
    }
    if interrupts.stages.disordered > 0 {
        remarks.push(format!(
            "{} interrupts seem to have come to a stage before the one before it",
            figures::count(interrupts.stages.disordered)
        ));
    }
    if interrupts.stages.ahead > 0 {
        remarks.push(format!(
            "the host woke before the timer was due for {} interrupts",
            figures::count(interrupts.stages.ahead)
        ));
    }
    if interrupts.stages.unexplained() > UNEXPLAINED {
        remarks.push("the stages do not add up to the total".to_owned());
    }
    remarks
}
