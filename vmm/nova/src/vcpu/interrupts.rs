//! Interrupts of the local APIC, and halts.

use super::{Cause, NovaVcpu, Technology, VALID};
use crate::utcb::Parts;
use crate::{lines, timer};
use trapline_interface::Exit;

const INTERRUPTS_ON: u64 = 1 << 9;

/// Request for an exit as soon as the guest accepts interrupts (NOVA).
const WINDOW: u64 = 1 << 12;

impl<T: Technology> NovaVcpu<T> {
    /// Does what precedes an entry: continues the instruction in progress, and handles interrupts.
    #[inline(never)]
    pub(super) fn work(&mut self) -> Option<Exit> {
        if self.execution.is_some() {
            if let Some(exit) = self.continue_execution() {
                return Some(exit);
            }
        }
        // An exception to be injected precedes interrupts.
        if self.changed.contains(Parts::INJECTION) {
            return None;
        }
        self.interrupt()
    }

    /// Adds the time in NOVA's ready queue, which NOVA hides from it, to the guest's TSC.
    pub(super) fn show_hidden_time(&mut self) {
        if self.message().contains(Parts::TSC) && self.utcb.tsc_offset != 0 {
            self.utcb.tsc_offset = self.utcb.tsc_offset.wrapping_neg();
            self.changed = self.changed.with(Parts::TSC);
        }
    }

    /// Waits while the guest halts, then injects the interrupt of the highest priority or requests an exit for it.
    /// Returns an exit for a kick, or if no interrupt can end the halt.
    fn interrupt(&mut self) -> Option<Exit> {
        let Some(mut controllers) = self.controllers.as_mut() else {
            self.has_work = false;
            return None;
        };
        controllers.update();
        while self.is_halted && controllers.local.pending().is_none() {
            let deadline = controllers.local.deadline();
            if deadline.is_none() && !lines::exist() {
                return Some(Exit::Halted);
            }
            // The wait has the deadline; the timer's thread would make the vCPU exit once more.
            timer::set(None);
            timer::sleep(deadline);
            if let Some(exit) = self.kicked() {
                return Some(exit);
            }
            controllers = self.controllers.as_mut()?;
            controllers.update();
        }
        let apic = &mut controllers.local;
        timer::set(apic.deadline());
        self.has_work = false;
        let pending = apic.pending();
        self.show_hidden_time();
        let Some(vector) = pending else {
            self.close_window();
            return None;
        };
        let message = self.message();
        let undelivered = self.undelivered();
        let apic = &mut self.controllers.as_mut()?.local;
        let is_known = message.contains(Parts::FLAGS.with(Parts::SHADOW)) && undelivered == 0;
        self.changed = self.changed.with(Parts::INJECTION);
        if is_known && self.utcb.rflags & INTERRUPTS_ON != 0 && self.utcb.shadow == 0 {
            apic.accept(vector);
            self.is_halted = false;
            self.utcb.injection = VALID | u64::from(vector);
            // A further one waits for the window.
            self.has_work = apic.pending().is_some();
        } else {
            self.utcb.injection = WINDOW | undelivered;
        }
        None
    }

    /// Withdraws a request for an exit that has been granted: otherwise the guest would exit again at once.
    fn close_window(&mut self) {
        if self.cause() == Cause::InterruptWindow {
            self.utcb.injection = 0;
            self.changed = self.changed.with(Parts::INJECTION);
        }
    }

    /// Returns the event that the last entry was to inject, if a recall preceded that entry.
    fn undelivered(&self) -> u64 {
        if self.cause() == Cause::Recall && self.utcb.injection & VALID != 0 {
            self.utcb.injection & !WINDOW
        } else {
            0
        }
    }
}
