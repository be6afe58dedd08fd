//! Formats numbers.
//!
//! A noisy figure has three significant digits and the unit that makes it
//! short; an exact one has all digits before the point and few behind it ([`exact`]).

use trapline_abi::Unit;
use trapline_model::{Clock, Operation};
use trapline_stats::Figure;

/// Returns the name of a clock as a title.
pub const fn clock_title(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "Wall clock",
        Clock::Insn => "Instruction clock",
        Clock::InsnVmx => "Intel instruction clock",
        Clock::InsnArm64 => "Arm instruction clock",
    }
}

/// Returns the name of a clock, within a title.
pub const fn clock_name(clock: Clock) -> &'static str {
    match clock {
        Clock::Wall => "wall clock",
        Clock::Insn => "instruction clock",
        Clock::InsnVmx => "Intel instruction clock",
        Clock::InsnArm64 => "Arm instruction clock",
    }
}

/// A figure of `op` by `clock`; times bring their unit along (`1.41 ns`), the
/// units of rates and of instructions stand in the table's heading.
pub fn value(value: f64, op: impl Into<Operation>, clock: Clock) -> String {
    match (op.into().unit(), clock) {
        (Unit::Time, Clock::Wall) => nanoseconds(value),
        (Unit::Rate, Clock::Wall) => rate(value),
        _ => exact(value),
    }
}

/// Returns both ends of an interval, the unit once if it is the same: `2.50..12.6 ms`.
pub fn interval(low: f64, high: f64, op: impl Into<Operation>, clock: Clock) -> String {
    let op = op.into();
    let (low, high) = (value(low, op, clock), value(high, op, clock));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((low, unit)), Some((_, same))) if unit == same => format!("{low}..{high}"),
        _ => format!("{low}..{high}"),
    }
}

/// A rate with three significant digits, whose unit stands elsewhere.
pub fn rate(value: f64) -> String {
    if value.abs() < 1.0 {
        return quantity(value);
    }
    grouped(&three_digits(rounded(value)))
}

/// An estimate with as many digits as are known not to depend on the layout of memory.
pub fn estimate(figure: &Figure, op: impl Into<Operation>, clock: Clock) -> String {
    if clock.is_exact() && figure.layouts.is_none() {
        four_digits(figure.estimate)
    } else {
        value(figure.estimate, op, clock)
    }
}

/// The same of a time, with the unit of instructions, too.
pub fn estimate_with_unit(figure: &Figure, clock: Clock) -> String {
    if clock.is_exact() && figure.layouts.is_none() {
        format!("{} insn", four_digits(figure.estimate))
    } else {
        time_with_unit(figure.estimate, clock)
    }
}

/// Time on `clock` since some moment.
pub fn time(value: f64, clock: Clock) -> String {
    if clock.is_exact() {
        exact(value)
    } else {
        nanoseconds(value)
    }
}

/// The same with the unit of instructions, too.
pub fn time_with_unit(value: f64, clock: Clock) -> String {
    if clock.is_exact() {
        format!("{} insn", exact(value))
    } else {
        nanoseconds(value)
    }
}

/// Nanoseconds as microseconds, for a column whose heading has the unit.
pub fn microseconds(ns: f64) -> String {
    grouped(&three_digits(ns / 1000.0))
}

/// Nanoseconds with three significant digits, as ns, µs, ms or s.
pub fn nanoseconds(value: f64) -> String {
    let mut scaled = value;
    for unit in ["ns", "µs", "ms"] {
        // What would be rounded to a thousand belongs to the next unit.
        if scaled.abs() < 999.5 {
            return format!("{} {unit}", three_digits(scaled));
        }
        scaled /= 1000.0;
    }
    format!("{} s", grouped(&three_digits(scaled)))
}

/// Bytes as KiB or MiB.
pub fn bytes(value: u64) -> String {
    let kib = value as f64 / 1024.0;
    if kib < 9999.5 {
        format!("{} KiB", grouped(&format!("{kib:.0}")))
    } else {
        format!("{} MiB", grouped(&three_digits(kib / 1024.0)))
    }
}

/// At least three significant digits, none after the point from a hundred on.
fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        0.0 => 0,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// `value` with zeros after its third digit before the point.
fn rounded(value: f64) -> f64 {
    if value.abs() < 100.0 {
        return value;
    }
    let magnitude = value.abs().log10().floor() as i32;
    let unit = 10f64.powi(magnitude - 2);
    (value / unit).round() * unit
}

/// All digits before the point. Digits behind it come from dividing by the number of
/// operations and from taking off the loop: below a thousand two are kept, below a million
/// one, above none. Zeros at the end are left out.
pub fn exact(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 1e3 => 2,
        size if size < 1e6 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let text = match decimals {
        0 => text.as_str(),
        _ => text.trim_end_matches('0').trim_end_matches('.'),
    };
    grouped(if text == "-0" { "0" } else { text })
}

/// An exact figure of one layout of memory: four significant digits, as further ones may depend on the layout
/// ([`trapline_stats::layouts`]).
pub fn four_digits(value: f64) -> String {
    let size = value.abs();
    if size >= 1e4 {
        let unit = 10f64.powi(size.log10().floor() as i32 - 3);
        return exact((value / unit).round() * unit);
    }
    let decimals = match size {
        size if size >= 999.95 => 0,
        size if size >= 99.995 => 1,
        _ => 2,
    };
    let scale = 10f64.powi(decimals);
    exact((value * scale).round() / scale)
}

/// The smallest and the largest batch of an exact figure, `10,497.5..13,543`; `None` where
/// they are written alike.
pub fn range(min: f64, max: f64) -> Option<String> {
    range_of(exact, min, max)
}

/// The same with [`four_digits`].
pub fn short_range(min: f64, max: f64) -> Option<String> {
    range_of(four_digits, min, max)
}

fn range_of(text: fn(f64) -> String, min: f64, max: f64) -> Option<String> {
    let (min, max) = (text(min), text(max));
    (min != max).then(|| format!("{min}..{max}"))
}

/// A count with a comma at each thousand.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// Puts a comma at each thousand before the point.
fn grouped(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut text = sign.to_owned();
    for (index, digit) in digits.char_indices() {
        if index > 0 && index < whole && (whole - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a ratio: `0.012×`, `1.02×`, `26.4×`, `1,041×`.
pub fn times(ratio: f64) -> String {
    format!("{}×", quantity(ratio))
}

/// A number without a unit, of which three digits are enough and two where it
/// is small.
pub fn quantity(value: f64) -> String {
    match value {
        v if v >= 99.95 => grouped(&format!("{v:.0}")),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.0995 => format!("{v:.2}"),
        v if v >= 0.00995 => format!("{v:.3}"),
        v if v >= 0.00095 => format!("{v:.4}"),
        v if v > 0.0 => "<0.001".to_owned(),
        _ => "0".to_owned(),
    }
}

/// A share as a whole number of percent, below one with a digit behind the point.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size < 0.05 => "0%".to_owned(),
        size if size < 0.95 => format!("{percent:.1}%"),
        size if size < 999.5 => format!("{percent:.0}%"),
        _ => format!("{}%", grouped(&format!("{percent:.0}"))),
    }
}

/// Returns the level of an interval as a percentage without rounding it up: `93.75%`, `97.8%`.
pub fn level(level: f64) -> String {
    let hundredths = (level * 10_000.0 + 1e-6).floor() / 100.0;
    format!("{hundredths}%")
}

/// Lost boots of all, with the 95% interval of their share if there are any: `0 of 6`, `2 of 6 (4.3% to 78%)`.
pub fn lost((lost, all): (usize, usize)) -> String {
    match trapline_stats::share_interval(lost as u64, all as u64) {
        Some((low, high)) if lost > 0 => {
            format!("{lost} of {all} ({} to {})", percent(low), percent(high))
        }
        _ => format!("{lost} of {all}"),
    }
}

/// A part of a whole in percent, with as many digits as tell it from nothing and from
/// all: one in a million is never 0%, and all but one never 100%.
pub fn share(part: u64, of: u64) -> String {
    if part == 0 || of == 0 {
        return "0%".to_owned();
    }
    if part >= of {
        return "100%".to_owned();
    }
    let percent = part as f64 * 100.0 / of as f64;
    let rest = (of - part) as f64 * 100.0 / of as f64;
    // Two significant digits of the smaller of both.
    let magnitude = percent.min(rest).log10().floor() as i32;
    let decimals = (1 - magnitude).max(1) as usize;
    let text = format!("{percent:.decimals$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};
    use trapline_abi::Op;

    #[test]
    fn times_have_three_digits_and_a_fitting_unit() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (0.4123, "0.412 ns"),
            (1.409, "1.41 ns"),
            (9.999, "10.0 ns"),
            (118.6, "119 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (24_061.0, "24.1 µs"),
            (54_000_000.0, "54.0 ms"),
            (6_140_000_000.0, "6.14 s"),
            (7.2e12, "7,200 s"),
            (-0.25, "-0.250 ns"),
        ] {
            assert_eq!(nanoseconds(ns), text);
        }
    }

    #[test]
    fn instructions_keep_their_digits() {
        for (insn, text) in [
            (3_123.0, "3,123"),
            (134_123_456.75, "134,123,457"),
            (10_497.5, "10,497.5"),
            (3_264.096, "3,264.1"),
            (3_264.02, "3,264"),
            (120.0, "120"),
            (3_000_000.0, "3,000,000"),
            (6.0, "6"),
            (45.98, "45.98"),
            (45.5004, "45.5"),
            (-0.001, "0"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(exact(insn), text);
        }
    }

    #[test]
    fn figures_of_one_layout_have_four_digits() {
        for (insn, text) in [
            (3_264.02, "3,264"),
            (23_225.3, "23,230"),
            (134_123_456.75, "134,100,000"),
            (9_999.6, "10,000"),
            (999.96, "1,000"),
            (644.63, "644.6"),
            (45.98, "45.98"),
            (-1_234.5, "-1,235"),
            (0.0, "0"),
        ] {
            assert_eq!(four_digits(insn), text);
        }
        assert_eq!(short_range(3_264.096, 3_264.4), None);
        assert_eq!(
            short_range(10_497.0, 13_671.04).as_deref(),
            Some("10,500..13,670")
        );
    }

    #[test]
    fn a_range_is_shown_where_it_can_be_seen() {
        let text = range(10_497.0, 13_671.04);
        assert_eq!(text.as_deref(), Some("10,497..13,671"));
        assert_eq!(range(3_264.096, 3_264.096), None);
        assert_eq!(range(3_264.096, 3_264.099), None);
    }

    #[test]
    fn an_interval_has_its_unit_once() {
        let text = |low, high| interval(low, high, Op::BootMain, Clock::Wall);
        assert_eq!(text(2.5e6, 12.6e6), "2.50..12.6 ms");
        assert_eq!(text(820.0, 4500.0), "820 ns..4.50 µs");
        assert_eq!(
            interval(9000.0, 38_400.0, Op::Copy, Clock::Wall),
            "9,000..38,400"
        );
    }

    #[test]
    fn rates_ratios_and_shares() {
        assert_eq!(value(12_345.6, Op::Copy, Clock::Wall), "12,300");
        assert_eq!(value(998.4, Op::Copy, Clock::Wall), "998");
        assert_eq!(value(99.96, Op::Copy, Clock::Wall), "100");
        assert_eq!(value(1.996, Op::Copy, Clock::Wall), "2.00");
        assert_eq!(value(1.44, Op::Copy, Clock::Wall), "1.44");
        assert_eq!(value(0.0864, Op::Copy, Clock::Wall), "0.086");
        assert_eq!(times(1.0), "1.00×");
        assert_eq!(times(0.0118), "0.012×");
        assert_eq!(times(0.0064), "0.0064×");
        assert_eq!(times(0.0001), "<0.001×");
        assert_eq!(quantity(0.0), "0");
        assert_eq!(times(26.44), "26.4×");
        assert_eq!(times(1041.2), "1,041×");
        assert_eq!(percent(0.0301), "3%");
        assert_eq!(percent(0.004), "0.4%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(25.0), "2,500%");
        assert_eq!(bytes(2_202_009), "2,150 KiB");
        assert_eq!(bytes(41 << 20), "41.0 MiB");
    }

    #[test]
    fn no_share_is_rounded_to_nothing_or_to_all() {
        for (part, of, text) in [
            (0, 1_000_000, "0%"),
            (1, 1_000_000, "0.0001%"),
            (999_999, 1_000_000, "99.9999%"),
            (1_000_000, 1_000_000, "100%"),
            (1, 10_000, "0.01%"),
            (13, 10_000, "0.13%"),
            (1, 3, "33.3%"),
            (1, 2, "50%"),
            (9_988, 10_000, "99.88%"),
            (0, 0, "0%"),
        ] {
            assert_eq!(share(part, of), text);
        }
        assert_eq!(microseconds(52_149.0), "52.1");
        assert_eq!(microseconds(0.0), "0");
        assert_eq!(microseconds(1_234_567.0), "1,235");
        assert_eq!(time_with_unit(1_410.0, Clock::Wall), "1.41 µs");
        assert_eq!(time_with_unit(1_410.0, Clock::Insn), "1,410 insn");
    }

    proptest! {
        #[test]
        fn a_share_of_some_is_neither_nothing_nor_all(of in 2u64..1_000_000_000, at in 0.0f64..1.0) {
            let part = ((of as f64 * at) as u64).clamp(1, of - 1);
            let text = share(part, of);
            prop_assert!(text != "0%" && text != "100%", "{} of {} is {}", part, of, text);
        }

        #[test]
        fn a_time_is_short_whatever_it_is(ns in 0.0f64..1e12) {
            let text = nanoseconds(ns);
            prop_assert!(text.chars().count() <= 8, "{}", text);
            prop_assert!(!text.starts_with("1000"), "{}", text);
        }
    }
}
