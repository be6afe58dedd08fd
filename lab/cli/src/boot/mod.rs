//! `trapline boot`: a machine to be used. Its console is this terminal, and it ends when
//! its guest switches it off.
//!
//! The machine is a process of `trapline-vmm`; here are its command line ([`request`]), the
//! terminal ([`keys`], [`raw`]) and what is told of it ([`events`]). A guest that
//! restarts gets a new machine.

mod events;
mod keys;
mod raw;
mod request;
mod session;

use crate::args::BootArgs;
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use events::Events;
use request::Request;
use session::{Ended, Session};

/// The exit status of a VMM whose guest has restarted, and of one that was told to stop.
const RESET: i32 = 38;
const STOPPED: i32 = 39;

/// Boots, and stays until the machine ends.
///
/// # Errors
/// It cannot be made, or ended otherwise than switched off.
pub fn boot(args: &BootArgs) -> Result<Status, Failure> {
    let request = Request::new(args)?;
    let interrupt = Interrupt::watch()?;
    let mut events = Events::new(args.json);
    loop {
        events.starting(&request);
        let session = Session::start(&request, &interrupt)?;
        let ended = session.run(&mut events)?;
        events.ended(ended);
        match ended {
            Ended::Exited(RESET) if !args.no_reboot && !interrupt.is_asked() => {}
            ended => return judge(ended, &interrupt),
        }
    }
}

fn judge(ended: Ended, interrupt: &Interrupt) -> Result<Status, Failure> {
    if let Some(signal) = interrupt.signal() {
        return Ok(Status::Interrupted(signal));
    }
    match ended {
        Ended::Exited(0 | RESET | STOPPED) | Ended::Told => Ok(Status::Done),
        Ended::Exited(2) => {
            Err(Failure::new("the machine was not understood").status(Status::Usage))
        }
        Ended::Exited(status) => {
            let told = format!("the machine ended with status {status}");
            Err(Failure::new(told)
                .help("what it said stands above; trapline-vmm --help lists them"))
        }
        Ended::Killed(signal) => Err(Failure::new(format!(
            "the machine was ended by signal {signal}"
        ))),
    }
}
