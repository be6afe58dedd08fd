//! A 16550A serial port (National Semiconductor PC16550D data sheet) with a receive FIFO of 16 bytes. It is ready to
//! send while the terminal has room.
//!
//! Polling the terminal for input costs a system call. It happens only when the guest reads the line status twice
//! without sending in between: a sender polls once, a reader repeatedly.
//!
//! Own code instead of the crate `vm-superio`: its output is a `std::io::Write`, and its
//! input is pushed by another thread, while the only thread of an image's VM polls.

use crate::devices::Terminal;

const FIFO: usize = 16;

const DATA: u8 = 0;
const INTERRUPT_ENABLE: u8 = 1;
const INTERRUPT_ID: u8 = 2;
const LINE_CONTROL: u8 = 3;
const MODEM_CONTROL: u8 = 4;
const LINE_STATUS: u8 = 5;
const MODEM_STATUS: u8 = 6;
const SCRATCH: u8 = 7;

const ENABLE_RECEIVED: u8 = 0x01;
const ENABLE_SENT: u8 = 0x02;

const ID_NONE: u8 = 0x01;
const ID_SENT: u8 = 0x02;
const ID_RECEIVED: u8 = 0x04;
const ID_FIFO_ON: u8 = 0xc0;

const FIFO_ON: u8 = 0x01;
const FIFO_CLEAR_RECEIVED: u8 = 0x02;

const DIVISOR_LATCH: u8 = 0x80;
const REQUEST: u8 = 0x02;
const LOOPBACK: u8 = 0x10;

const STATUS_RECEIVED: u8 = 0x01;
const STATUS_OVERRUN: u8 = 0x02;
const STATUS_SENT: u8 = 0x60; // holding register and shift register empty

const MODEM_READY: u8 = 0xb0; // carrier, data set ready, clear to send

/// Registers of a port.
#[derive(Debug, Default)]
pub struct Serial {
    divisor: [u8; 2],
    interrupt_enable: u8,
    fifo_control: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    received: Received,
    overrun: bool,
    /// The THR-empty interrupt is pending.
    sent: bool,
    /// The line status was read since the last byte sent.
    waiting: bool,
    interrupting: bool,
    flow_control: bool,
}

impl Serial {
    /// Creates a port. With `flow_control` its terminal sends only while RTS is set, so that input during boot is kept.
    pub fn new(flow_control: bool) -> Self {
        Self {
            flow_control,
            ..Self::default()
        }
    }

    /// Handles a guest write to register `register` (0 to 7).
    #[inline(always)]
    pub fn write(&mut self, register: u8, value: u8, terminal: &mut impl Terminal) {
        if register == SCRATCH {
            self.scratch = value;
        } else {
            self.write_working(register, value, terminal);
        }
    }

    /// Handles a guest read of register `register` (0 to 7).
    #[inline(always)]
    pub fn read(&mut self, register: u8, terminal: &mut impl Terminal) -> u8 {
        if register == SCRATCH {
            self.scratch
        } else {
            self.read_working(register, terminal)
        }
    }

    /// Handles new input: fills the FIFO and interrupts the guest if it has enabled the interrupt; otherwise the guest
    /// polls.
    pub fn input_arrived(&mut self, terminal: &mut impl Terminal) {
        self.fill(terminal);
        self.interrupt(terminal);
    }

    #[inline(never)]
    fn write_working(&mut self, register: u8, value: u8, terminal: &mut impl Terminal) {
        match register {
            DATA | INTERRUPT_ENABLE if self.line_control & DIVISOR_LATCH != 0 => {
                self.divisor[usize::from(register)] = value;
            }
            DATA => self.send(value, terminal),
            INTERRUPT_ENABLE => {
                self.sent |= value & !self.interrupt_enable & ENABLE_SENT != 0;
                self.interrupt_enable = value & 0x0f;
                self.fill(terminal);
            }
            INTERRUPT_ID => self.control_fifo(value),
            LINE_CONTROL => self.line_control = value,
            MODEM_CONTROL => {
                self.modem_control = value & 0x1f;
                self.fill(terminal);
            }
            _ => {}
        }
        self.interrupt(terminal);
    }

    #[inline(never)]
    fn read_working(&mut self, register: u8, terminal: &mut impl Terminal) -> u8 {
        let value = match register {
            DATA | INTERRUPT_ENABLE if self.line_control & DIVISOR_LATCH != 0 => {
                self.divisor[usize::from(register)]
            }
            DATA => self.receive(terminal),
            INTERRUPT_ENABLE => self.interrupt_enable,
            INTERRUPT_ID => self.identify(),
            LINE_CONTROL => self.line_control,
            MODEM_CONTROL => self.modem_control,
            LINE_STATUS => self.line_status(terminal),
            MODEM_STATUS => self.modem_status(),
            _ => self.scratch,
        };
        self.interrupt(terminal);
        value
    }

    fn send(&mut self, byte: u8, terminal: &mut impl Terminal) {
        self.waiting = false;
        self.sent = true;
        if self.modem_control & LOOPBACK == 0 {
            terminal.send(byte);
        } else {
            self.overrun |= !self.received.put(byte);
        }
    }

    fn receive(&mut self, terminal: &mut impl Terminal) -> u8 {
        let byte = self.received.take().unwrap_or(0);
        if self.received.count == 0 {
            self.fill(terminal);
        }
        byte
    }

    fn fill(&mut self, terminal: &mut impl Terminal) {
        if self.interrupt_enable & ENABLE_RECEIVED == 0 || !self.accepts_input() {
            return;
        }
        while self.received.count < FIFO {
            match terminal.receive() {
                Some(byte) => drop(self.received.put(byte)),
                None => break,
            }
        }
    }

    /// Returns true if the port accepts input.
    fn accepts_input(&self) -> bool {
        let requested = !self.flow_control || self.modem_control & REQUEST != 0;
        requested && self.modem_control & LOOPBACK == 0
    }

    fn control_fifo(&mut self, value: u8) {
        self.fifo_control = value & FIFO_ON;
        if value & FIFO_CLEAR_RECEIVED != 0 {
            self.received = Received::default();
        }
    }

    fn line_status(&mut self, terminal: &mut impl Terminal) -> u8 {
        if self.waiting && self.accepts_input() && self.received.count == 0 {
            if let Some(byte) = terminal.receive() {
                self.received.put(byte);
            }
        }
        self.waiting = true;
        let mut status = if terminal.has_room() { STATUS_SENT } else { 0 };
        if self.received.count > 0 {
            status |= STATUS_RECEIVED;
        }
        if core::mem::take(&mut self.overrun) {
            status |= STATUS_OVERRUN;
        }
        status
    }

    /// In loopback, the modem control outputs return as status inputs.
    fn modem_status(&self) -> u8 {
        let control = self.modem_control;
        if control & LOOPBACK == 0 {
            return MODEM_READY;
        }
        let [ready, request, out1, out2] = [0, 1, 2, 3].map(|bit| control >> bit & 1);
        request << 4 | ready << 5 | out1 << 6 | out2 << 7
    }

    fn identify(&mut self) -> u8 {
        let id = self.cause().unwrap_or(ID_NONE);
        if id == ID_SENT {
            self.sent = false;
        }
        if self.fifo_control & FIFO_ON != 0 {
            id | ID_FIFO_ON
        } else {
            id
        }
    }

    /// Returns the pending interrupt of the highest priority.
    fn cause(&self) -> Option<u8> {
        if self.interrupt_enable & ENABLE_RECEIVED != 0 && self.received.count > 0 {
            Some(ID_RECEIVED)
        } else if self.interrupt_enable & ENABLE_SENT != 0 && self.sent {
            Some(ID_SENT)
        } else {
            None
        }
    }

    fn interrupt(&mut self, terminal: &mut impl Terminal) {
        let interrupting = self.cause().is_some();
        if interrupting && !self.interrupting {
            terminal.interrupt();
        }
        self.interrupting = interrupting;
    }
}

/// The receive FIFO.
#[derive(Debug, Default)]
struct Received {
    bytes: [u8; FIFO],
    first: usize,
    count: usize,
}

impl Received {
    /// Appends a byte; returns false if the FIFO is full.
    fn put(&mut self, byte: u8) -> bool {
        if self.count == FIFO {
            return false;
        }
        self.bytes[(self.first + self.count) % FIFO] = byte;
        self.count += 1;
        true
    }

    fn take(&mut self) -> Option<u8> {
        self.count = self.count.checked_sub(1)?;
        let byte = self.bytes[self.first];
        self.first = (self.first + 1) % FIFO;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::io_bus::tests::TestShell;
    use std::vec::Vec;

    /// Reads as Linux's driver does: one interrupt, then until the FIFO is empty.
    #[test]
    fn interrupt_driven_reader_receives_all_input() {
        let typed: Vec<u8> = (1..=40).collect();
        let (mut serial, mut terminal) = (Serial::default(), TestShell::with_input(&typed));
        serial.input_arrived(&mut terminal);
        assert_eq!((terminal.interrupts, terminal.input.len()), (0, 40));
        serial.write(INTERRUPT_ENABLE, ENABLE_RECEIVED, &mut terminal);
        assert_eq!((terminal.interrupts, terminal.input.len()), (1, 24));
        let mut heard = Vec::new();
        assert_eq!(serial.read(INTERRUPT_ID, &mut terminal), ID_RECEIVED);
        while serial.read(LINE_STATUS, &mut terminal) & STATUS_RECEIVED != 0 {
            heard.push(serial.read(DATA, &mut terminal));
        }
        assert_eq!(heard, typed);
        assert_eq!(serial.read(INTERRUPT_ID, &mut terminal), ID_NONE);
        terminal.input.push_back(9);
        serial.input_arrived(&mut terminal);
        assert_eq!(terminal.interrupts, 2);
    }

    #[test]
    fn no_input_before_rts() {
        let (mut serial, mut terminal) = (Serial::new(true), TestShell::with_input(b"x"));
        serial.write(INTERRUPT_ENABLE, ENABLE_RECEIVED, &mut terminal);
        for _ in 0..3 {
            assert_eq!(serial.read(LINE_STATUS, &mut terminal) & STATUS_RECEIVED, 0);
        }
        serial.write(MODEM_CONTROL, REQUEST, &mut terminal);
        assert_eq!(terminal.interrupts, 1);
        assert_eq!(serial.read(DATA, &mut terminal), b'x');
    }

    #[test]
    fn full_line_is_not_ready() {
        let (mut serial, mut terminal) = (Serial::default(), TestShell::default());
        assert_eq!(serial.read(LINE_STATUS, &mut terminal), STATUS_SENT);
        terminal.full = true;
        assert_eq!(serial.read(LINE_STATUS, &mut terminal), 0);
        terminal.full = false;
        assert_eq!(serial.read(LINE_STATUS, &mut terminal), STATUS_SENT);
    }

    #[test]
    fn scratch_register_is_readable() {
        let (mut serial, mut terminal) = (Serial::default(), TestShell::default());
        serial.write(SCRATCH, 0x5a, &mut terminal);
        assert_eq!(serial.read(SCRATCH, &mut terminal), 0x5a);
    }

    #[test]
    fn bytes_are_sent_without_polling_input() {
        let (mut serial, mut terminal) = (Serial::default(), TestShell::default());
        for byte in *b"hello" {
            assert_eq!(
                serial.read(LINE_STATUS, &mut terminal) & STATUS_SENT,
                STATUS_SENT
            );
            serial.write(DATA, byte, &mut terminal);
        }
        assert_eq!(terminal.output, b"hello");
        assert_eq!(terminal.polls, 0, "sending must not poll the input");
    }

    #[test]
    fn repeated_status_reads_poll_input() {
        let (mut serial, mut terminal) = (Serial::default(), TestShell::with_input(b"go"));
        assert_eq!(serial.read(LINE_STATUS, &mut terminal) & STATUS_RECEIVED, 0);
        assert_eq!(serial.read(LINE_STATUS, &mut terminal) & STATUS_RECEIVED, 1);
        assert_eq!(serial.read(DATA, &mut terminal), b'g');
        assert_eq!(serial.read(LINE_STATUS, &mut terminal) & STATUS_RECEIVED, 1);
        assert_eq!(serial.read(DATA, &mut terminal), b'o');
        assert_eq!(serial.read(LINE_STATUS, &mut terminal) & STATUS_RECEIVED, 0);
    }

    #[test]
    fn loopback_returns_output_as_input() {
        let (mut serial, mut terminal) = (Serial::default(), TestShell::with_input(b"x"));
        serial.write(MODEM_CONTROL, LOOPBACK | 0x0a, &mut terminal);
        for byte in 0..20 {
            serial.write(DATA, byte, &mut terminal);
        }
        assert!(terminal.output.is_empty());
        let status = serial.read(LINE_STATUS, &mut terminal);
        assert_eq!(status & (STATUS_RECEIVED | STATUS_OVERRUN), 3);
        let back: Vec<u8> = (0..16).map(|_| serial.read(DATA, &mut terminal)).collect();
        assert_eq!(back, (0..16).collect::<Vec<u8>>());
        assert_eq!(serial.read(MODEM_STATUS, &mut terminal), 0x90);
    }

    #[test]
    fn each_cause_interrupts_once() {
        let (mut serial, mut terminal) = (Serial::default(), TestShell::default());
        serial.write(INTERRUPT_ENABLE, ENABLE_SENT, &mut terminal);
        assert_eq!(terminal.interrupts, 1);
        assert_eq!(serial.read(INTERRUPT_ID, &mut terminal), ID_SENT);
        assert_eq!(serial.read(INTERRUPT_ID, &mut terminal), ID_NONE);
        serial.write(DATA, b'x', &mut terminal);
        assert_eq!(terminal.interrupts, 2);
        serial.write(INTERRUPT_ENABLE, ENABLE_RECEIVED, &mut terminal);
        terminal.input.push_back(b'y');
        serial.read(LINE_STATUS, &mut terminal);
        serial.read(LINE_STATUS, &mut terminal);
        assert_eq!(terminal.interrupts, 3);
        assert_eq!(serial.read(INTERRUPT_ID, &mut terminal), ID_RECEIVED);
    }

    #[test]
    fn divisor_latch_hides_data() {
        let (mut serial, mut terminal) = (Serial::default(), TestShell::default());
        serial.write(LINE_CONTROL, DIVISOR_LATCH | 3, &mut terminal);
        serial.write(DATA, 1, &mut terminal);
        assert_eq!(serial.read(DATA, &mut terminal), 1);
        serial.write(LINE_CONTROL, 3, &mut terminal);
        assert_eq!(serial.read(DATA, &mut terminal), 0);
        assert!(terminal.output.is_empty());
    }
}
