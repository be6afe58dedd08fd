//! Cost of giving a guest memory: a table for each configuration, with a row for each kind of
//! region. Attaching and touching are separate operations; their sum and the cost by page are
//! derived.

use crate::document::{Look, Section, Span, Table};
use crate::figures::{self, clock_name};
use crate::notes::Notes;
use crate::report::Report;
use serde::Serialize;
use std::collections::BTreeSet;
use trapline_abi::populate::MemoryRequest;
use trapline_abi::Op;
use trapline_model::{Clock, Config};
use trapline_stats::Cell;

/// One kind of region in one configuration, as far as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PopulatedRegion {
    #[serde(skip)]
    config: Config,
    environment: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    settings: String,
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
pub fn regions(report: &Report) -> Vec<PopulatedRegion> {
    let cells = report.cells();
    let configs: BTreeSet<&Config> = cells.iter().map(|cell| &cell.config).collect();
    let regions = configs.into_iter().flat_map(|config| {
        let requests = MemoryRequest::ALL.into_iter();
        let measured = requests.filter_map(|request| one(&cells, config, request));
        measured.collect::<Vec<_>>()
    });
    regions.collect()
}

fn one(cells: &[Cell], config: &Config, wish: MemoryRequest) -> Option<PopulatedRegion> {
    let (attach, unit) = figure(cells, config, wish.attach_op())?;
    let (touch, _) = figure(cells, config, wish.touch_op())?;
    let total = attach + touch;
    let native = Some(native(config)).filter(|native| native != config);
    let of_native = native.and_then(|native| one(cells, &native, wish));
    Some(PopulatedRegion {
        config: config.clone(),
        environment: config.environment.name(),
        settings: config.overrides.to_string(),
        clock: config.clock().name(),
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
fn native(config: &Config) -> Config {
    config.in_environment(config.clock().bare_linux())
}

fn figure(cells: &[Cell], config: &Config, op: Op) -> Option<(f64, &'static str)> {
    let its = |cell: &&Cell| cell.config == *config && cell.op == op;
    let cell = cells.iter().find(its)?;
    Some((cell.value.figure()?.estimate, cell.unit))
}

/// Returns a section for each configuration of one clock.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let unit = if clock.is_exact() {
        "instructions for one region; mean over batches"
    } else {
        "one region; median over boots"
    };
    let title = format!("Memory given, {}", clock_name(clock));
    let all = regions(report);
    let mut sections = Vec::new();
    for here in all.chunk_by(|one, other| one.config == other.config) {
        let config = &here[0].config;
        if config.clock() == clock {
            let mut section = Section::new(&title, format!("{}, {unit}", report.name(config)));
            section.table(table(here, clock));
            sections.push(section);
        }
    }
    if let Some(last) = sections.last_mut() {
        last.details([WORDS]);
        last.warnings(Notes::of_clock(report, cells, clock));
    }
    sections
}

/// Explains the columns.
const WORDS: &str = "attach: until the memory is there; touch: a word of each page is written; by \
                     page: of 4 KiB, regardless of the page size of the kernel";

fn table(shown: &[PopulatedRegion], clock: Clock) -> Table {
    let with_ratio = shown.iter().any(|one| one.ratio.is_some());
    let ratio = with_ratio.then(|| format!("× {}", clock.bare_linux()));
    let columns = ["attach", "touch", "total", "by page"].map(str::to_owned);
    let mut table = Table::new("order       pages", columns.into_iter().chain(ratio));
    for one in shown {
        let time = |value: f64, look| Span::new(figures::time(value, clock), look);
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
        table.row(name(one), cells);
    }
    table
}

/// `18   1 GiB  2m prefault`
fn name(one: &PopulatedRegion) -> String {
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
    use crate::fixture::{figure, measured};
    use trapline_model::{populate, EnvironmentId};

    fn cell(environment: EnvironmentId, op: Op, estimate: f64) -> Cell {
        measured(environment, op, figure(estimate))
    }

    fn report() -> Report {
        let mut report = Report {
            operations: populate::operations(),
            ..Report::default()
        };
        report.summary.cells = vec![
            cell(EnvironmentId::HOST, Op::Attach9, 2_000.0),
            cell(EnvironmentId::HOST, Op::Touch9, 510_000.0),
            cell(EnvironmentId::KVM, Op::Attach9, 24_000.0),
            cell(EnvironmentId::KVM, Op::Touch9, 1_000_000.0),
            cell(EnvironmentId::KVM, Op::Attach9Huge, 24_000.0),
        ];
        report
    }

    #[test]
    fn total_is_the_sum_of_attach_and_touch() {
        let all = regions(&report());
        assert_eq!(all.len(), 2, "one was never touched");
        let kvm = &all[1];
        assert_eq!((kvm.environment, kvm.total), ("kvm", 1_024_000.0));
        assert_eq!((kvm.per_page, kvm.ratio), (2_000.0, Some(2.0)));
        assert_eq!((all[0].ratio, all[0].pages), (None, 512));
    }

    #[test]
    fn table_fits_80_columns() {
        let text = crate::document::text::render(&report().document(), &crate::Style::default());
        let row = "  9   2 MiB  4k     24.0 µs  1.00 ms  1.02 ms  2.00 µs    2.00";
        assert!(text.lines().any(|line| line == row), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
