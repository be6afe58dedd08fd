//! The share of expiries in time: its intervals as text, and the explanation of them.

use crate::figures;
use trapline_abi::interrupt::WINDOW;
use trapline_stats::irq::Interrupts;

/// Digits behind the point of a percentage, at most.
const MOST_DIGITS: usize = 6;

/// A larger number of windows that count as one is reported.
const MERGED: f64 = 1.5;

/// Returns an interval of shares in percent, rounded outwards. An end is written as 0% or
/// 100% only if it is; one that is too close to it to be written is `>0` or `<100`.
pub fn interval((low, high): (f64, f64)) -> String {
    format!("{}-{}%", end(low, f64::floor), end(high, f64::ceil))
}

fn end(share: f64, round: impl Fn(f64) -> f64) -> String {
    let rest = share.min(1.0 - share) * 100.0;
    if rest <= 0.0 {
        return if share > 0.5 { "100" } else { "0" }.to_owned();
    }
    // Two significant digits of the distance to the nearer end.
    let digits = (1.0 - rest.log10().floor()).max(1.0) as usize;
    let digits = digits.min(MOST_DIGITS);
    let unit = 10f64.powi(digits as i32);
    let rounded = round(share * 100.0 * unit) / unit;
    if rounded <= 0.0 {
        ">0".to_owned()
    } else if rounded >= 100.0 {
        "<100".to_owned()
    } else {
        let text = format!("{rounded:.digits$}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Explains the intervals of `shown`; nothing where there is none.
pub fn explanations(shown: &[&Interrupts]) -> Vec<String> {
    let known: Vec<_> = shown
        .iter()
        .filter_map(|one| Some((one, one.in_time_interval.as_ref()?)))
        .collect();
    if known.is_empty() {
        return Vec::new();
    }
    let mut words = vec![format!(
        "95% interval of the share in time, over all windows: late expiries may come in bursts of up to \
         a window ({} expiries), seen or not; --require is judged by it",
        figures::count(WINDOW.into())
    )];
    let merged = known
        .iter()
        .filter(|(_, known)| known.windows_per_block >= MERGED);
    words.extend(merged.map(|(one, known)| {
        format!(
            "{}: shares of neighbouring windows are alike, so {:.1} windows count as one",
            one.name(),
            known.windows_per_block
        )
    }));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn ends_are_rounded_outwards_and_never_to_all_or_nothing() {
        for (ends, text) in [
            ((0.690_34, 1.0), "69-100%"),
            ((0.693_4, 1.0), "69.3-100%"),
            ((0.999_631, 0.999_999), "99.963-99.9999%"),
            ((0.0, 0.5), "0-50%"),
            ((0.984, 0.991_01), "98.4-99.11%"),
            ((1e-12, 1.0 - 1e-12), ">0-<100%"),
        ] {
            assert_eq!(interval(ends), text);
        }
    }

    proptest! {
        #[test]
        fn a_printed_interval_holds_the_interval(low in 0.0f64..=1.0, high in 0.0f64..=1.0) {
            let (low, high) = (low.min(high), low.max(high));
            let text = interval((low, high));
            let (below, above) = text.trim_end_matches('%').split_once('-').unwrap();
            prop_assert_eq!(above == "100", high == 1.0);
            prop_assert_eq!(below == "0", low == 0.0);
            let below: f64 = below.trim_start_matches('>').parse().unwrap();
            let above: f64 = above.trim_start_matches('<').parse().unwrap();
            prop_assert!(below <= low * 100.0 + 1e-9 && high * 100.0 - 1e-9 <= above);
        }
    }
}
