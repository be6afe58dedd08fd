//! Allowed differences of figures. The default is none, except for boots, which depend on every byte of the
//! machine's initramfs, and for means that differ only because timer interrupts of the machine fall into
//! other batches.

use trapline_abi::Workload;
use trapline_model::{names, Operation, Operations};

/// Allowed difference of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// In the unit of the figure.
    Absolute(f64),
    /// A share of the old figure.
    Share(f64),
}

/// Default tolerance of boots.
pub const OF_BOOTS: Tolerance = Tolerance::Share(0.02);

/// Default tolerance of a mean whose fastest batch did not change. A timer interrupt within one of 12 batches
/// changes their mean by 1 to 2%.
pub const OF_INTERRUPTS: Tolerance = Tolerance::Share(0.02);

impl Tolerance {
    /// Returns true if `new` is within the tolerance of `old`.
    fn allows(self, old: f64, new: f64) -> bool {
        let most = match self {
            Self::Absolute(most) => most,
            Self::Share(share) => share * old.abs(),
        };
        (new - old).abs() <= most
    }
}

/// Tolerances of operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Tolerances {
    /// The last set that contains an operation decides.
    chosen: Vec<(Operations, Tolerance)>,
}

impl Default for Tolerances {
    fn default() -> Self {
        Self {
            chosen: vec![(Workload::Boot.set().into(), OF_BOOTS)],
        }
    }
}

/// Error of parsing a tolerance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToleranceError {
    /// The syntax is invalid.
    #[error("'{0}' is no tolerance; say OPERATION=N (in its unit) or OPERATION=N%, like exits/port-out=2 or boot=5%")]
    Form(String),
    /// The operation is unknown.
    #[error(transparent)]
    Name(#[from] names::UnknownName),
}

/// Parses operations with a tolerance, like `exits/port-out=2` or `boot=5%`.
///
/// # Errors
/// The syntax is invalid, a name is unknown, or the number is negative or not finite.
pub fn parse(words: &str) -> Result<(Operations, Tolerance), ToleranceError> {
    let form = || ToleranceError::Form(words.to_owned());
    let (names, amount) = words.split_once('=').ok_or_else(form)?;
    let (number, of_share) = match amount.trim().strip_suffix('%') {
        Some(number) => (number, true),
        None => (amount, false),
    };
    let number: f64 = number.trim().parse().map_err(|_| form())?;
    if !number.is_finite() || number < 0.0 {
        return Err(form());
    }
    let tolerance = if of_share {
        Tolerance::Share(number / 100.0)
    } else {
        Tolerance::Absolute(number)
    };
    Ok((names.trim().parse()?, tolerance))
}

impl Tolerances {
    /// Sets the tolerance of these operations.
    pub fn add(&mut self, operations: Operations, tolerance: Tolerance) {
        self.chosen.push((operations, tolerance));
    }

    /// Returns true if `new` is within the tolerance of `operation`; without one, if it equals `old`.
    pub fn allow(&self, operation: &str, old: f64, new: f64) -> bool {
        let tolerance = self.chosen(operation);
        tolerance.map_or(new == old, |tolerance| tolerance.allows(old, new))
    }

    /// Like [`Self::allow`] if only batches with interrupts can have changed the figure: the default is
    /// [`OF_INTERRUPTS`].
    pub fn allow_interrupts(&self, operation: &str, old: f64, new: f64) -> bool {
        let tolerance = self.chosen(operation).unwrap_or(OF_INTERRUPTS);
        tolerance.allows(old, new)
    }

    /// Returns whether an operation has a tolerance of its own.
    pub fn has(&self, operation: &str) -> bool {
        self.chosen(operation).is_some()
    }

    fn chosen(&self, operation: &str) -> Option<Tolerance> {
        let operation = Operation::from_path(operation)?;
        let mut newest_first = self.chosen.iter().rev();
        let found = newest_first.find(|(set, _)| set.contains(operation));
        found.map(|(_, tolerance)| *tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn with(words: &[&str]) -> Tolerances {
        let mut tolerances = Tolerances::default();
        for words in words {
            let (operations, tolerance) = parse(words).unwrap();
            tolerances.add(operations, tolerance);
        }
        tolerances
    }

    #[test]
    fn only_boots_have_a_default_tolerance() {
        let none = Tolerances::default();
        assert!(none.allow("exits/port-out", 3182.0, 3182.0));
        assert!(!none.allow("exits/port-out", 3182.0, 3182.001));
        assert!(none.allow("boot/first-instruction", 1e6, 1.02e6));
        assert!(!none.allow("boot/first-instruction", 1e6, 1.021e6));
        assert!(!none.allow("of/another-version", 1.0, 2.0));
    }

    #[test]
    fn interrupts_have_a_default_tolerance_unless_one_is_given() {
        let none = Tolerances::default();
        assert!(none.allow_interrupts("exits/port-out", 3264.0, 3289.5));
        assert!(!none.allow_interrupts("exits/port-out", 3264.0, 3330.0));
        let some = with(&["exits/port-out=0", "exits/cpuid=5%"]);
        assert!(!some.allow_interrupts("exits/port-out", 3264.0, 3264.5));
        assert!(some.allow_interrupts("exits/cpuid", 1000.0, 1050.0));
    }

    #[test]
    fn the_last_tolerance_decides() {
        let some = with(&["exits=1%", "exits/port-out=2", "boot = 0"]);
        assert!(some.allow("exits/port-out", 1000.0, 998.0));
        assert!(!some.allow("exits/port-out", 1000.0, 997.0));
        assert!(some.allow("exits/cpuid", 1000.0, 990.0));
        assert!(!some.allow("basic/getpid", 1000.0, 1001.0));
        assert!(!some.allow("boot/first-instruction", 1e6, 1e6 + 1.0));
    }

    #[test]
    fn invalid_tolerances_are_refused() {
        for words in [
            "exits",
            "exits=",
            "exits=x%",
            "exits=-1",
            "exits=inf",
            "exits=NaN",
            "=1",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        let error = parse("port-out=1").unwrap_err().to_string();
        expect!["unknown workload or operation 'port-out'; did you mean 'exits/port-out'?"]
            .assert_eq(&error);
    }
}
