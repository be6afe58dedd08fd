//! What is behind the lock that all vCPUs share: devices at ports, the console, and what is
//! told at the end.

use super::inbox::Inbox;
use crate::console::Console;
use crate::events::Events;
use crate::usage::Account;
use crate::virtio::Slot;
use crate::{signals, Ending};
use std::sync::Arc;
use trapline_abi::{stamp, Stage};
use trapline_interface::{IrqLine, Vcpu};
use trapline_monitor::devices::{Board, Counts, Effect, Host, Terminal, Trigger};
use trapline_monitor::virtio::Console as VirtioConsole;

/// What is behind the lock.
pub struct Devices {
    pub(super) board: Board,
    /// The guest's console.
    pub console: Console,
    /// Where is told how it went.
    pub events: Events,
    /// What this process uses, where somebody wants to know.
    pub account: Option<Account>,
    /// Guest TSC minus host TSC, where it is known.
    pub tsc_offset: Option<i64>,
    pub(super) serial: IrqLine,
    /// What is typed, if the serial port hears that.
    pub(super) inbox: Option<Arc<Inbox>>,
    /// Wakes who reads what is typed, when there is room for it again.
    pub(super) wake: Arc<Slot<VirtioConsole>>,
}

impl Devices {
    /// The last moment before the guest's first instruction.
    pub(super) fn begin(&mut self) {
        self.events.stage(Stage::VmmEntry, stamp!(VmmEntry));
        self.events.flush();
    }

    /// Accesses to what is no virtio device.
    pub fn counts(&self) -> Counts {
        self.board.counts()
    }

    /// A vCPU writes to a port.
    pub(super) fn write(
        &mut self,
        port: u16,
        size: u8,
        data: u64,
        vcpu: &mut impl Vcpu,
    ) -> Option<Ending> {
        let (board, mut around) = self.split(vcpu);
        ending_of(board.write_port(port, size, data as u32, &mut around))
    }

    /// A vCPU reads a port.
    pub(super) fn read(&mut self, port: u16, size: u8, vcpu: &mut impl Vcpu) -> u64 {
        let (board, mut around) = self.split(vcpu);
        board.read_port(port, size, &mut around).into()
    }

    /// Something was typed that the serial port is to hear.
    pub(super) fn arrived(&mut self) {
        let mut nobody = ();
        let (board, mut around) = self.split(&mut nobody);
        board.arrived(&mut around);
    }

    fn split<'a, V>(&'a mut self, vcpu: &'a mut V) -> (&'a mut Board, Around<'a, V>) {
        let around = Around {
            console: &mut self.console,
            serial: &self.serial,
            inbox: self.inbox.as_deref(),
            wake: &self.wake,
            vcpu,
        };
        (&mut self.board, around)
    }

    /// Whether a vCPU that was recalled ends the machine.
    pub(super) fn recalled(&mut self) -> Option<Ending> {
        self.console.flush();
        let deaf = self.console.failure().map(|_| Ending::Deaf);
        signals::stopped().map(Ending::Signal).or(deaf)
    }
}

/// What a write means for the machine.
fn ending_of(effect: Effect) -> Option<Ending> {
    match effect {
        Effect::Exit(value) => Some(Ending::of_exit(value)),
        Effect::Off => Some(Ending::Done),
        Effect::Reset => Some(Ending::Reset),
        // Not offered here, or of no consequence.
        Effect::None
        | Effect::Idle(_)
        | Effect::Frame(_)
        | Effect::Tick(_)
        | Effect::Populate(_) => None,
    }
}

/// What the devices see of the machine around them.
struct Around<'a, V> {
    console: &'a mut Console,
    serial: &'a IrqLine,
    inbox: Option<&'a Inbox>,
    wake: &'a Slot<VirtioConsole>,
    vcpu: &'a mut V,
}

impl<V> Terminal for Around<'_, V> {
    fn say(&mut self, byte: u8) {
        self.console.send(byte);
    }

    fn has_room(&self) -> bool {
        self.console.has_room()
    }

    fn hear(&mut self) -> Option<u8> {
        let (byte, was_full) = self.inbox?.get()?;
        if was_full {
            self.wake.ring();
        }
        Some(byte)
    }
}

impl<V> Trigger for Around<'_, V> {
    fn trigger(&mut self) {
        // The guest polls where its interrupt cannot be delivered.
        let _delivered = self.serial.trigger();
    }
}

impl<V: Vcpu> Host for Around<'_, V> {
    fn print(&mut self, byte: u8) {
        self.console.put(byte);
    }

    fn exits(&mut self, accesses: u64) -> u64 {
        self.console.flush();
        self.vcpu.tally().kernel.unwrap_or(accesses)
    }
}
