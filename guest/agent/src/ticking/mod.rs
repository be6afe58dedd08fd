//! Workload `irq` for Linux processes.
//!
//! [`own`] is a thread with a timer, as in cyclictest (rt-tests). [`host`] has the structure of a
//! virtual machine: a process waits for a timer and interrupts another one by a signal, as a VMM does
//! with its guest. [`signal`] handles the signal of a thread that does not sleep until its timer
//! expires.

pub mod host;
pub mod own;
mod signal;

#[cfg(test)]
mod tests {
    use super::signal;
    use crate::clock::{TickClock, CALIBRATION};
    use trapline_abi::job::WaitMode;
    use trapline_abi::Interrupt;
    use trapline_workloads::irq::{InterruptLog, TimerSource, TimerWindow};
    use trapline_workloads::Reason;

    type Run = fn(&TickClock, &TimerWindow, &mut InterruptLog<'_>) -> Result<(), Reason>;

    /// Runs 20 expiries from number `first` on, at 1 ms, both sleeping and polling. Passes the
    /// recorded interrupts to `check`.
    pub fn check_interrupts(
        source: TimerSource,
        first: u64,
        run: Run,
        check: impl Fn(WaitMode, &Interrupt),
    ) {
        const EXPIRIES: u32 = 20;
        let _turn = signal::TEST_LOCK.lock();
        let mut clock = TickClock::start();
        clock.calibrate(CALIBRATION);
        for wait_mode in [WaitMode::Halt, WaitMode::Poll] {
            let window = TimerWindow {
                source,
                first,
                expiries: EXPIRIES,
                period: clock.ticks(1_000_000),
                wait_mode,
            };
            let mut slots = [Interrupt::default(); EXPIRIES as usize];
            let mut log = InterruptLog::new(&mut slots);
            run(&clock, &window, &mut log).unwrap();
            assert!(!log.entries().is_empty());
            for interrupt in log.entries() {
                let numbers = first..first + u64::from(EXPIRIES);
                assert!(numbers.contains(&interrupt.sequence), "{interrupt:?}");
                check(wait_mode, interrupt);
            }
        }
    }
}
