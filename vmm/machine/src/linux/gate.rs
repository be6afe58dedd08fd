//! Where vCPUs wait while their machine is paused.

use crate::signals;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use trapline_interface::Kicker;

/// How long a vCPU may take to come: longer than any write to a console that is read.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often one that waits looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// The gate, and ways to call vCPUs to it.
#[derive(Debug)]
pub struct Gate {
    kickers: Vec<OnceLock<Kicker>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    waiting: usize,
}

impl Gate {
    /// An open one, for so many vCPUs.
    pub fn new(vcpus: u32) -> Self {
        Self {
            kickers: (0..vcpus).map(|_| OnceLock::new()).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// How vCPU `number` is called. It is called at once if the gate has been closed before
    /// it was there: whoever closes it calls those that are.
    pub fn introduce(&self, number: u32, kicker: Kicker) {
        let kicker = self.kickers[number as usize].get_or_init(|| kicker);
        if self.is_closed() {
            kicker.kick();
        }
    }

    /// A vCPU that was recalled passes, or waits until it may, or until a signal has said stop.
    pub fn pass(&self) {
        let mut state = self.lock();
        if !state.closed {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        while state.closed && signals::stopped().is_none() {
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting -= 1;
    }

    /// Calls all vCPUs, and closes. True if all have come.
    pub fn close(&self) -> bool {
        self.lock().closed = true;
        self.call();
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while state.waiting < self.kickers.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Lets them go on.
    pub fn open(&self) {
        self.lock().closed = false;
        self.changed.notify_all();
    }

    /// Whether vCPUs wait, or will.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn call(&self) {
        self.kickers
            .iter()
            .filter_map(OnceLock::get)
            .for_each(Kicker::kick);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Sender};
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use trapline_interface::Kick;

    /// Recalls a vCPU that waits for words.
    struct ByWord(Sender<()>);

    impl Kick for ByWord {
        fn mark(&self) {}
        fn interrupt(&self) {
            let _gone = self.0.send(());
        }
    }

    /// A vCPU that comes when it is called, and how it is called.
    fn vcpu(gate: &Arc<Gate>) -> (Kicker, JoinHandle<()>) {
        let (sender, calls) = channel();
        let gate = Arc::clone(gate);
        let thread = thread::spawn(move || {
            calls.recv().unwrap();
            gate.pass();
        });
        (Kicker::new(ByWord(sender)), thread)
    }

    #[test]
    fn a_pause_holds_who_was_called_until_it_ends() {
        let gate = Arc::new(Gate::new(1));
        let (kicker, vcpu) = vcpu(&gate);
        gate.introduce(0, kicker);
        assert!(gate.close() && gate.is_closed() && !vcpu.is_finished());
        gate.open();
        vcpu.join().unwrap();
        // Open, it holds nobody.
        gate.pass();
    }

    #[test]
    fn who_comes_to_be_during_a_pause_is_called_too() {
        let gate = Arc::new(Gate::new(1));
        let pause = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.close())
        };
        while !gate.is_closed() {
            thread::yield_now();
        }
        let (kicker, vcpu) = vcpu(&gate);
        gate.introduce(0, kicker);
        assert!(pause.join().unwrap(), "it came");
        gate.open();
        vcpu.join().unwrap();
    }
}
