//! Decodes the stream of a guest that starts guests of its own. The init of its Linux reports programs as that of
//! a simulated machine does; the stream is the console of the VMM that runs the guest.

use crate::listener::{Emulator, MachineOutput, ProgramObserver};
use std::cell::RefCell;
use std::process::ExitStatus;
use std::rc::Rc;
use trapline_abi::record::Channel;
use trapline_host::process::{Exited, OutputHandler};
use trapline_host::Error;
use trapline_protocol::NoProbe;

/// Observes guests of one VMM, each of which runs the next of `programs`.
pub struct Nested<I> {
    vmm: Emulator,
    programs: Rc<RefCell<I>>,
    guest: Option<MachineOutput<OneProgram<I>>>,
}

impl<I: ProgramObserver> Nested<I> {
    /// Returns an observer of guests of `vmm` that run one of these programs each.
    pub fn new(vmm: Emulator, programs: I) -> Self {
        Self {
            vmm,
            programs: Rc::new(RefCell::new(programs)),
            guest: None,
        }
    }

    fn finish(&mut self, exited: Result<Exited, Error>) -> Result<(), Error> {
        match self.guest.take() {
            Some(guest) => guest.finish(exited).2,
            None => Ok(()),
        }
    }
}

impl<I: ProgramObserver> ProgramObserver for Nested<I> {
    fn expected(&self) -> usize {
        self.programs.borrow().expected()
    }

    /// Each level wraps the output of the level above it.
    fn byte_limit(&self) -> u64 {
        self.programs.borrow().byte_limit().saturating_mul(2)
    }

    fn start(&mut self, _: u64) {
        let program = OneProgram(Rc::clone(&self.programs));
        self.guest = Some(MachineOutput::new(self.vmm, program));
    }

    fn output(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Error> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        match channel {
            Channel::Console => guest.console(bytes, 0, &mut NoProbe),
            Channel::Errors => guest.errors(bytes),
            // Stages and counts of the VMM below the innermost one.
            Channel::Events => {}
        }
        guest.check()
    }

    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), Error> {
        self.finish(Ok(Exited {
            status,
            end: at,
            outlived_guest: false,
        }))
    }

    fn abort(&mut self, reason: &str) {
        // The reason is reported by the machine itself.
        let _same = self.finish(Err(Error::Machine(reason.to_owned())));
    }
}

/// Returns an observer of a machine whose programs run within guests of these VMMs, outermost first, or
/// on the machine itself without any.
pub fn within<'a>(
    hosts: &[Emulator],
    programs: &'a mut dyn ProgramObserver,
) -> Box<dyn ProgramObserver + 'a> {
    match hosts {
        [] => Box::new(programs),
        [outermost, inner @ ..] => Box::new(Nested::new(*outermost, within(inner, programs))),
    }
}

/// One program of a guest.
struct OneProgram<I>(Rc<RefCell<I>>);

impl<I: ProgramObserver> ProgramObserver for OneProgram<I> {
    fn expected(&self) -> usize {
        1
    }

    fn byte_limit(&self) -> u64 {
        self.0.borrow().byte_limit()
    }

    fn start(&mut self, exec: u64) {
        self.0.borrow_mut().start(exec);
    }

    fn output(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Error> {
        self.0.borrow_mut().output(channel, bytes)
    }

    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), Error> {
        self.0.borrow_mut().end(status, at)
    }

    fn abort(&mut self, reason: &str) {
        self.0.borrow_mut().abort(reason);
    }
}
