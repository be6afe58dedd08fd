//! Interrupts for programs; `docs/json-workloads.md` describes this form.

use serde::Serialize;
use trapline_model::irq::Settings;
use trapline_stats::irq::{
    self, Bucket, ExpiryStats, Interrupts, LateInterrupt, Lateness, Point, Proof, Span, Window,
};

#[derive(Serialize)]
pub struct JsonInterrupts {
    environment: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    settings: String,
    workload: &'static str,
    operation: &'static str,
    clock: &'static str,
    unit: &'static str,
    boots: usize,
    period: Option<f64>,
    between: &'static str,
    load: String,
    pin: &'static str,
    sched: String,
    vcpus_per_cpu: u8,
    /// The largest lateness that a deadline permits, in the unit of the figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<f64>,
    threshold: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    require: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
    /// `met`, `not-met` or `not-proven`.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    /// Windows that would prove a requirement that is not proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    windows_to_prove: Option<u64>,
    summary: JsonSpread,
    /// Shares of the expiries, from 0 to 1.
    in_time_interval: Option<[f64; 2]>,
    windows_per_block: Option<f64>,
    first_windows: JsonSpread,
    rest: Option<JsonSpread>,
    windows: Vec<JsonWindow>,
    stages: Vec<JsonSpan>,
    total: JsonSpan,
    unexplained: f64,
    unstamped: Vec<&'static str>,
    disordered: u64,
    ahead: u64,
    found: Vec<JsonFound>,
    latest: Vec<JsonLate>,
    due_uncertainty: JsonDueUncertainty,
    early: u64,
    histogram_digits: u8,
    /// A bucket is three numbers: from, to, count.
    histogram: Vec<[u64; 3]>,
}

#[derive(Serialize)]
struct JsonDueUncertainty {
    p50: f64,
    max: f64,
}

#[derive(Serialize)]
struct JsonSpread {
    expiries: u64,
    count: u64,
    missed: u64,
    above: u64,
    in_time: u64,
    #[serde(flatten)]
    lateness: JsonLateness,
}

/// All of it is `null` where no interrupt came, a percentile where too few came.
#[derive(Default, Serialize)]
struct JsonLateness {
    mean: Option<f64>,
    sd: Option<f64>,
    min: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    p9999: Option<f64>,
    max: Option<f64>,
}

#[derive(Serialize)]
struct JsonWindow {
    boot: u32,
    window: u64,
    #[serde(flatten)]
    spread: JsonSpread,
}

#[derive(Serialize)]
struct JsonSpan {
    from: &'static str,
    to: &'static str,
    mean: f64,
    p50: f64,
    p99: Option<f64>,
    max: f64,
}

#[derive(Serialize)]
struct JsonFound {
    found: &'static str,
    count: u64,
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

#[derive(Serialize)]
struct JsonLate {
    boot: u32,
    expiry: u64,
    lateness: f64,
    woke: Option<f64>,
    marked: Option<f64>,
    entered: Option<f64>,
    done: Option<f64>,
    resumed: Option<f64>,
    found: &'static str,
}

impl JsonInterrupts {
    /// `interrupts`, made and judged by `settings`.
    pub fn new(interrupts: &Interrupts, settings: &Settings) -> Self {
        let Interrupts {
            config,
            op,
            clock,
            stages,
            ..
        } = interrupts;
        let (conditions, scheduling) = (&settings.conditions, settings.scheduling);
        let require = settings.require;
        let proof = require.map(|share| interrupts.proof(share));
        let interval = interrupts.in_time_interval.as_ref();
        Self {
            environment: config.environment.name(),
            settings: config.overrides.to_string(),
            workload: op.workload().name(),
            operation: op.name(),
            clock: clock.name(),
            unit: interrupts.unit,
            boots: interrupts.boots,
            period: interrupts.period,
            between: settings.idle(),
            load: conditions.loads.to_string(),
            pin: scheduling.pin.name(),
            sched: scheduling.sched.to_string(),
            vcpus_per_cpu: conditions.per_cpu.count(),
            bound: scheduling.sched.bound().map(|bound| bound.0 as f64),
            threshold: interrupts.threshold,
            require: require.map(|share| share.to_string()),
            met: proof.map(|proof| proof == Proof::Met),
            verdict: proof.map(verdict),
            windows_to_prove: match (proof, interval, require) {
                (Some(Proof::NotProven), Some(interval), Some(share)) => {
                    interval.windows_to_prove(share)
                }
                _ => None,
            },
            summary: (&interrupts.all).into(),
            in_time_interval: interval.map(|known| known.bursts.into()),
            windows_per_block: interval.map(|known| known.windows_per_block),
            first_windows: (&interrupts.first).into(),
            rest: interrupts.rest.as_ref().map(JsonSpread::from),
            windows: interrupts.windows.iter().map(JsonWindow::from).collect(),
            stages: stages.spans.iter().map(JsonSpan::from).collect(),
            total: (&stages.total).into(),
            unexplained: stages.unexplained(),
            unstamped: stages.unstamped.iter().map(|point| point.name()).collect(),
            disordered: stages.out_of_order,
            ahead: stages.early_wakeups,
            found: interrupts.found.iter().map(JsonFound::from).collect(),
            latest: interrupts.latest.iter().map(JsonLate::from).collect(),
            due_uncertainty: JsonDueUncertainty {
                p50: interrupts.due_uncertainty.p50,
                max: interrupts.due_uncertainty.max,
            },
            early: interrupts.early,
            histogram_digits: irq::DIGITS,
            histogram: interrupts.histogram.iter().map(bucket).collect(),
        }
    }
}

fn verdict(proof: Proof) -> &'static str {
    match proof {
        Proof::Met => "met",
        Proof::NotMet => "not-met",
        Proof::NotProven => "not-proven",
    }
}

fn bucket(bucket: &Bucket) -> [u64; 3] {
    [bucket.from, bucket.to, bucket.count]
}

impl From<&ExpiryStats> for JsonSpread {
    fn from(spread: &ExpiryStats) -> Self {
        Self {
            expiries: spread.expiries,
            count: spread.count,
            missed: spread.missed(),
            above: spread.above,
            in_time: spread.in_time(),
            lateness: spread.lateness.map(JsonLateness::from).unwrap_or_default(),
        }
    }
}

impl From<Lateness> for JsonLateness {
    fn from(late: Lateness) -> Self {
        Self {
            mean: Some(late.mean),
            sd: Some(late.sd),
            min: Some(late.min),
            p50: late.p50,
            p90: late.p90,
            p99: late.p99,
            p999: late.p999,
            p9999: late.p9999,
            max: Some(late.max),
        }
    }
}

impl From<&Window> for JsonWindow {
    fn from(window: &Window) -> Self {
        Self {
            boot: window.boot,
            window: window.number,
            spread: (&window.spread).into(),
        }
    }
}

impl From<&Span> for JsonSpan {
    fn from(span: &Span) -> Self {
        Self {
            from: span.from.name(),
            to: span.to.name(),
            mean: span.mean,
            p50: span.p50,
            p99: span.p99,
            max: span.max,
        }
    }
}

impl From<&(trapline_abi::CpuState, ExpiryStats)> for JsonFound {
    fn from((found, spread): &(trapline_abi::CpuState, ExpiryStats)) -> Self {
        let late = spread.lateness;
        Self {
            found: found.name(),
            count: spread.count,
            p50: late.and_then(|late| late.p50),
            p99: late.and_then(|late| late.p99),
            max: late.map(|late| late.max),
        }
    }
}

impl From<&LateInterrupt> for JsonLate {
    fn from(late: &LateInterrupt) -> Self {
        let at = |point: Point| {
            let mut points = late.points.iter();
            let found = points.find(|(known, _)| *known == point);
            found.map(|(_, at)| *at)
        };
        Self {
            boot: late.boot,
            expiry: late.sequence,
            lateness: late.lateness,
            woke: at(Point::Woke),
            marked: at(Point::Marked),
            entered: at(Point::Entered),
            done: at(Point::Done),
            resumed: at(Point::Resumed),
            found: late.found.name(),
        }
    }
}
