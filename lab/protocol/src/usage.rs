//! Resource usage of a VMM, sampled when its guest begins and ends an operation.

/// Resources used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time of the VMM's process, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// VM exits, as counted by the kernel.
    pub exits: Option<u64>,
}

/// Samples the usage of a VMM.
pub trait UsageProbe {
    /// Returns the usage at this moment.
    fn sample(&mut self) -> Usage;

    /// Notes what is there only while the guest runs: it has sent its first record.
    fn guest_started(&mut self) {}
}

/// A probe without data.
pub struct NoProbe;

impl UsageProbe for NoProbe {
    fn sample(&mut self) -> Usage {
        Usage::default()
    }
}
