//! A timer that interrupts the guest, on a thread of its own, as a device's would.
//!
//! The guest shares a page with it ([`trapline_abi::ticker`]). Each expiry is stamped
//! there before its interrupt is raised. An order of the guest's - another page, or
//! none - is in force when the write that gives it returns: from then on nothing of
//! the old page is touched and nothing raised for it. What the guest says is checked
//! once, when it is said; all that it can do is not be interrupted.

use crate::clock::{monotonic_ns, sleep_until, ticks, Reference};
use crate::sandbox::Role;
use crate::threads::spawn;
use crate::Failure;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use trapline_abi::platform::PAGE;
use trapline_abi::ticker::{at, slot, LEAST_PERIOD_NS, VECTOR};
use trapline_interface::{IrqId, IrqLine, Region, VcpuId, Vm};

/// The longest period, in ticks: no clock counts faster than this in ten seconds.
const LONGEST_PERIOD: u64 = 100_000_000_000;

/// The guest's side of it.
pub struct Ticker(Arc<Shared>);

struct Shared {
    memory: Arc<Region>,
    line: IrqLine,
    order: Mutex<Order>,
    ordered: Condvar,
}

/// What the guest wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Order {
    /// Moves with each order.
    number: u64,
    /// The page, and the period in ticks; `None` for rest.
    work: Option<(u64, u64)>,
}

impl Ticker {
    /// Starts it for a machine with this memory. Its thread is confined if `sandbox` is
    /// set.
    ///
    /// # Errors
    /// No interrupt can be raised, or no thread started.
    pub fn start(vm: &impl Vm, memory: Arc<Region>, sandbox: bool) -> Result<Self, Failure> {
        let line = vm.irq_line(IrqId {
            vcpu: VcpuId(0),
            vector: VECTOR,
        })?;
        Self::on(line, memory, sandbox)
    }

    fn on(line: IrqLine, memory: Arc<Region>, sandbox: bool) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            memory,
            line,
            order: Mutex::default(),
            ordered: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        spawn("ticker", Role::Ticker, sandbox, move || {
            theirs.keep_time(&Reference::now());
        })?;
        Ok(Self(shared))
    }

    /// Takes an order: to share the page at this address, or to rest if there can be
    /// no page at it, or none of use.
    pub fn order(&self, page: u64) {
        let mut order = self.0.order();
        order.number += 1;
        order.work = self.0.period(page).map(|period| (page, period));
        drop(order);
        self.0.ordered.notify_one();
    }
}

impl Shared {
    fn order(&self) -> MutexGuard<'_, Order> {
        // Whoever panicked left an order that is whole.
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The period that the page at this address asks for, if it can be kept.
    fn period(&self, page: u64) -> Option<u64> {
        let whole = page != 0 && page.is_multiple_of(PAGE) && self.has(page);
        let period = self.memory.load64(page + at::PERIOD as u64)?;
        (whole && (1..=LONGEST_PERIOD).contains(&period)).then_some(period)
    }

    fn has(&self, page: u64) -> bool {
        page.checked_add(PAGE)
            .is_some_and(|end| end <= self.memory.len() as u64)
    }

    /// The thread's life.
    fn keep_time(&self, reference: &Reference) {
        loop {
            let order = self.next();
            if let Some((page, period)) = order.work {
                let per_ns = reference.ticks_per_ns();
                let period_ns = (period as f64 / per_ns) as u64;
                self.tick(order.number, page, period_ns.max(LEAST_PERIOD_NS), per_ns);
            }
        }
    }

    /// Waits for an order to work.
    fn next(&self) -> Order {
        let order = self.order();
        let resting = |order: &mut Order| order.work.is_none();
        *self
            .ordered
            .wait_while(order, resting)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises one expiry after the other until there is another order.
    fn tick(&self, order: u64, page: u64, period_ns: u64, per_ns: f64) {
        let begun = monotonic_ns();
        for number in 1.. {
            let due = begun + number * period_ns;
            sleep_until(due);
            let woke = ticks();
            let late = (monotonic_ns().saturating_sub(due) as f64 * per_ns) as u64;
            let mut now = self.order();
            if now.number != order {
                return;
            }
            if self.raise(page, number, woke - late, woke).is_none() {
                now.work = None;
                return;
            }
        }
    }

    /// Stamps an expiry and raises its interrupt; `None` if that cannot be done.
    fn raise(&self, page: u64, number: u64, due: u64, woke: u64) -> Option<()> {
        let slot = page + slot(number) as u64;
        let write = |offset: usize, value| self.memory.store64(slot + offset as u64, value);
        write(at::DUE, due)?;
        write(at::WOKE, woke)?;
        write(at::MARKED, ticks())?;
        self.memory.store64(page + at::RAISED as u64, number)?;
        self.line.trigger().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver};
    use std::time::Duration;

    const AT: u64 = PAGE;
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A ticker whose interrupts arrive in a channel, as the numbers that the page shows.
    fn ticker() -> (Ticker, Arc<Region>, Receiver<u64>) {
        let memory = Arc::new(Region::new(3 * PAGE as usize).unwrap());
        let (sender, receiver) = channel();
        let page = Arc::clone(&memory);
        let line = IrqLine::new(move || {
            let raised = page.load64(AT + at::RAISED as u64);
            let _gone_at_the_end = sender.send(raised.unwrap());
            Ok(())
        });
        (
            Ticker::on(line, Arc::clone(&memory), false).unwrap(),
            memory,
            receiver,
        )
    }

    fn ask(memory: &Region, period: u64) {
        memory.store64(AT + at::PERIOD as u64, period).unwrap();
    }

    #[test]
    fn each_expiry_is_stamped_and_then_raised() {
        let (ticker, memory, raised) = ticker();
        ask(&memory, 1_000_000);
        let before = ticks();
        ticker.order(AT);
        for number in 1..=5 {
            assert_eq!(raised.recv_timeout(PATIENCE), Ok(number));
        }
        let field = |number, offset| memory.load64(AT + (slot(number) + offset) as u64).unwrap();
        for number in 1..=5 {
            let way = [at::DUE, at::WOKE, at::MARKED].map(|offset| field(number, offset));
            assert!(way.is_sorted(), "{number}: {way:?}");
            assert!((before..ticks()).contains(&way[0]), "{number}: {way:?}");
        }
        let apart = field(5, at::DUE) - field(4, at::DUE);
        assert!(apart.abs_diff(1_000_000) < 100_000, "{apart} ticks apart");
    }

    #[test]
    fn nothing_is_raised_behind_the_order_to_rest() {
        let (ticker, memory, raised) = ticker();
        ask(&memory, 1_000_000);
        ticker.order(AT);
        raised.recv_timeout(PATIENCE).unwrap();
        ticker.order(0);
        raised.try_iter().count();
        let rest = raised.recv_timeout(Duration::from_millis(20));
        assert!(rest.is_err(), "{rest:?}");
        ticker.order(AT);
        assert_eq!(raised.recv_timeout(PATIENCE), Ok(1), "it begins anew");
    }

    #[test]
    fn orders_that_make_no_sense_are_orders_to_rest() {
        let (ticker, memory, raised) = ticker();
        for (page, period) in [
            (AT, 0),
            (AT, u64::MAX),
            (AT + 8, 1_000_000),
            (3 * PAGE, 1_000_000),
            (u32::MAX.into(), 1_000_000),
        ] {
            ask(&memory, period);
            ticker.order(page);
            let rest = raised.recv_timeout(Duration::from_millis(5));
            assert!(rest.is_err(), "{page:#x} {period}: {rest:?}");
        }
        // Too short a period is kept as the shortest that is.
        ask(&memory, 1);
        ticker.order(AT);
        let begun = monotonic_ns();
        for _ in 0..20 {
            raised.recv_timeout(PATIENCE).unwrap();
        }
        assert!(monotonic_ns() - begun >= 18 * LEAST_PERIOD_NS);
    }
}
