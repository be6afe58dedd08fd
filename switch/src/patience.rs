//! CPU time that the notifications of a port take of the thread that forwards.
//!
//! The kernel wakes all that wait for an event in the thread that signals it, and a VMM may let any number wait (epoll(7)). A port
//! whose notifications take too long is stopped. The clock on the wall cannot tell that: a thread also loses its CPU on a busy
//! host. It only decides whether the CPU time of the next notifications is measured, which takes two system calls each.

use crate::cpu::time_of_thread;
use std::time::{Duration, Instant};

/// Time of a notification that few reach.
const LONG: Duration = Duration::from_micros(200);

/// Time in which CPU time is measured after a long notification.
const WATCH: Duration = Duration::from_secs(1);

/// Long notifications, and their CPU time, after which a port is stopped. One is never enough: time that a hypervisor takes from
/// this host may count as the thread's.
const LIMITS: [(u32, Duration); 2] = [
    (4, Duration::from_millis(10)),
    (2, Duration::from_millis(50)),
];

/// Part of the time that a port may use for long notifications.
const SHARE: u32 = 10;

/// CPU time that is not forgiven yet.
struct Debt {
    time: Duration,
    /// Long notifications in it.
    count: u32,
    /// The last one that was measured, and the end of the watch.
    last: Instant,
    end: Instant,
}

/// The costs of a port, whatever VMM it has.
#[derive(Default)]
pub struct Patience {
    debt: Option<Debt>,
}

/// A port whose notifications take too long.
#[derive(Debug)]
pub struct Exhausted {
    /// CPU time of the last one.
    pub cost: Duration,
    /// Time after which the port may be started again.
    pub rest: Duration,
}

impl Patience {
    /// Sends a notification.
    ///
    /// # Errors
    /// The last ones have taken too long.
    #[inline]
    pub fn spend(&mut self, notify: impl FnOnce()) -> Result<(), Exhausted> {
        let start = Instant::now();
        if self.debt.is_some() {
            let before = time_of_thread();
            notify();
            let cost = time_of_thread().saturating_sub(before);
            return self.charge(start, Duration::from_nanos(cost));
        }
        notify();
        if start.elapsed() > LONG {
            self.debt = Some(Debt {
                time: Duration::ZERO,
                count: 0,
                last: start,
                end: start + WATCH,
            });
        }
        Ok(())
    }

    /// Adds the cost of a notification at this time.
    #[cold]
    fn charge(&mut self, now: Instant, cost: Duration) -> Result<(), Exhausted> {
        let Some(debt) = &mut self.debt else {
            return Ok(());
        };
        let forgiven = now.duration_since(debt.last) / SHARE;
        debt.time = debt.time.saturating_sub(forgiven);
        debt.last = now;
        if debt.time.is_zero() {
            debt.count = 0;
        }
        if cost > LONG {
            debt.time += cost;
            debt.count += 1;
            debt.end = now + WATCH;
        } else if debt.count == 0 && now >= debt.end {
            self.debt = None;
            return Ok(());
        }
        let is_over = |(count, time)| debt.count >= count && debt.time >= time;
        if cost > LONG && LIMITS.into_iter().any(is_over) {
            Err(Exhausted {
                cost,
                rest: debt.time * SHARE,
            })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Returns how many of these costs, one every `period`, a port may have.
    fn endured(period: Duration, costs: &[Duration]) -> usize {
        let (mut patience, start) = (Patience::default(), Instant::now());
        patience
            .spend(|| std::thread::sleep(2 * LONG))
            .expect("one is not enough");
        let times = (1..).map(|index| start + 2 * MILLISECOND + period * index);
        let mut charges = times.zip(costs);
        let refused = charges.position(|(now, cost)| patience.charge(now, *cost).is_err());
        refused.unwrap_or(costs.len())
    }

    #[test]
    fn more_than_a_tenth_of_the_time_is_too_much() {
        let many = |cost: Duration| vec![cost; 10_000];
        assert_eq!(endured(MILLISECOND, &many(MILLISECOND)), 10);
        assert_eq!(endured(50 * MILLISECOND, &many(50 * MILLISECOND)), 1);
        assert_eq!(endured(20 * MILLISECOND, &many(20 * MILLISECOND)), 2);
        assert_eq!(endured(5 * MILLISECOND, &many(5 * MILLISECOND)), 3);
        assert_eq!(endured(MILLISECOND, &many(LONG)), 10_000);
        assert_eq!(endured(20 * MILLISECOND, &many(2 * MILLISECOND)), 10_000);
        // Short ones between long ones are no excuse.
        let mixed: Vec<_> = [MILLISECOND, LONG / 100].repeat(5_000);
        assert!(endured(MILLISECOND, &mixed) < 100);
    }

    #[test]
    fn waiting_costs_nothing() {
        let mut patience = Patience::default();
        for _ in 0..100 {
            let waited = patience.spend(|| std::thread::sleep(2 * LONG));
            waited.expect("no CPU time was used");
        }
    }

    #[test]
    fn watch_ends() {
        let mut patience = Patience::default();
        patience
            .spend(|| std::thread::sleep(2 * LONG))
            .expect("one is not enough");
        assert!(patience.debt.is_some());
        let later = Instant::now() + WATCH;
        patience.charge(later, Duration::ZERO).expect("short");
        assert!(patience.debt.is_none());
    }
}
