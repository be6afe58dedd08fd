//! Cost of giving a guest memory: a table for each configuration, with a row for each kind of
//! region. Attaching and touching are separate operations; their sum and the cost by page are
//! derived.

use crate::document::json::JsonInterval;
use crate::document::{Look, Section, Span, Table};
use crate::figures::{self, clock_name};
use crate::notes::Notes;
use crate::report::Report;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use trapline_abi::populate::MemoryRequest;
use trapline_abi::Op;
use trapline_model::{Clock, Config};
use trapline_stats::order::{median_interval, Interval};
use trapline_stats::paired::paired_ratio;
use trapline_stats::{Cell, Figure, Sorted};

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
    /// Interval of the total over boots, on the wall clock.
    #[serde(serialize_with = "interval")]
    total_interval: Option<Interval>,
    /// Times what it costs without virtualization: on the wall clock the median of the ratios within blocks.
    ratio: Option<f64>,
    /// Its interval, on the wall clock.
    #[serde(serialize_with = "interval")]
    ratio_interval: Option<Interval>,
    /// Block and total of each boot, on the wall clock.
    #[serde(skip)]
    totals: Vec<(u32, f64)>,
}

fn interval<S: Serializer>(interval: &Option<Interval>, to: S) -> Result<S::Ok, S::Error> {
    interval.map(JsonInterval::from).serialize(to)
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
    let totals = totals(&attach.medians, &touch.medians);
    let values: Vec<f64> = totals.iter().map(|(_, total)| *total).collect();
    let (attach, touch) = (attach.estimate, touch.estimate);
    let total = Sorted::new(values.clone()).map_or(attach + touch, |totals| totals.median());
    let native = Some(native(config)).filter(|native| native != config);
    let of_native = native.and_then(|native| one(cells, &native, wish));
    let ratio = of_native.and_then(|native| {
        if config.clock().is_exact() {
            return Some((total / native.total, None));
        }
        let paired = paired_ratio(&totals, &native.totals)?;
        Some((paired.estimate, paired.interval))
    });
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
        total_interval: median_interval(&values),
        ratio: ratio.map(|(ratio, _)| ratio),
        ratio_interval: ratio.and_then(|(_, interval)| interval),
        totals,
    })
}

/// Returns the sums of both in the blocks that have both.
fn totals(attach: &[(u32, f64)], touch: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let both = attach.iter().filter_map(|(block, attach)| {
        let (_, touch) = touch.iter().find(|(other, _)| other == block)?;
        Some((*block, attach + touch))
    });
    both.collect()
}

/// The row to compare with: a program of the same kernel. A bare machine is given nothing.
fn native(config: &Config) -> Config {
    config.in_environment(config.clock().bare_linux())
}

fn figure<'a>(cells: &'a [Cell], config: &Config, op: Op) -> Option<(&'a Figure, &'static str)> {
    let its = |cell: &&Cell| cell.config == *config && cell.op == op;
    let cell = cells.iter().find(its)?;
    Some((cell.value.figure()?, cell.unit))
}

/// Returns a section for each configuration of one clock.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let unit = if clock.is_exact() {
        "instructions for one region; mean over batches"
    } else {
        "one region; median over boots; ±: the larger side of the interval"
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
    let columns = ["attach", "touch", "total", "±", "by page"].map(str::to_owned);
    let spread = with_ratio.then(|| "±".to_owned());
    let columns = columns.into_iter().chain(ratio).chain(spread);
    let mut table = Table::new("order       pages", columns).with_optional(&[3, 6]);
    for one in shown {
        let time = |value: f64, look| Span::new(figures::time(value, clock), look);
        let mut cells = vec![
            time(one.attach, Look::Plain),
            time(one.touch, Look::Plain),
            time(one.total, Look::Strong),
            Span::new(side(one.total_interval, one.total), Look::Faint),
            time(one.per_page, Look::Plain),
        ];
        if with_ratio {
            let ratio = one.ratio.map_or(String::new(), figures::quantity);
            let spread = side(one.ratio_interval, one.ratio.unwrap_or_default());
            cells.extend([ratio, spread].map(|text| Span::new(text, Look::Faint)));
        }
        table.row(name(one), cells);
    }
    table
}

/// Returns the larger side of an interval.
fn side(interval: Option<Interval>, estimate: f64) -> String {
    let side = interval.map(|interval| interval.larger_side(estimate));
    side.map_or_else(String::new, |side| format!("±{}", figures::percent(side)))
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

    /// Returns a figure of three boots, of which those of one block are equally far from the median.
    fn cell(environment: EnvironmentId, op: Op, estimate: f64) -> Cell {
        let medians =
            [(0, 0.9), (1, 1.0), (2, 1.2)].map(|(block, times)| (block, times * estimate));
        let medians = medians.to_vec();
        measured(
            environment,
            op,
            Figure {
                medians,
                ..figure(estimate)
            },
        )
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
        let total = kvm.total_interval.unwrap();
        assert_eq!((total.low, total.high), (921_600.0, 1_228_800.0));
        let ratio = kvm.ratio_interval.unwrap();
        let is_two = |end: f64| (end - 2.0).abs() < 1e-9;
        assert!(is_two(ratio.low) && is_two(ratio.high), "within blocks");
        assert_eq!((all[0].ratio, all[0].pages), (None, 512));
    }

    #[test]
    fn table_fits_80_columns() {
        let text = crate::document::text::render(&report().document(), &crate::Style::default());
        let row = "  9   2 MiB  4k     24.0 µs  1.00 ms  1.02 ms  ±20%  2.00 µs    2.00  ±0%";
        assert!(text.lines().any(|line| line == row), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
