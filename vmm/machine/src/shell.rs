//! The services of this program for the monitor.

use crate::console::Console;
use crate::hotplug::MemoryProvider;
use crate::input::InputBuffer;
use crate::signals;
use crate::ticker::Ticker;
use crate::virtio::Slot;
use std::sync::Arc;
use trapline_abi::populate::Refusal;
use trapline_interface::IrqLine;
use trapline_monitor::devices::{HotplugRequest, Shell, Terminal};
use trapline_monitor::virtio::Console as VirtioConsole;
use trapline_monitor::StopReason;

/// Console, serial interrupt, ticker and memory of one VM.
pub struct Host {
    /// Guest console.
    pub console: Console,
    /// Source of serial input.
    pub input: Input,
    /// Interrupt of the serial port; images poll.
    pub serial: Option<IrqLine>,
    /// Ticker device.
    pub ticker: Option<Ticker>,
    /// Memory for hotplug.
    pub memory: Option<Box<dyn MemoryProvider + Send>>,
}

/// Source of serial input.
pub enum Input {
    /// Standard input, read on the vCPU's thread.
    Direct,
    /// A buffer filled by the control thread, which is woken by this device when the buffer has room again.
    Buffered(Arc<InputBuffer>, Arc<Slot<VirtioConsole>>),
    /// None: another console receives input.
    None,
}

impl Host {
    /// Creates the services of a VM without optional devices, with serial input from standard input.
    pub fn new(console: Console) -> Self {
        Self {
            console,
            input: Input::Direct,
            serial: None,
            ticker: None,
            memory: None,
        }
    }
}

impl Terminal for Host {
    fn send(&mut self, byte: u8) {
        self.console.send(byte);
    }

    fn has_room(&self) -> bool {
        self.console.has_room()
    }

    fn receive(&mut self) -> Option<u8> {
        match &self.input {
            Input::Direct => self.console.get(),
            Input::Buffered(buffer, wake) => {
                let (byte, was_full) = buffer.get()?;
                if was_full {
                    wake.ring();
                }
                Some(byte)
            }
            Input::None => None,
        }
    }

    fn interrupt(&mut self) {
        if let Some(line) = &self.serial {
            // Without the interrupt the guest still polls.
            let _delivered = line.trigger();
        }
    }
}

impl Shell for Host {
    fn print(&mut self, byte: u8) {
        self.console.put(byte);
    }

    fn print_all(&mut self, bytes: &[u8]) {
        self.console.put_all(bytes);
    }

    fn flush(&mut self) {
        self.console.flush();
    }

    fn stop_reason(&mut self) -> Option<StopReason> {
        self.console.flush();
        let signal = signals::stop_signal().map(StopReason::Signal);
        let closed = self.console.is_closed();
        signal.or(closed.then_some(StopReason::ConsoleClosed))
    }

    fn set_ticker(&mut self, page: u64) {
        if let Some(ticker) = &self.ticker {
            ticker.order(page);
        }
    }

    fn hotplug(&mut self, request: HotplugRequest) -> Result<(), Refusal> {
        match &mut self.memory {
            Some(memory) => memory.handle(request),
            None => Err(Refusal::Failed),
        }
    }
}
