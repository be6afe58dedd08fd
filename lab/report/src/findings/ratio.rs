//! The ratio of two figures, with the limits that both intervals allow.

use crate::figures;
use trapline_model::Clock;
use trapline_stats::Figure;

/// Relation of two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Their intervals lie apart; on an exact clock, their printed digits differ.
    Differs,
    /// Their intervals overlap and allow only a difference that hardly matters; on an exact clock, their
    /// printed digits are equal.
    AsGood,
    /// Their intervals overlap and allow more than that.
    Unsure,
}

/// A difference up to this hardly matters.
pub const HARDLY: f64 = 1.1;

/// Fewer boots do not have an interval of about 95%: of five and five all of one side are above all of
/// the other, or below, in 2 of 252 cases without a difference, of four and four in 2 of 70.
pub const ENOUGH: usize = 5;

/// A ratio with the ends that both intervals allow.
pub struct Span {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
    clock: Clock,
    /// The lower level of both intervals.
    level: f64,
    /// Boots of the figure that has fewer.
    boots: usize,
}

impl Span {
    pub fn of(figure: &Figure, by: &Figure, clock: Clock) -> Self {
        let ends = |figure: &Figure| figure.interval.map(|one| (one.low, one.high));
        let (above, below) = (ends(figure), ends(by));
        let is_equal =
            clock.is_exact() && figures::exact(figure.estimate) == figures::exact(by.estimate);
        let estimate = if is_equal {
            1.0
        } else {
            figure.estimate / by.estimate
        };
        let boots = figure.boots.min(by.boots);
        let (low, high) = match (above, below) {
            _ if clock.is_exact() => (estimate, estimate),
            _ if boots < ENOUGH => (0.0, f64::INFINITY),
            (Some((low, high)), Some((least, most))) if least > 0.0 => (low / most, high / least),
            _ => (0.0, f64::INFINITY),
        };
        Self {
            estimate,
            low,
            high,
            clock,
            level: [figure, by]
                .map(|one| one.interval.map_or(0.0, |one| one.level))
                .into_iter()
                .fold(1.0, f64::min),
            boots,
        }
    }

    pub fn kind(&self) -> Kind {
        if self.low > 1.0 || self.high < 1.0 {
            Kind::Differs
        } else if self.low >= 1.0 / HARDLY && self.high <= HARDLY {
            Kind::AsGood
        } else {
            Kind::Unsure
        }
    }

    /// Returns a difference that factors would hide, as a percentage with two significant digits: `4.7%`.
    pub fn small_percentage(&self) -> Option<String> {
        let percent = (self.estimate - 1.0).abs() * 100.0;
        let is_small = (1.0 / HARDLY..HARDLY).contains(&self.estimate) && percent > 0.0;
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
        if self.boots < ENOUGH {
            format!(
                "{ENOUGH} boots have an interval, this run has {}",
                self.boots
            )
        } else {
            format!(
                "by both {} intervals, which are narrower with more boots",
                figures::level(self.level)
            )
        }
    }

    /// Returns the confidence in the ratio, as the end of a sentence.
    pub fn confidence(&self) -> String {
        if self.clock.is_exact() {
            return format!(", the same in {} boots", self.boots);
        }
        match self.boots {
            0 | 1 => return "; a single boot has no interval".to_owned(),
            few if few < ENOUGH => return format!("; {few} boots are too few for an interval"),
            _ => {}
        }
        let times = |ratio: f64| {
            if ratio.is_finite() {
                figures::times(ratio)
            } else {
                "any factor".to_owned()
            }
        };
        format!(
            "; {} to {} by both {} intervals",
            times(self.low),
            times(self.high),
            figures::level(self.level)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::figure_between as figure;
    use expect_test::expect;

    #[test]
    fn only_disjoint_intervals_are_a_difference() {
        let kind = |a: &Figure, b: &Figure| Span::of(a, b, Clock::Wall).kind();
        let ten = figure(9.9, 10.0, 10.1);
        assert_eq!(kind(&figure(19.0, 20.0, 21.0), &ten), Kind::Differs);
        assert_eq!(kind(&figure(9.8, 10.0, 10.2), &ten), Kind::AsGood);
        assert_eq!(kind(&figure(10.2, 10.3, 10.4), &ten), Kind::Differs);
        assert_eq!(kind(&figure(5.0, 20.0, 90.0), &ten), Kind::Unsure);
        let mut once = figure(19.0, 20.0, 21.0);
        once.interval = None;
        assert_eq!(kind(&once, &ten), Kind::Unsure);
        once.boots = 1;
        let single = Span::of(&once, &ten, Clock::Wall).confidence();
        expect!["; a single boot has no interval"].assert_eq(&single);
        assert_eq!(Span::of(&once, &ten, Clock::Insn).kind(), Kind::Differs);
        let mut few = figure(19.0, 20.0, 21.0);
        few.boots = 3;
        assert_eq!(kind(&few, &ten), Kind::Unsure);
        let few = Span::of(&few, &ten, Clock::Wall).confidence();
        expect!["; 3 boots are too few for an interval"].assert_eq(&few);
    }

    #[test]
    fn exact_figures_are_the_same_only_if_equal_as_printed() {
        let span = |a, b| Span::of(&figure(a, a, a), &figure(b, b, b), Clock::Insn);
        let percentage = |a, b| span(a, b).small_percentage();
        assert_eq!(span(3_264.02, 3_264.04).kind(), Kind::AsGood);
        assert_eq!(percentage(3_264.02, 3_264.04), None);
        for (a, b, expected) in [
            (3_264.0, 3_118.0, Some("4.7%")),
            (2_977.0, 2_966.0, Some("0.37%")),
            (3_264.1, 3_264.0, Some("0.0031%")),
            (2_966.0, 2_977.0, Some("0.37%")),
            (5_640.0, 3_264.0, None),
        ] {
            assert_eq!(span(a, b).kind(), Kind::Differs, "{a} {b}");
            assert_eq!(percentage(a, b).as_deref(), expected);
        }
    }
}
