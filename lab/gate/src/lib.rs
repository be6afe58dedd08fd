//! Regression gate for exact figures: equality of stored and new figures of the instruction clock.
//!
//! A [`Baseline`] holds the stored figures. [`compare()`] gives a verdict on each, [`FunctionChanges`] the
//! functions whose instruction counts differ, [`facts`] likely causes, [`tolerance`] allowed differences.
//! [`search`] bisects commits. All functions are pure.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod compare;
mod explained;
pub mod facts;
mod kept_profile;
mod layouts;
pub mod search;
pub mod tolerance;
mod unique;

pub use baseline::{Baseline, BaselineError};
pub use compare::{compare, Comparison, Outcome, Row, Verdict};
pub use facts::Cause;
pub use kept_profile::FunctionChanges;
pub use tolerance::{Tolerance, Tolerances};
