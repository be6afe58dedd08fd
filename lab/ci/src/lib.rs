//! Forms that services for continuous integration read: [`junit`] for those that show the
//! reports of tests, [`bencher`] for those that draw figures over commits.
//!
//! It knows no environment and no verdict: whoever has some says what each comes to. What
//! was said by guests and hosts is text here, and never structure.
#![forbid(unsafe_code)]

mod bencher;
mod junit;

pub use bencher::{bencher, Measure, Metric};
pub use junit::{junit, Case, JunitError, Outcome, Remark, Suite};
