//! What giving a guest memory costs: a table for each environment, with a row for each
//! kind of region.
//!
//! Giving and touching are two figures; what people ask for is both together, and by page.

use crate::grid::{Grid, Titled};
use crate::sheet::{Look, Span};
use crate::terminal::Page;
use crate::{figures, Report};
use serde::Serialize;
use trapline_abi::populate::Wish;
use trapline_abi::Op;
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::Cell;

/// One kind of region in one environment, as far as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Given {
    environment: &'static str,
    clock: &'static str,
    unit: &'static str,
    order: u8,
    /// Pages of 4 KiB.
    pages: u64,
    /// Bytes of one page of the kernel's.
    page_bytes: u64,
    prefault: bool,
    attach: f64,
    touch: f64,
    total: f64,
    per_page: f64,
    /// Times what it costs without virtualization.
    ratio: Option<f64>,
}

/// All that was measured whole, in table order.
pub fn given(report: &Report) -> Vec<Given> {
    let cells = report.cells();
    let ids = EnvironmentId::ALL.into_iter();
    ids.flat_map(|id| {
        let cells = &cells;
        Wish::ALL
            .into_iter()
            .filter_map(move |wish| one(cells, id, wish))
    })
    .collect()
}

fn one(cells: &[Cell], environment: EnvironmentId, wish: Wish) -> Option<Given> {
    let (attach, unit) = figure(cells, environment, wish.attach())?;
    let (touch, _) = figure(cells, environment, wish.touch())?;
    let total = attach + touch;
    let native = native(environment).filter(|native| *native != environment);
    let of_native = native.and_then(|native| one(cells, native, wish));
    Some(Given {
        environment: environment.name(),
        clock: environment.clock().name(),
        unit,
        order: wish.order,
        pages: wish.pages(),
        page_bytes: if wish.huge { 2 << 20 } else { 4096 },
        prefault: wish.prefault,
        attach,
        touch,
        total,
        per_page: total / wish.pages() as f64,
        ratio: of_native.map(|native| total / native.total),
    })
}

/// The row to compare with: a program of the same kernel. A bare machine is given nothing.
fn native(environment: EnvironmentId) -> Option<EnvironmentId> {
    Some(match environment.clock() {
        Clock::Wall => EnvironmentId::Host,
        Clock::Insn => EnvironmentId::SimLinux,
        Clock::InsnVmx => EnvironmentId::SimVmxLinux,
    })
}

fn figure(cells: &[Cell], environment: EnvironmentId, op: Op) -> Option<(f64, &'static str)> {
    let its = |cell: &&Cell| cell.environment == environment && cell.op == op;
    let cell = cells.iter().find(its)?;
    Some((cell.value.figure()?.estimate, cell.unit))
}

impl Page {
    /// What giving memory costs on one clock.
    pub(crate) fn populate(&mut self, report: &Report, cells: &[Cell], clock: Clock) {
        let all = tables(report, clock, self.style.unicode);
        for Titled {
            title,
            explanation,
            grid,
        } in &all
        {
            self.heading(&(*title, explanation.clone()));
            self.text.push_str(&grid.render(&self.style));
        }
        if !all.is_empty() {
            self.paragraph("   ", WORDS, Look::Faint);
            self.notes_on(cells, clock);
        }
    }
}

/// What the columns are.
pub(crate) const WORDS: &str = "attach: until the memory is there; touch: a word of each page is \
                                written; by page: of 4 KiB, whatever pages the kernel gives";

/// A table for each environment of one clock that was given any.
pub(crate) fn tables(report: &Report, clock: Clock, unicode: bool) -> Vec<Titled> {
    let all = given(report);
    let ids = EnvironmentId::ALL.into_iter();
    let mut tables = Vec::new();
    for id in ids.filter(|id| id.clock() == clock) {
        let here = all.iter().filter(|one| one.environment == id.name());
        let here: Vec<&Given> = here.collect();
        if !here.is_empty() {
            tables.push(Titled {
                title: heading(clock),
                explanation: format!("{id}, {}", unit(clock)),
                grid: grid(&here, clock, unicode),
            });
        }
    }
    tables
}

fn heading(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "Memory given, wall clock",
        Clock::Insn => "Memory given, instruction clock",
        Clock::InsnVmx => "Memory given, Intel instruction clock",
    }
}

fn unit(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "one region; median over boots",
        Clock::Insn | Clock::InsnVmx => "instructions for one region; mean over batches",
    }
}

fn grid(shown: &[&Given], clock: Clock, unicode: bool) -> Grid {
    let with_ratio = shown.iter().any(|one| one.ratio.is_some());
    let native = shown.first().and_then(|one| {
        let id = EnvironmentId::from_name(one.environment)?;
        native(id)
    });
    let ratio = native.filter(|_| with_ratio).map(|native| match unicode {
        true => format!("× {native}"),
        false => format!("x {native}"),
    });
    let columns = ["attach", "touch", "total", "by page"].map(str::to_owned);
    let mut grid = Grid::new("order       pages", columns.into_iter().chain(ratio));
    for one in shown {
        let time = |value: f64, look| Span::new(figures::time(value, clock, unicode), look);
        let mut cells = vec![
            time(one.attach, Look::Plain),
            time(one.touch, Look::Plain),
            time(one.total, Look::Strong),
            time(one.per_page, Look::Plain),
        ];
        if with_ratio {
            let ratio = one.ratio.map_or(String::new(), figures::quantity);
            cells.push(Span::new(ratio, Look::Faint));
        }
        grid.row(name(one), cells);
    }
    grid
}

/// `18   1 GiB  2m prefault`
fn name(one: &Given) -> String {
    let bytes = one.pages * 4096;
    let size = match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    };
    let pages = if one.page_bytes == 4096 { "4k" } else { "2m" };
    let how = if one.prefault { " prefault" } else { "" };
    format!("{:>2} {size:>7}  {pages}{how}", one.order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::populate;
    use trapline_stats::{Figure, Value};

    fn cell(environment: EnvironmentId, op: Op, estimate: f64) -> Cell {
        let clock = environment.clock();
        let figure = Figure {
            estimate,
            interval: None,
            min: estimate,
            max: estimate,
            p50: estimate,
            p90: estimate,
            p99: estimate,
            samples: 1,
            boots: 1,
            ratio: None,
            exits: None,
            host_cpu_ns: None,
            flags: Vec::new(),
        };
        Cell {
            environment,
            op,
            clock,
            unit: trapline_stats::value::unit(op, clock),
            value: Value::Measured(Box::new(figure)),
        }
    }

    fn report() -> Report {
        use EnvironmentId::{Host, Kvm};
        let mut report = Report {
            operations: populate::operations(),
            ..Report::default()
        };
        report.summary.cells = vec![
            cell(Host, Op::Attach9, 2_000.0),
            cell(Host, Op::Touch9, 510_000.0),
            cell(Kvm, Op::Attach9, 24_000.0),
            cell(Kvm, Op::Touch9, 1_000_000.0),
            cell(Kvm, Op::Attach9Huge, 24_000.0),
        ];
        report
    }

    #[test]
    fn the_whole_is_both_and_is_told_by_page() {
        let all = given(&report());
        assert_eq!(all.len(), 2, "one was never touched");
        let kvm = &all[1];
        assert_eq!((kvm.environment, kvm.total), ("kvm", 1_024_000.0));
        assert_eq!((kvm.per_page, kvm.ratio), (2_000.0, Some(2.0)));
        assert_eq!((all[0].ratio, all[0].pages), (None, 512));
    }

    #[test]
    fn a_table_fits_a_terminal() {
        let text = crate::terminal(&report(), &crate::Style::default());
        let row = "  9   2 MiB  4k     24.0 µs  1.00 ms  1.02 ms  2.00 µs    2.00";
        assert!(text.lines().any(|line| line == row), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
