//! The exact gate: figures of the instruction clock that were kept, against the
//! same figures now. What is exact needs no statistics, only equality.
//!
//! [`Baseline`] is what is kept, [`compare()`] says what became of each figure,
//! [`Explained`] which functions gained or lost, [`facts`] what else differs and so may be the cause, [`tolerance`] how much is
//! let pass, [`forms`] how all this is written. [`search`] finds the commit at
//! which something changed. Everything is pure.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod compare;
mod explained;
pub mod facts;
pub mod forms;
pub mod search;
pub mod tolerance;

pub use baseline::{Baseline, BaselineError};
pub use compare::{compare, Comparison, Outcome, Row, Verdict};
pub use explained::Explained;
pub use facts::Cause;
pub use tolerance::{Tolerance, Tolerances};
