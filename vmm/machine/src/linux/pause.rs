//! Pausing of vCPUs.

use crate::signals;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use trapline_interface::Kicker;

/// Time limit for a vCPU to pause, which the host may delay.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of checks for a stop signal while paused.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Pause state, and kickers of all vCPUs.
#[derive(Debug)]
pub struct PauseGate {
    kickers: Vec<OnceLock<Kicker>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    waiting: usize,
}

impl PauseGate {
    /// Creates a gate for `vcpus` vCPUs, which run.
    pub fn new(vcpus: u32) -> Self {
        Self {
            kickers: (0..vcpus).map(|_| OnceLock::new()).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Registers the kicker of vCPU `number`, and kicks it if the VM is already paused.
    pub fn register(&self, number: u32, kicker: Kicker) {
        let kicker = self.kickers[number as usize].get_or_init(|| kicker);
        if self.is_closed() {
            kicker.kick();
        }
    }

    /// Waits while the VM is paused, until a stop signal.
    pub fn pass(&self) {
        let mut state = self.lock();
        if !state.closed {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        while state.closed && signals::stop_signal().is_none() {
            let waited = self.changed.wait_timeout(state, SIGNAL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting -= 1;
    }

    /// Pauses all vCPUs. Returns true if all have paused.
    pub fn close(&self) -> bool {
        self.lock().closed = true;
        self.call();
        let deadline = Instant::now() + PAUSE_TIMEOUT;
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

    /// Resumes all vCPUs.
    pub fn open(&self) {
        self.lock().closed = false;
        self.changed.notify_all();
    }

    /// Returns true if the VM is paused.
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

    /// Kicks a vCPU by a message.
    struct ByWord(Sender<()>);

    impl Kick for ByWord {
        fn mark(&self) {}
        fn interrupt(&self) {
            let _gone = self.0.send(());
        }
    }

    /// A vCPU that pauses when kicked, and its kicker.
    fn vcpu(gate: &Arc<PauseGate>) -> (Kicker, JoinHandle<()>) {
        let (sender, calls) = channel();
        let gate = Arc::clone(gate);
        let thread = thread::spawn(move || {
            calls.recv().unwrap();
            gate.pass();
        });
        (Kicker::new(ByWord(sender)), thread)
    }

    #[test]
    fn pause_holds_kicked_vcpus() {
        let gate = Arc::new(PauseGate::new(1));
        let (kicker, vcpu) = vcpu(&gate);
        gate.register(0, kicker);
        assert!(gate.close() && gate.is_closed() && !vcpu.is_finished());
        gate.open();
        vcpu.join().unwrap();
        gate.pass();
    }

    #[test]
    fn vcpu_registered_during_pause_is_kicked() {
        let gate = Arc::new(PauseGate::new(1));
        let pause = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.close())
        };
        while !gate.is_closed() {
            thread::yield_now();
        }
        let (kicker, vcpu) = vcpu(&gate);
        gate.register(0, kicker);
        assert!(pause.join().unwrap(), "it came");
        gate.open();
        vcpu.join().unwrap();
    }
}
