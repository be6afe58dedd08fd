//! `trapline boot`: runs a virtual machine whose console is this terminal, until the guest powers off.
//!
//! The machine is a process of `trapline-vmm`; this module has its command line ([`request`]), the
//! terminal ([`keys`], [`raw`]) and its events ([`events`]). A guest that reboots gets a new machine.

mod events;
mod keys;
mod raw;
mod request;
mod session;

use crate::args::BootArgs;
use events::{Ended, Events};
use request::Request;
use session::Session;
use trapline_runner::{Failure, Interrupt, Status};

/// Exit status of the VMM after a reboot of the guest, and after a stop by the API.
const RESET: i32 = 38;
const STOPPED: i32 = 39;

/// Boots, and waits until the machine ends.
///
/// # Errors
/// It cannot be created, or ends with an error.
pub fn boot(args: &BootArgs) -> Result<Status, Failure> {
    let request = Request::new(args)?;
    let interrupt = Interrupt::install()?;
    let mut events = Events::new(args.json);
    loop {
        events.starting(&request);
        let session = Session::start(&request, &interrupt)?;
        let ended = session.run(&mut events)?;
        events.ended(ended);
        match ended {
            Ended::Exited(RESET) if !args.no_reboot && !interrupt.is_requested() => {}
            ended => return status(ended),
        }
    }
}

fn status(ended: Ended) -> Result<Status, Failure> {
    match ended {
        Ended::Exited(0 | RESET | STOPPED) | Ended::Requested => Ok(Status::Done),
        Ended::Exited(2) => {
            Err(Failure::new("invalid options of the machine").status(Status::Usage))
        }
        Ended::Exited(status) => {
            let message = format!("the machine exited with status {status}");
            Err(Failure::new(message)
                .help("see its output above; trapline-vmm --help lists exit statuses"))
        }
        Ended::Killed(signal) => Err(Failure::new(format!(
            "the machine was killed by signal {signal}"
        ))),
    }
}
