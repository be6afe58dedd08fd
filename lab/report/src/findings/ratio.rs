//! The ratio of two figures, with the limits that a test of their boots allows.

use crate::figures;
use trapline_model::Clock;
use trapline_stats::difference::{difference, Difference, LEAST_BOOTS};
use trapline_stats::verdict::Settings;
use trapline_stats::Figure;

/// Relation of two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The interval of the ratio excludes 1; on an exact clock, the figures differ by more than layouts of memory do.
    Differs,
    /// The interval allows only a difference within the margin of `trapline compare`; on an exact clock, the figures are
    /// equal within layouts of memory.
    AsGood,
    /// Neither.
    Unsure,
}

/// Largest ratio that is written as a percentage.
pub const SMALL: f64 = 1.1;

/// Relative difference of exact figures that other sizes of memory and places of code make without a change of what is
/// measured (docs/statistics.md).
pub const LAYOUT: f64 = 0.001;

/// Returns whether exact figures differ by no more than layouts of memory make them: those that were measured, else
/// [`LAYOUT`].
fn is_of_layout(figure: &Figure, by: &Figure) -> bool {
    match (figure.layouts, by.layouts) {
        (Some(one), Some(other)) => one.min <= other.max && other.min <= one.max,
        _ => (figure.estimate / by.estimate - 1.0).abs() <= LAYOUT,
    }
}

/// A ratio with the ends that a test allows.
pub struct Span {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
    clock: Clock,
    /// The test's ratio and interval, on the wall clock.
    difference: Option<Difference>,
    /// Boots of the figure that has fewer.
    boots: usize,
}

impl Span {
    pub fn of(figure: &Figure, by: &Figure, clock: Clock) -> Self {
        let quotient = figure.estimate / by.estimate;
        let boots = figure.boots.min(by.boots);
        let difference = if clock.is_exact() {
            None
        } else {
            difference(&figure.medians, &by.medians)
        };
        let (estimate, low, high) = match difference {
            _ if clock.is_exact() && is_of_layout(figure, by) => (1.0, 1.0, 1.0),
            _ if clock.is_exact() => (quotient, quotient, quotient),
            Some(found) => (found.estimate, found.interval.low, found.interval.high),
            None => (quotient, 0.0, f64::INFINITY),
        };
        Self {
            estimate,
            low,
            high,
            clock,
            difference,
            boots,
        }
    }

    pub fn kind(&self) -> Kind {
        let margin = 1.0 + Settings::default().margin;
        if self.low > 1.0 || self.high < 1.0 {
            Kind::Differs
        } else if self.low >= 1.0 / margin && self.high <= margin {
            Kind::AsGood
        } else {
            Kind::Unsure
        }
    }

    /// Returns a difference that factors would hide, as a percentage with two significant digits: `4.7%`.
    pub fn small_percentage(&self) -> Option<String> {
        let percent = (self.estimate - 1.0).abs() * 100.0;
        let is_small = (1.0 / SMALL..SMALL).contains(&self.estimate) && percent > 0.0;
        let decimals = (1.0 - percent.log10().floor()).max(0.0) as usize;
        is_small.then(|| format!("{percent:.decimals$}%"))
    }

    /// Returns the ends of the ratio in brackets, if they are known.
    pub fn range(&self) -> String {
        if self.high.is_finite() {
            format!(
                " ({} to {} times)",
                figures::quantity(self.low),
                figures::quantity(self.high)
            )
        } else {
            String::new()
        }
    }

    /// Returns what makes an unsure ratio surer, as a sentence without its full stop.
    pub fn remedy(&self) -> String {
        match self.difference {
            None => format!(
                "a comparison in words needs {LEAST_BOOTS} boots of each, this run has {}",
                self.boots
            ),
            Some(found) => format!(
                "by the {} interval{}, which is narrower with more boots",
                figures::level(found.interval.level),
                paired(&found)
            ),
        }
    }

    /// Returns the confidence in the ratio, as the end of a sentence.
    pub fn confidence(&self) -> String {
        if self.clock.is_exact() {
            return format!(", the same in {} boots", self.boots);
        }
        match (self.difference, self.boots) {
            (Some(found), _) => format!(
                "; {} to {} by the {} interval{}",
                figures::times(self.low),
                figures::times(self.high),
                figures::level(found.interval.level),
                paired(&found)
            ),
            (None, 0 | 1) => "; a single boot has no interval".to_owned(),
            (None, few) => format!("; {few} boots are too few for an interval"),
        }
    }
}

/// Returns how boots were compared, if within blocks.
fn paired(found: &Difference) -> &'static str {
    if found.is_paired {
        " of ratios within blocks"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::figure_between as figure;
    use expect_test::expect;
    use trapline_stats::layouts::Layouts;

    #[test]
    fn only_boots_apart_are_a_difference() {
        let kind = |a: &Figure, b: &Figure| Span::of(a, b, Clock::Wall).kind();
        let ten = figure(9.9, 10.0, 10.1);
        assert_eq!(kind(&figure(19.0, 20.0, 21.0), &ten), Kind::Differs);
        assert_eq!(
            kind(&figure(9.99, 10.0, 10.01), &figure(9.99, 10.0, 10.01)),
            Kind::AsGood
        );
        assert_eq!(
            kind(&figure(9.8, 10.0, 10.2), &ten),
            Kind::Unsure,
            "up to 3%"
        );
        assert_eq!(kind(&figure(10.2, 10.3, 10.4), &ten), Kind::Differs);
        assert_eq!(kind(&figure(5.0, 20.0, 90.0), &ten), Kind::Unsure);
        let mut few = figure(19.0, 20.0, 21.0);
        few.medians.truncate(1);
        few.boots = 1;
        assert_eq!(kind(&few, &ten), Kind::Unsure);
        let single = Span::of(&few, &ten, Clock::Wall).confidence();
        expect!["; a single boot has no interval"].assert_eq(&single);
        assert_eq!(Span::of(&few, &ten, Clock::Insn).kind(), Kind::Differs);
        few.boots = 3;
        let few = Span::of(&few, &ten, Clock::Wall).confidence();
        expect!["; 3 boots are too few for an interval"].assert_eq(&few);
    }

    #[test]
    fn measured_layouts_tell_which_figures_are_the_same() {
        let of = |figures: &[f64]| Figure {
            layouts: Layouts::of(figures),
            ..figure(figures[0], figures[0], figures[0])
        };
        let kind = |a: &[f64], b: &[f64]| Span::of(&of(a), &of(b), Clock::Insn).kind();
        // One instruction of 3,264, in each layout.
        assert_eq!(
            kind(&[3_265.0, 3_265.0], &[3_264.0, 3_264.0]),
            Kind::Differs
        );
        assert_eq!(kind(&[5_499.0, 5_480.0], &[5_490.0, 5_510.0]), Kind::AsGood);
        // One of them has one layout.
        assert_eq!(kind(&[3_265.0], &[3_264.0, 3_264.0]), Kind::AsGood);
    }

    #[test]
    fn exact_figures_are_the_same_within_what_layout_moves() {
        let span = |a, b| Span::of(&figure(a, a, a), &figure(b, b, b), Clock::Insn);
        let percentage = |a, b| span(a, b).small_percentage();
        for (a, b) in [(3_264.02, 3_264.04), (2_966.0, 2_965.0), (3_264.1, 3_264.0)] {
            assert_eq!(span(a, b).kind(), Kind::AsGood);
            assert_eq!(percentage(a, b), None);
        }
        for (a, b, expected) in [
            (3_264.0, 3_118.0, Some("4.7%")),
            (2_977.0, 2_966.0, Some("0.37%")),
            (2_966.0, 2_977.0, Some("0.37%")),
            (5_640.0, 3_264.0, None),
        ] {
            assert_eq!(span(a, b).kind(), Kind::Differs, "{a} {b}");
            assert_eq!(percentage(a, b).as_deref(), expected);
        }
    }
}
