//! Interrupts of the local APIC, and halts.

use super::now;
use super::{parts, NovaVcpu, VALID};
use crate::timer;
use crate::utcb::Parts;
use trapline_interface::Exit;

const INTERRUPTS_ON: u64 = 1 << 9;

/// Request for an exit as soon as the guest accepts interrupts (NOVA).
const WINDOW: u64 = 1 << 12;

impl NovaVcpu {
    /// Waits while the guest halts, then injects the interrupt of the highest priority or requests an exit for it.
    /// Returns an exit if no interrupt can end the halt.
    #[inline(never)]
    pub(super) fn interrupt(&mut self) -> Option<Exit> {
        let apic = self.apic.as_mut()?;
        apic.expire(now());
        while self.is_halted && apic.pending().is_none() {
            let Some(deadline) = apic.deadline() else {
                return Some(Exit::Halted);
            };
            timer::sleep(deadline);
            apic.expire(now());
        }
        timer::set(apic.deadline());
        self.may_interrupt = false;
        // NOVA hides time in its ready queue from the guest's TSC.
        let message = parts(self.utcb.exit);
        if message.contains(Parts::TSC) && self.utcb.tsc_offset != 0 {
            self.utcb.tsc_offset = self.utcb.tsc_offset.wrapping_neg();
            self.changed = self.changed.with(Parts::TSC);
        }
        let Some(vector) = apic.pending() else {
            return None;
        };
        let is_known = message.contains(Parts::FLAGS.with(Parts::SHADOW));
        self.changed = self.changed.with(Parts::INJECTION);
        if is_known && self.utcb.rflags & INTERRUPTS_ON != 0 && self.utcb.shadow == 0 {
            apic.accept(vector);
            self.is_halted = false;
            self.utcb.injection = VALID | u64::from(vector);
            // A further one waits for the window.
            self.may_interrupt = apic.pending().is_some();
        } else {
            self.utcb.injection = WINDOW;
        }
        None
    }
}
