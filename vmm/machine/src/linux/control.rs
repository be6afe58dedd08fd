//! The thread that does what is done at the speed of people: what is typed goes to the
//! guest, what it says over its virtio console goes out, and random numbers go in.

use super::api::Api;
use super::Common;
use crate::sandbox::Role;
use crate::virtio::Slot;
use crate::{threads, Failure};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;
use trapline_monitor::virtio::{Console, Entropy};

/// How much is read of what was typed at once.
const PIECE: usize = 512;

/// Which console hears what is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The serial port.
    Serial,
    /// The virtio console.
    Virtio,
}

impl Listener {
    /// The one that is `/dev/console` for a kernel with this command line: the last that it
    /// names (Linux, Documentation/admin-guide/serial-console.rst).
    pub fn of(command_line: &str) -> Self {
        let mut words = command_line.split_ascii_whitespace().rev();
        let last = words.find_map(|word| word.strip_prefix("console="));
        match last {
            Some(name) if name.starts_with("hvc") => Self::Virtio,
            _ => Self::Serial,
        }
    }
}

/// Starts it, with a socket over which the machine is told what to do, if there is one.
///
/// # Errors
/// There can be no further thread.
pub fn start(common: Arc<Common>, api: Option<Api>, sandbox: bool) -> Result<(), Failure> {
    threads::spawn("control", Role::Control, sandbox, move || {
        Control::new(&common, api).run();
    })
}

struct Control<'a> {
    common: &'a Common,
    input: ManuallyDrop<File>,
    input_ended: bool,
    api: Option<Api>,
}

impl<'a> Control<'a> {
    fn new(common: &'a Common, api: Option<Api>) -> Self {
        // SAFETY: the file is never dropped, so that it closes nothing that is not its own; a
        // descriptor that is not open gives errors, which are handled.
        let input = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDIN_FILENO) });
        Self {
            common,
            input,
            input_ended: false,
            api,
        }
    }

    fn run(mut self) {
        let mut more = false;
        loop {
            let typed = self.wait(more);
            if typed {
                self.hear();
            }
            if let Some(api) = &mut self.api {
                api.serve(self.common);
            }
            self.common.slots.console.heard();
            more = self.serve_console();
            if self.common.slots.entropy.heard() || more {
                more |= serve_entropy(&self.common.slots.entropy);
            }
        }
    }

    /// Until something happens, or not at all if there is more to be done. True if
    /// something was typed, or never will be.
    fn wait(&self, more: bool) -> bool {
        let slots = &self.common.slots;
        let full = self.input_ended || self.common.inbox.room() == 0;
        // The kernel passes over a negative descriptor.
        let input = if full { -1 } else { self.input.as_raw_fd() };
        let mut requests = vec![
            readable(input),
            readable(slots.console.bell().as_raw_fd()),
            readable(slots.entropy.bell().as_raw_fd()),
        ];
        let told = self.api.iter().flat_map(Api::descriptors);
        requests.extend(told.map(|fd| readable(fd.as_raw_fd())));
        let timeout = if more { 0 } else { -1 };
        let count = requests.len() as libc::nfds_t;
        // SAFETY: as many requests are passed as are there.
        unsafe { libc::poll(requests.as_mut_ptr(), count, timeout) };
        requests[0].revents != 0
    }

    fn hear(&mut self) {
        let mut bytes = [0; PIECE];
        let room = self.common.inbox.room().min(PIECE);
        match self.input.read(&mut bytes[..room]) {
            Ok(count) if count > 0 => self.common.inbox.put(&bytes[..count]),
            Err(error) if is_passing(error.kind()) => {}
            _ => self.input_ended = true,
        }
        if self.common.listener == Listener::Serial {
            self.common.devices().arrived();
        }
    }

    fn serve_console(&self) -> bool {
        let (slot, common) = (&self.common.slots.console, self.common);
        slot.serve(|_, rings, memory| {
            let said = Console::transmit(rings, memory, &mut |bytes| {
                slot.counters.request(0, bytes.len());
                common.devices().console.put_all(bytes);
            })?;
            if common.listener != Listener::Virtio {
                return Ok(said);
            }
            let heard = Console::receive(rings, memory, &mut |room| common.inbox.get_all(room))?;
            Ok(said.and(heard))
        })
    }
}

fn serve_entropy(slot: &Slot<Entropy>) -> bool {
    slot.serve(|_, rings, memory| {
        Entropy::serve(rings, memory, &mut |bytes| {
            fill(bytes);
            slot.counters.request(bytes.len(), 0);
        })
    })
}

/// With random bytes, of which so few are always there once the host has booted.
fn fill(bytes: &mut [u8]) {
    // SAFETY: as many bytes may be written as there are.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_console_listens() {
        for (line, listener) in [
            ("", Listener::Serial),
            ("console=ttyS0 quiet", Listener::Serial),
            ("console=hvc0 console=ttyS0", Listener::Serial),
            ("console=ttyS0 console=hvc0 root=/dev/vda", Listener::Virtio),
        ] {
            assert_eq!(Listener::of(line), listener, "{line}");
        }
    }
}
