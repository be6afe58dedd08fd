//! System calls, which are hypercalls.

use super::{Pending, ProcessVcpu};
use crate::crossing::Crossing;
use crate::failure::denied;
use crate::rewrite::rewrite;
use trapline_abi::platform::HYPERCALL_REFUSED;
use trapline_interface::{Error, Exit, Result};

impl ProcessVcpu {
    /// Reads the registers behind a system call of which only the arguments are known.
    pub(super) fn complete_call(&mut self) -> Result<()> {
        if self.guest.is_partial && matches!(self.pending, Pending::Call) {
            return Err(Error::Unsupported(
                "read registers before a call is answered",
            ));
        }
        let completed = self.process.complete(&mut self.guest);
        completed.map_err(denied("read the guest's registers"))
    }

    pub(super) fn hypercall(&mut self) -> Option<Exit> {
        if self.config.crossing == Crossing::Rewrite && self.rewrite() {
            return None;
        }
        self.pending = Pending::Call;
        let r = &self.guest.registers.0;
        Some(Exit::Hypercall {
            number: self.guest.call_number,
            args: [r.rdi, r.rsi, r.rdx, r.r10],
        })
    }

    // Code of optimisation rewriting.

    /// Rewrites the system call that has stopped the process, and answers it as its handler will.
    fn rewrite(&mut self) -> bool {
        let registers = &mut self.guest.registers.0;
        let rewritten = rewrite(&mut self.shared.memory(), &self.cpu, registers.rip);
        if let Some(behind) = rewritten {
            (registers.rip, registers.rax) = (behind, HYPERCALL_REFUSED);
        }
        rewritten.is_some()
    }
}
