//! Workload `irq` without a hypervisor: what a timer's interrupt costs a program of
//! Linux, in two ways.
//!
//! [`own`] is a thread with a timer, as cyclictest (rt-tests) has it. [`host`] has
//! the structure of a virtual machine without being one: a process that makes
//! blocking calls and keeps time for another, which it interrupts by a signal, as a
//! VMM does with its guest. [`signal`] is how interrupts arrive where the thread
//! does not simply sleep until its timer is due.

pub mod host;
pub mod own;
mod signal;

#[cfg(test)]
mod tests {
    use super::signal;
    use crate::clock::{TickClock, CALIBRATION};
    use trapline_abi::job::Wait;
    use trapline_abi::Interrupt;
    use trapline_workloads::irq::{Source, Taken, Ticking};
    use trapline_workloads::Reason;

    type Tick = fn(&TickClock, &Ticking, &mut Taken<'_>) -> Result<(), Reason>;

    /// Has `tick` take 20 expiries from number `first` on, a million nanoseconds apart,
    /// once asleep and once at work. Some have to be taken, with their own numbers;
    /// `check` sees each.
    pub fn take_some(source: Source, first: u64, tick: Tick, check: impl Fn(Wait, &Interrupt)) {
        const EXPIRIES: u32 = 20;
        let _turn = signal::TURN.lock();
        let mut clock = TickClock::start();
        clock.calibrate(CALIBRATION);
        for between in [Wait::Halt, Wait::Poll] {
            let ticking = Ticking {
                source,
                first,
                expiries: EXPIRIES,
                period: clock.ticks(1_000_000),
                between,
            };
            let mut slots = [Interrupt::default(); EXPIRIES as usize];
            let mut taken = Taken::new(&mut slots);
            tick(&clock, &ticking, &mut taken).unwrap();
            assert!(!taken.all().is_empty());
            for interrupt in taken.all() {
                let numbers = first..first + u64::from(EXPIRIES);
                assert!(numbers.contains(&interrupt.sequence), "{interrupt:?}");
                check(between, interrupt);
            }
        }
    }
}
