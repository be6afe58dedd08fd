//! A timer device that interrupts the guest, on its own thread.
//!
//! It shares a page with the guest ([`trapline_abi::ticker`]) and stamps each expiry there before the
//! interrupt. A command takes effect before the guest's write returns: from then on the old page is not
//! accessed. Invalid pages stop the timer.

use crate::clock::{monotonic_ns, sleep_until, ticks, Reference};
use crate::sandbox::Role;
use crate::threads::spawn;
use crate::Failure;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use trapline_abi::platform::PAGE;
use trapline_abi::ticker::{at, slot, MIN_PERIOD_NS, VECTOR};
use trapline_interface::{IrqId, IrqLine, Region, VcpuId, Vm};

/// Longest period in ticks: ten seconds at 10 GHz.
const LONGEST_PERIOD: u64 = 100_000_000_000;

/// The device, as seen by the vCPU.
pub struct Ticker(Arc<Shared>);

struct Shared {
    memory: Arc<Region>,
    line: IrqLine,
    order: Mutex<Order>,
    ordered: Condvar,
}

/// State set by the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Order {
    /// Incremented by each command.
    number: u64,
    /// Page and period in ticks; `None` if stopped.
    work: Option<(u64, u64)>,
}

impl Ticker {
    /// Creates the device and starts its thread.
    ///
    /// # Errors
    /// The line or the thread cannot be created.
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
            theirs.run(&Reference::now())
        })?;
        Ok(Self(shared))
    }

    /// Shares the page at this address, or stops if the page or its period is invalid.
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
        // A poisoned value is still consistent.
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the period in the page, if page and period are valid.
    fn period(&self, page: u64) -> Option<u64> {
        let whole = page != 0 && page.is_multiple_of(PAGE) && self.has(page);
        let period = self.memory.load64(page + at::PERIOD as u64)?;
        (whole && (1..=LONGEST_PERIOD).contains(&period)).then_some(period)
    }

    fn has(&self, page: u64) -> bool {
        page.checked_add(PAGE)
            .is_some_and(|end| end <= self.memory.len() as u64)
    }

    /// Body of the thread.
    fn run(&self, reference: &Reference) -> ! {
        loop {
            let order = self.next();
            if let Some((page, period)) = order.work {
                let per_ns = reference.ticks_per_ns();
                let period_ns = (period as f64 / per_ns) as u64;
                self.tick(order.number, page, period_ns.max(MIN_PERIOD_NS), per_ns);
            }
        }
    }

    /// Waits until the timer runs.
    fn next(&self) -> Order {
        let order = self.order();
        let resting = |order: &mut Order| order.work.is_none();
        *self
            .ordered
            .wait_while(order, resting)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises expiries until the next command.
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

    /// Stamps an expiry and raises its interrupt; `None` on failure.
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
    const SPIN_POLLS: Duration = Duration::from_secs(20);

    /// A ticker whose interrupts are reported with the expiry number in the page.
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
    fn expiries_are_stamped_then_raised() {
        let (ticker, memory, raised) = ticker();
        ask(&memory, 1_000_000);
        let before = ticks();
        ticker.order(AT);
        for number in 1..=5 {
            assert_eq!(raised.recv_timeout(SPIN_POLLS), Ok(number));
        }
        let field = |number, offset| memory.load64(AT + (slot(number) + offset) as u64).unwrap();
        for number in 1..=5 {
            let way = [at::DUE, at::WOKE, at::MARKED].map(|offset| field(number, offset));
            assert!(way.is_sorted(), "{number}: {way:?}");
            assert!((before..ticks()).contains(&way[0]), "{number}: {way:?}");
        }
        let distance = field(5, at::DUE) - field(4, at::DUE);
        assert!(
            distance.abs_diff(1_000_000) < 100_000,
            "{distance} ticks apart"
        );
    }

    #[test]
    fn stop_takes_effect_at_once() {
        let (ticker, memory, raised) = ticker();
        ask(&memory, 1_000_000);
        ticker.order(AT);
        raised.recv_timeout(SPIN_POLLS).unwrap();
        ticker.order(0);
        raised.try_iter().count();
        let rest = raised.recv_timeout(Duration::from_millis(20));
        assert!(rest.is_err(), "{rest:?}");
        ticker.order(AT);
        assert_eq!(raised.recv_timeout(SPIN_POLLS), Ok(1), "it begins anew");
    }

    #[test]
    fn invalid_commands_stop_the_timer() {
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
        // Short periods are raised to the minimum.
        ask(&memory, 1);
        ticker.order(AT);
        let begun = monotonic_ns();
        for _ in 0..20 {
            raised.recv_timeout(SPIN_POLLS).unwrap();
        }
        assert!(monotonic_ns() - begun >= 18 * MIN_PERIOD_NS);
    }
}
