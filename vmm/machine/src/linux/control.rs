//! The control thread: console input and output, virtio-rng, and the control socket.

use super::api::Api;
use super::Common;
use crate::poll::readable;
use crate::sandbox::Role;
use crate::{entropy, threads, Failure};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use trapline_monitor::virtio::Console;
use trapline_monitor::Devices;

/// Bytes of input read at once.
const PIECE: usize = 512;

/// Console that receives input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputTarget {
    /// Serial port.
    Serial,
    /// Virtio console.
    Virtio,
}

impl InputTarget {
    /// Returns the console that is `/dev/console` for a kernel with this command line: the last one named (Linux,
    /// Documentation/admin-guide/serial-console.rst).
    pub fn of(command_line: &str) -> Self {
        let mut words = command_line.split_ascii_whitespace().rev();
        let last = words.find_map(|word| word.strip_prefix("console="));
        match last {
            Some(name) if name.starts_with("hvc") => Self::Virtio,
            _ => Self::Serial,
        }
    }
}

/// Starts the thread.
///
/// # Errors
/// The thread cannot be created.
pub fn start(common: Arc<Common>, mut api: Option<Api>, sandbox: bool) -> Result<(), Failure> {
    threads::spawn("control", Role::Control, sandbox, move || {
        Control::new(&common, api.take()).run()
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
        // SAFETY: the file is never dropped, so the descriptor is not closed; an invalid descriptor gives errors,
        // which are handled.
        let input = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDIN_FILENO) });
        Self {
            common,
            input,
            input_ended: false,
            api,
        }
    }

    fn run(mut self) -> ! {
        let mut more = false;
        loop {
            let typed = self.wait(more);
            if typed {
                self.read_input();
            }
            if let Some(api) = &mut self.api {
                api.serve(self.common);
            }
            self.common.slots.console.take_notification();
            more = self.serve_console();
            if self.common.slots.entropy.take_notification() || more {
                more |= entropy::fill_buffers(&self.common.slots.entropy);
            }
        }
    }

    /// Waits for an event; does not block if `more` is set. Returns true if input, or its end, is available.
    fn wait(&self, more: bool) -> bool {
        let slots = &self.common.slots;
        let full = self.input_ended || self.common.input.room() == 0;
        // `poll` ignores negative descriptors.
        let input = if full { -1 } else { self.input.as_raw_fd() };
        let mut requests = vec![
            readable(input),
            readable(slots.console.bell().as_raw_fd()),
            readable(slots.entropy.bell().as_raw_fd()),
        ];
        let api = self.api.iter().flat_map(Api::descriptors);
        requests.extend(api.map(|fd| readable(fd.as_raw_fd())));
        let timeout = if more { 0 } else { -1 };
        let count = requests.len() as libc::nfds_t;
        // SAFETY: the vector has the length that is passed.
        unsafe { libc::poll(requests.as_mut_ptr(), count, timeout) };
        requests[0].revents != 0
    }

    fn read_input(&mut self) {
        let mut bytes = [0; PIECE];
        let room = self.common.input.room().min(PIECE);
        match self.input.read(&mut bytes[..room]) {
            Ok(count) if count > 0 => self.common.input.put(&bytes[..count]),
            Err(error) if is_passing(error.kind()) => {}
            _ => self.input_ended = true,
        }
        if self.common.input_target == InputTarget::Serial {
            let mut devices = self.common.devices();
            let Devices { io, shell, .. } = &mut *devices;
            io.input_arrived(shell);
        }
    }

    fn serve_console(&self) -> bool {
        let (slot, common) = (&self.common.slots.console, self.common);
        slot.serve(|_, rings, memory| {
            let said = Console::transmit(rings, memory, &mut |bytes| {
                slot.counters.request(0, bytes.len());
                common.devices().shell.console.put_all(bytes);
            })?;
            if common.input_target != InputTarget::Virtio {
                return Ok(said);
            }
            let heard = Console::receive(rings, memory, &mut |room| common.input.get_all(room))?;
            Ok(said.and(heard))
        })
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_console_receives_input() {
        for (line, listener) in [
            ("", InputTarget::Serial),
            ("console=ttyS0 quiet", InputTarget::Serial),
            ("console=hvc0 console=ttyS0", InputTarget::Serial),
            (
                "console=ttyS0 console=hvc0 root=/dev/vda",
                InputTarget::Virtio,
            ),
        ] {
            assert_eq!(InputTarget::of(line), listener, "{line}");
        }
    }
}
