//! Comparison of the timer thread of `trapline irq` (`host`, `own-timer`) with cyclictest: both run
//! alternately with the same interval, CPU and scheduling policy. Only medians are compared with a
//! bound, since load of the host varies; the distributions are printed.

use crate::judge::Verdict;
use serde_json::Value;
use trapline_host::cyclictest::{Cyclictest, Distribution, Setting};
use trapline_tests::run::Place;
use trapline_tests::settings;

/// Turns of each, and expiries of a turn.
const TURNS: u32 = 5;
const EXPIRIES: u32 = 4_000;
const INTERVAL_US: u32 = 1_000;
const PRIORITY: u8 = 10;

/// Prints both, with real-time and default scheduling (12).
pub fn beside_ours(place: &Place) {
    println!("12. A thread with a timer: cyclictest and ours, {TURNS} turns of {EXPIRIES} each");
    let cyclictest = match Cyclictest::fetched(&settings().cache) {
        Ok(cyclictest) => cyclictest,
        Err(why) => return println!("   skipped: {why}\n"),
    };
    println!(
        "   {}, every {INTERVAL_US} us, in us: p50, p90, p99, p99.9, max",
        cyclictest.origin()
    );
    let kinds = [
        (Some(PRIORITY), false, "fifo"),
        (None, false, "other, no slack"),
        (None, true, "other"),
    ];
    for (fifo, slack, name) in kinds {
        match turns(place, &cyclictest, fifo, slack) {
            Ok((theirs, ours)) => {
                println!("   {name:<15} cyclictest {}", format_percentiles(&theirs));
                println!("   {name:<15} trapline   {}", format_percentiles(&ours));
                // cyclictest rounds down to microseconds.
                let apart = theirs.0[0] + 0.5 - ours.0[0];
                let expected = if slack { SLACK_US } else { 0.0 };
                let alike = Verdict::of((apart - expected).abs() <= 2.0);
                println!("   {name:<15} medians {expected} us apart, within 2 us {alike}");
            }
            Err(why) => println!("   {name:<15} skipped: {why}"),
        }
    }
    println!();
}

/// Default timer slack of the kernel, which cyclictest leaves unchanged: its timer expires that much
/// later unless another timer is due earlier.
const SLACK_US: f64 = 50.0;

/// Percentiles, in microseconds, and the number of expiries with an interrupt.
struct Percentiles([f64; 5], u64);

fn format_percentiles(Percentiles(values, count): &Percentiles) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("{value:>8.1}")).collect();
    format!("{} of {count}", values.join(" "))
}

fn turns(
    place: &Place,
    cyclictest: &Cyclictest,
    fifo: Option<u8>,
    slack: bool,
) -> Result<(Percentiles, Percentiles), String> {
    let setting = Setting {
        interval: INTERVAL_US,
        loops: EXPIRIES,
        fifo,
        slack,
        cpu: last_cpu().ok_or("/proc/self/status has no list of CPUs")?,
    };
    let mut theirs = Distribution::default();
    let mut ours = Vec::new();
    for _ in 0..TURNS {
        let found = cyclictest.measure(&setting);
        theirs = theirs.merge(found.map_err(|error| error.to_string())?);
        ours.extend(our_turn(place, fifo)?);
    }
    ours.sort_unstable_by(f64::total_cmp);
    Ok((of_distribution(&theirs), of_values(&ours)))
}

fn of_distribution(all: &Distribution) -> Percentiles {
    let of = |share| all.permille(share) as f64;
    let values = [of(500), of(900), of(990), of(999), all.max as f64];
    Percentiles(values, all.count())
}

/// Returns the percentiles of ascending values.
fn of_values(all: &[f64]) -> Percentiles {
    let of = |share: usize| {
        let rank = (all.len() * share).div_ceil(1000).max(1);
        all.get(rank - 1).copied().unwrap_or_default()
    };
    let values = [500, 900, 990, 999, 1000].map(of);
    Percentiles(values, all.len() as u64)
}

/// Returns the latencies of one turn of ours: the centre of each interrupt's histogram bucket.
fn our_turn(place: &Place, fifo: Option<u8>) -> Result<Vec<f64>, String> {
    let sched = fifo.map_or("other".to_owned(), |priority| format!("fifo:{priority}"));
    let words = format!(
        "irq -q --env host --timer own --samples {EXPIRIES} --period {INTERVAL_US}us --pin exclusive \
         --sched {sched} --format json"
    );
    let result = place.run(&words.split(' ').collect::<Vec<_>>());
    let json: Value = serde_json::from_str(&result.stdout).map_err(|_| result.stderr.clone())?;
    let buckets = json["interrupts"][0]["histogram"].as_array();
    let buckets = buckets.ok_or_else(|| reason(&json))?;
    let mut all = Vec::new();
    for bucket in buckets {
        let number = |field: usize| bucket[field].as_f64().unwrap_or_default();
        let middle = (number(0) + number(1)) / 2.0;
        all.extend(std::iter::repeat_n(middle / 1e3, number(2) as usize));
    }
    Ok(all)
}

fn reason(json: &Value) -> String {
    let of_environment = &json["environments"]["host"]["reason"];
    of_environment.as_str().unwrap_or("not measured").to_owned()
}

/// Returns the CPU of `--pin`: the last that this process may use.
fn last_cpu() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.rsplit([',', '-']).next()?.trim().parse().ok()
}
