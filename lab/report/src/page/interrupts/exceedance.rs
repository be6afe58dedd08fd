//! The share of expiries that came later than any time, both logarithmic, so that one in a
//! hundred thousand is seen. All of a clock have the same axis.

use super::super::axis::{px, Axis};
use crate::figures;
use maud::{html, Markup};
use std::fmt::Write;
use trapline_stats::irq::Interrupts;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 150.0;
/// Ends of the axes.
const ACROSS: (f64, f64) = (46.0, 332.0);
const DOWN: (f64, f64) = (14.0, 116.0);

/// The picture of one among all of its clock.
pub fn drawn(found: &Interrupts, among: &[&Interrupts]) -> Markup {
    let (low, high) = ends(among);
    let across = Axis::new((low, high), ACROSS);
    let down = Axis::new((0.0, decades(among)), DOWN);
    let threshold = across.at(found.threshold.max(1.0).log10());
    let at_right = threshold > (ACROSS.0 + ACROSS.1) / 2.0;
    let unit = if found.clock.is_exact() {
        "insn"
    } else {
        "time"
    };
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words(found)) {
            path.grid d=(grid(&across, &down, (low, high))) {}
            @for share in 0..=decades(among) as u32 {
                text.t.end x=(ACROSS.0 - 5.0) y=(px(down.at(share.into()) + 3.5)) {
                    (of_all(share)) }
            }
            @for decade in (low as i32..=high as i32).step_by(apart(low, high)) {
                text.t x=(px(across.at(decade.into()).min(ACROSS.1 - 12.0))) y=(DOWN.1 + 16.0) {
                    (time(10f64.powi(decade), found))
                }
            }
            text.t x=(px((ACROSS.0 + ACROSS.1) / 2.0)) y=(HEIGHT - 4.0) { "lateness, " (unit) }
            text.t.start x="2" y="9" { "share later" }
            path.estimate d={ "M" (px(threshold)) " " (DOWN.0) "V" (DOWN.1) } {}
            text.t.start[!at_right].end[at_right] y="9"
                x=(px(threshold + if at_right { -3.0 } else { 3.0 })) {
                "threshold " (figures::time(found.threshold, found.clock)) }
            path.line d=(curve(found, &across, &down)) {}
        }
    }
}

fn words(found: &Interrupts) -> String {
    let all = &found.all;
    let most = all.lateness.map_or(0.0, |late| late.max);
    format!(
        "{}: share of {} expiries later than a time; the latest {}, {} missed",
        found.name(),
        figures::count(all.expiries),
        figures::time_with_unit(most, found.clock),
        figures::count(all.missed())
    )
}

/// Powers of ten between two that are written, so that there is room for them.
fn apart(low: f64, high: f64) -> usize {
    match high - low {
        few if few <= 5.0 => 1,
        some if some <= 10.0 => 2,
        _ => 3,
    }
}

/// The whole powers of ten from below the usual times to the latest.
fn ends(among: &[&Interrupts]) -> (f64, f64) {
    let times = || among.iter().filter_map(|found| found.all.lateness);
    let low = times()
        .map(|late| (late.p50.unwrap_or(late.min) / 10.0).max(1.0))
        .fold(f64::MAX, f64::min);
    let high = times().map(|late| late.max.max(10.0)).fold(10.0, f64::max);
    (low.min(high).log10().floor(), high.log10().ceil())
}

/// Powers of ten that the smallest share needs.
fn decades(among: &[&Interrupts]) -> f64 {
    let most = among.iter().map(|found| found.all.expiries).max();
    (most.unwrap_or(1).max(10) as f64).log10().ceil()
}

/// 100%, 10%, 1%, and so on.
fn of_all(decade: u32) -> String {
    match decade {
        0 => "100%".to_owned(),
        1 => "10%".to_owned(),
        more => format!("{:.*}%", more as usize - 2, 100.0 / 10f64.powi(more as i32)),
    }
}

fn time(value: f64, found: &Interrupts) -> String {
    figures::time(value, found.clock)
        .replace(".00", "")
        .replace(".0", "")
}

fn grid(across: &Axis, down: &Axis, (low, high): (f64, f64)) -> String {
    let mut path = String::new();
    for decade in low as i32..=high as i32 {
        let _ = write!(
            path,
            "M{} {}V{}",
            px(across.at(decade.into())),
            DOWN.0,
            DOWN.1
        );
    }
    for share in 0..10 {
        let y = down.at(share.into());
        if y < DOWN.1 || share == 0 {
            let _ = write!(path, "M{} {}H{}", ACROSS.0, px(y), ACROSS.1);
        }
    }
    let _ = write!(path, "M{} {}H{}", ACROSS.0, DOWN.1, ACROSS.1);
    path
}

/// Steps down from all to those that were missed, which are later than any time.
fn curve(found: &Interrupts, across: &Axis, down: &Axis) -> String {
    let all = found.all.expiries.max(1) as f64;
    let place = |left: u64| match left {
        0 => DOWN.1,
        left => down.at(-(left as f64 / all).log10()),
    };
    let mut left = found.all.expiries;
    let mut path = format!("M{} {}", ACROSS.0, px(place(left)));
    for bucket in &found.histogram {
        left = left.saturating_sub(bucket.count);
        let x = across.at((bucket.to as f64).max(1.0).log10());
        let _ = write!(path, "H{}V{}", px(x), px(place(left)));
    }
    if left > 0 {
        let _ = write!(path, "H{}", ACROSS.1);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_as_many_digits_as_they_need() {
        let texts: Vec<String> = (0..6).map(of_all).collect();
        assert_eq!(texts, ["100%", "10%", "1%", "0.1%", "0.01%", "0.001%"]);
    }
}
