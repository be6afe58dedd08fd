//! Output formats of continuous integration services: [`junit`] for test reports, [`bencher`] for figures
//! over commits, [`openmetrics`] for monitoring.
//!
//! They are independent of environments and verdicts; callers map theirs to outcomes. Text from guests and hosts is escaped.

mod bencher;
mod junit;
mod openmetrics;

pub use bencher::{bencher, Measure, Metric};
pub use junit::{junit, Case, JunitError, Outcome, Remark, Suite};
pub use openmetrics::{openmetrics, Gauge};
