//! Requests to disks: a row for each operation and environment, native files among them.

use crate::document::json::JsonInterval;
use crate::document::{Look, Section, Span, Table};
use crate::figures::{self, clock_name};
use crate::notes::Notes;
use crate::report::Report;
use serde::Serialize;
use trapline_abi::block::SMALL;
use trapline_model::{Clock, Config};
use trapline_stats::block::Requests;
use trapline_stats::order::Interval;
use trapline_stats::paired::PairedRatio;
use trapline_stats::{least_count, Cell};

/// One operation in one configuration.
#[derive(Debug, Serialize)]
pub struct JsonRequests {
    environment: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    settings: String,
    workload: &'static str,
    operation: &'static str,
    clock: &'static str,
    unit: &'static str,
    bytes: u32,
    depth: u32,
    boots: usize,
    count: usize,
    mean: f64,
    p50: f64,
    p50_interval: Option<JsonInterval>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    max: f64,
    rate: f64,
    rate_interval: Option<(f64, f64)>,
    rate_level: Option<f64>,
    megabytes: f64,
    rate_ratio: Option<f64>,
    rate_ratio_interval: Option<JsonInterval>,
}

/// Returns all measured operations, in table order.
pub fn json(report: &Report) -> Vec<JsonRequests> {
    let one = |requests: &Requests| {
        let ratio = ratio(report, requests);
        let interval = ratio.and_then(|ratio| ratio.interval);
        JsonRequests {
            environment: requests.config.environment.name(),
            settings: requests.config.overrides.to_string(),
            workload: requests.op.workload().name(),
            operation: requests.op.name(),
            clock: requests.clock.name(),
            unit: trapline_stats::value::unit(requests.op, requests.clock),
            bytes: requests.bytes,
            depth: requests.depth,
            boots: requests.boots,
            count: requests.count,
            mean: requests.mean,
            p50: requests.p50,
            p50_interval: requests.p50_interval.map(JsonInterval::from),
            p90: requests.p90,
            p99: requests.p99,
            p999: requests.p999,
            max: requests.max,
            rate: requests.rate,
            rate_interval: requests.rate_interval.map(|one| (one.low, one.high)),
            rate_level: requests.rate_interval.map(|one| one.level),
            megabytes: requests.megabytes(),
            rate_ratio: ratio.map(|ratio| ratio.estimate),
            rate_ratio_interval: interval.map(JsonInterval::from),
        }
    };
    report.requests.iter().map(one).collect()
}

/// Returns the ratio to the rate of a native program, paired within blocks; `None` for that program itself.
fn ratio(report: &Report, requests: &Requests) -> Option<PairedRatio> {
    let native = native(&requests.config);
    let mut all = report.requests.iter();
    let of_native = all.find(|one| one.config == native && one.op == requests.op)?;
    let ratio = requests.rate_ratio(of_native);
    ratio.filter(|_| requests.config != native)
}

fn native(config: &Config) -> Config {
    config.in_environment(config.clock().bare_linux())
}

/// Returns the requests of one clock, if any were measured.
pub fn sections(report: &Report, cells: &[Cell], clock: Clock) -> Vec<Section> {
    let of_clock = report.requests.iter().filter(|one| one.clock == clock);
    let shown: Vec<&Requests> = of_clock.collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let unit = if clock.is_exact() {
        "in instructions; a second is a thousand million"
    } else {
        "in microseconds"
    };
    let title = format!("Requests to a disk, {}", clock_name(clock));
    let mut section = Section::new(&title, unit);
    section.table(table(report, &shown, clock));
    section.details([WORDS]);
    section.details(missing_percentiles(&shown));
    section.details(facts(report, clock));
    section.warnings(Notes::of_clock(report, cells, clock));
    vec![section]
}

/// Returns cache mode and engine of the disk of each configuration.
fn facts(report: &Report, clock: Clock) -> Vec<String> {
    let all = report.summary.facts.iter();
    let of_clock = all.filter(|(config, _)| config.clock() == clock);
    let facts = of_clock.filter_map(|(config, facts)| {
        let (cache, engine) = (facts.get("disk-cache")?, facts.get("disk-engine")?);
        let name = report.name(config);
        Some(format!("{name}: cache {cache}; {engine}"))
    });
    facts.collect()
}

/// Explains the columns.
const WORDS: &str =
    "latency of every request of all boots, from submission to completion; served: \
                     requests of 4 KiB or MB of 1 MiB requests per second with requests in flight, \
                     median over boots; writes are not flushed, except write-4k-sync; ±: the larger \
                     side of the interval of p50 over boots, and of the ratio within blocks; other \
                     percentiles have none";

/// Returns a percentile of requests.
type Percentile = fn(&Requests) -> Option<f64>;

/// Explains the dashes in place of percentiles, if there are any.
fn missing_percentiles(shown: &[&Requests]) -> Option<String> {
    let percentiles: [(&str, usize, Percentile); 3] = [
        ("p90", 90_000, |one| one.p90),
        ("p99", 99_000, |one| one.p99),
        ("p99.9", 99_900, |one| one.p999),
    ];
    let missing = percentiles
        .iter()
        .filter(|(.., of)| shown.iter().any(|one| of(one).is_none()));
    let counts = missing
        .map(|(name, share, _)| format!("{name} {}", figures::count(least_count(*share) as u64)));
    let counts: Vec<String> = counts.collect();
    (!counts.is_empty()).then(|| {
        let counts = counts.join(", ");
        format!("–: fewer requests than a 95% interval of the percentile takes: {counts}")
    })
}

fn table(report: &Report, shown: &[&Requests], clock: Clock) -> Table {
    let ratios: Vec<_> = shown.iter().map(|one| ratio(report, one)).collect();
    let with_ratio = ratios.iter().any(Option::is_some);
    let last = with_ratio.then(|| format!("× {}", clock.bare_linux()));
    let columns = ["p50", "±", "p90", "p99", "p99.9", "max", "served"].map(str::to_owned);
    let of_ratio = with_ratio.then(|| "±".to_owned());
    let mut table = Table::new("request", columns.into_iter().chain(last).chain(of_ratio));
    for (one, ratio) in shown.iter().zip(ratios) {
        let time = |value: f64, look| Span::new(latency(value, clock), look);
        let known = |value: Option<f64>, look| value.map_or_else(Span::absent, |it| time(it, look));
        let mut cells = vec![
            time(one.p50, Look::Strong),
            Span::new(spread(one.p50_interval, one.p50), Look::Faint),
            known(one.p90, Look::Plain),
            known(one.p99, Look::Strong),
            known(one.p999, Look::Plain),
            time(one.max, Look::Plain),
            Span::new(served(one), Look::Strong),
        ];
        if with_ratio {
            let side = ratio.map_or_else(String::new, |it| spread(it.interval, it.estimate));
            let ratio = ratio.map_or_else(String::new, |it| figures::quantity(it.estimate));
            cells.extend([ratio, side].map(|text| Span::new(text, Look::Faint)));
        }
        table.row(
            format!("{} {}", one.op.name(), report.name(&one.config)),
            cells,
        );
    }
    // p90, p99.9, the spread of p50.
    table.with_optional(&[2, 4, 1])
}

fn spread(interval: Option<Interval>, estimate: f64) -> String {
    let side = interval.map(|it| it.larger_side(estimate));
    side.map_or_else(String::new, |side| format!("±{}", figures::percent(side)))
}

fn latency(value: f64, clock: Clock) -> String {
    if clock.is_exact() {
        figures::exact(value.round())
    } else {
        figures::microseconds(value)
    }
}

fn served(one: &Requests) -> String {
    match one.bytes {
        SMALL => figures::rate(one.rate),
        _ => format!("{} MB", figures::rate(one.megabytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_abi::block::Transfer;
    use trapline_model::EnvironmentId;

    fn report() -> Report {
        let one = |transfer: &Transfer, environment, slower: f64| Requests {
            config: EnvironmentId::into(environment),
            op: transfer.op,
            clock: Clock::Wall,
            bytes: transfer.bytes,
            depth: transfer.depth,
            boots: 5,
            count: 1000,
            mean: 20_000.0 * slower,
            p50: 19_000.0 * slower,
            p50_interval: None,
            p90: Some(27_000.0 * slower),
            p99: Some(38_000.0 * slower),
            p999: None,
            max: 4_038_000.0 * slower,
            rate: 41_374.0 / slower,
            rate_interval: Some(Interval {
                level: 0.75,
                low: 40_000.0,
                high: 42_000.0,
            }),
            rates: (0..5)
                .map(|block| (block, (41_374.0 + f64::from(block)) / slower))
                .collect(),
        };
        let of = |transfer: &Transfer| {
            [
                one(transfer, EnvironmentId::HOST, 1.0),
                one(transfer, EnvironmentId::QEMU_TCG, 2.0),
            ]
        };
        Report {
            operations: trapline_abi::block::operations(),
            requests: Transfer::ALL.iter().flat_map(of).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn table_fits_80_columns() {
        let text = crate::document::text::render(&report().document(), &crate::Style::default());
        let wide = |line: &&str| line.chars().count() > 80;
        assert_eq!(text.lines().find(wide), None, "{text}");
        let shown = |line: &&str| !line.starts_with(" read-4k-32 ") && !line.starts_with(" write-");
        let lines: Vec<_> = text.lines().filter(shown).collect();
        expect![[r#"
            Trapline

            Requests to a disk, wall clock: in microseconds
             request                  p50  ±   p99  p99.9    max     served  × host    ±
             read-4k-1 host          19.0     38.0      –  4,038     41,400
             read-4k-1 qemu-tcg      38.0     76.0      –  8,076     20,700    0.50  ±0%
             read-1m-1 host          19.0     38.0      –  4,038  43,400 MB
             read-1m-1 qemu-tcg      38.0     76.0      –  8,076  21,700 MB    0.50  ±0%
             read-1m-32 host         19.0     38.0      –  4,038  43,400 MB
             read-1m-32 qemu-tcg     38.0     76.0      –  8,076  21,700 MB    0.50  ±0%
               latency of every request of all boots, from submission to completion; served:
               requests of 4 KiB or MB of 1 MiB requests per second with requests in flight,
               median over boots; writes are not flushed, except write-4k-sync; ±: the
               larger side of the interval of p50 over boots, and of the ratio within
               blocks; other percentiles have none
               –: fewer requests than a 95% interval of the percentile takes: p99.9 3,688"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn json_has_every_operation_and_its_ratio() {
        let value = serde_json::to_value(json(&report())).unwrap();
        assert_eq!(value.as_array().unwrap().len(), 18);
        assert_eq!(value[1]["rate_ratio"], 0.5);
        assert!(value[0]["rate_ratio"].is_null());
        assert_eq!(value[1]["rate_ratio_interval"]["low"], 0.5);
        assert!(value[0]["p999"].is_null(), "of 1,000 requests");
    }
}
