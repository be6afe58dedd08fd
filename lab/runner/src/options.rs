//! Options of boots.

use crate::counters::Counters;
use crate::irq_tracer::IrqTracers;
use std::time::Instant;

/// Options of the boots of one run. The default neither counts nor traces, and has no deadline.
#[derive(Clone, Copy, Default)]
pub struct BootOptions<'a> {
    /// Instruction counters, if enabled.
    pub counters: Option<&'a Counters>,
    /// Tracers of interrupt paths, if enabled.
    pub irq_tracers: Option<&'a IrqTracers>,
    /// Start no block on the wall clock after this instant.
    pub deadline: Option<Instant>,
    /// Run the boots of a block on the wall clock concurrently.
    pub concurrent: bool,
}

impl BootOptions<'_> {
    /// Returns whether the deadline has passed.
    pub fn is_expired(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }
}
