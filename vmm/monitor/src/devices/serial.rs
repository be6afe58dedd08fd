//! A 16550A serial port (National Semiconductor PC16550D data sheet): ready to send
//! as long as the outside has room, with a FIFO of 16 bytes to receive.
//!
//! Asking the outside whether a byte has arrived is not free, so it is asked only
//! when the guest reads the line status twice without sending in between: who
//! wants to send looks once, who waits for input looks again and again.

use crate::devices::{Terminal, Trigger};

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

/// The registers of one port.
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
    /// The guest has not yet been told that its last byte was sent.
    sent: bool,
    /// The line status was read, and nothing was sent since.
    waiting: bool,
    interrupting: bool,
    flow_control: bool,
}

impl Serial {
    /// A port at whose other end nobody sends before the guest requests it (RTS): what is
    /// typed while an operating system still looks for the port is kept for it.
    pub fn with_flow_control() -> Self {
        Self {
            flow_control: true,
            ..Self::default()
        }
    }

    /// The guest writes `value` to register `register` (0 to 7).
    #[inline(always)]
    pub fn write<O>(&mut self, register: u8, value: u8, outside: &mut O)
    where
        O: Terminal + Trigger,
    {
        if register == SCRATCH {
            self.scratch = value;
        } else {
            self.write_working(register, value, outside);
        }
    }

    /// The guest reads register `register` (0 to 7).
    #[inline(always)]
    pub fn read<O>(&mut self, register: u8, outside: &mut O) -> u8
    where
        O: Terminal + Trigger,
    {
        if register == SCRATCH {
            self.scratch
        } else {
            self.read_working(register, outside)
        }
    }

    /// Something has arrived: a guest that waits for its interrupt hears as much of it as
    /// the FIFO holds, now and whenever it has emptied that. One that does not asks itself.
    pub fn arrived(&mut self, outside: &mut (impl Terminal + Trigger)) {
        self.hear(outside);
        self.interrupt(outside);
    }

    #[inline(never)]
    fn write_working(&mut self, register: u8, value: u8, outside: &mut (impl Terminal + Trigger)) {
        match register {
            DATA | INTERRUPT_ENABLE if self.line_control & DIVISOR_LATCH != 0 => {
                self.divisor[usize::from(register)] = value;
            }
            DATA => self.send(value, outside),
            INTERRUPT_ENABLE => {
                self.sent |= value & !self.interrupt_enable & ENABLE_SENT != 0;
                self.interrupt_enable = value & 0x0f;
                self.hear(outside);
            }
            INTERRUPT_ID => self.control_fifo(value),
            LINE_CONTROL => self.line_control = value,
            MODEM_CONTROL => {
                self.modem_control = value & 0x1f;
                self.hear(outside);
            }
            _ => {}
        }
        self.interrupt(outside);
    }

    #[inline(never)]
    fn read_working(&mut self, register: u8, outside: &mut (impl Terminal + Trigger)) -> u8 {
        let value = match register {
            DATA | INTERRUPT_ENABLE if self.line_control & DIVISOR_LATCH != 0 => {
                self.divisor[usize::from(register)]
            }
            DATA => self.receive(outside),
            INTERRUPT_ENABLE => self.interrupt_enable,
            INTERRUPT_ID => self.identify(),
            LINE_CONTROL => self.line_control,
            MODEM_CONTROL => self.modem_control,
            LINE_STATUS => self.line_status(outside),
            MODEM_STATUS => self.modem_status(),
            _ => self.scratch,
        };
        self.interrupt(outside);
        value
    }

    fn send(&mut self, byte: u8, outside: &mut impl Terminal) {
        self.waiting = false;
        self.sent = true;
        if self.modem_control & LOOPBACK == 0 {
            outside.say(byte);
        } else {
            self.overrun |= !self.received.put(byte);
        }
    }

    fn receive(&mut self, outside: &mut impl Terminal) -> u8 {
        let byte = self.received.take().unwrap_or(0);
        if self.received.count == 0 {
            self.hear(outside);
        }
        byte
    }

    fn hear(&mut self, outside: &mut impl Terminal) {
        if self.interrupt_enable & ENABLE_RECEIVED == 0 || !self.is_sent_to() {
            return;
        }
        while self.received.count < FIFO {
            match outside.hear() {
                Some(byte) => drop(self.received.put(byte)),
                None => break,
            }
        }
    }

    /// Whether what is sent at the other end arrives here.
    fn is_sent_to(&self) -> bool {
        let requested = !self.flow_control || self.modem_control & REQUEST != 0;
        requested && self.modem_control & LOOPBACK == 0
    }

    fn control_fifo(&mut self, value: u8) {
        self.fifo_control = value & FIFO_ON;
        if value & FIFO_CLEAR_RECEIVED != 0 {
            self.received = Received::default();
        }
    }

    fn line_status(&mut self, outside: &mut impl Terminal) -> u8 {
        if self.waiting && self.is_sent_to() && self.received.count == 0 {
            if let Some(byte) = outside.hear() {
                self.received.put(byte);
            }
        }
        self.waiting = true;
        let mut status = match outside.has_room() {
            true => STATUS_SENT,
            false => 0,
        };
        if self.received.count > 0 {
            status |= STATUS_RECEIVED;
        }
        if std::mem::take(&mut self.overrun) {
            status |= STATUS_OVERRUN;
        }
        status
    }

    /// In loopback, the modem control outputs come back as the status inputs.
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

    /// The most urgent reason to interrupt.
    fn cause(&self) -> Option<u8> {
        if self.interrupt_enable & ENABLE_RECEIVED != 0 && self.received.count > 0 {
            Some(ID_RECEIVED)
        } else if self.interrupt_enable & ENABLE_SENT != 0 && self.sent {
            Some(ID_SENT)
        } else {
            None
        }
    }

    fn interrupt(&mut self, outside: &mut impl Trigger) {
        let interrupting = self.cause().is_some();
        if interrupting && !self.interrupting {
            outside.trigger();
        }
        self.interrupting = interrupting;
    }
}

/// Bytes that the guest has not read yet.
#[derive(Debug, Default)]
struct Received {
    bytes: [u8; FIFO],
    first: usize,
    count: usize,
}

impl Received {
    /// Whether there was room.
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
    use crate::devices::board::tests::Outside;

    /// As Linux's driver does: the interrupt for what has arrived, then all that is there.
    #[test]
    fn who_waits_for_the_interrupt_hears_all_that_has_arrived() {
        let typed: Vec<u8> = (1..=40).collect();
        let (mut serial, mut outside) = (Serial::default(), Outside::hearing(&typed));
        serial.arrived(&mut outside);
        assert_eq!((outside.triggered, outside.input.len()), (0, 40));
        serial.write(INTERRUPT_ENABLE, ENABLE_RECEIVED, &mut outside);
        assert_eq!((outside.triggered, outside.input.len()), (1, 24));
        let mut heard = Vec::new();
        assert_eq!(serial.read(INTERRUPT_ID, &mut outside), ID_RECEIVED);
        while serial.read(LINE_STATUS, &mut outside) & STATUS_RECEIVED != 0 {
            heard.push(serial.read(DATA, &mut outside));
        }
        assert_eq!(heard, typed);
        assert_eq!(serial.read(INTERRUPT_ID, &mut outside), ID_NONE);
        outside.input.push_back(9);
        serial.arrived(&mut outside);
        assert_eq!(outside.triggered, 2);
    }

    #[test]
    fn nobody_sends_before_the_guest_requests_it() {
        let (mut serial, mut outside) = (Serial::with_flow_control(), Outside::hearing(b"x"));
        serial.write(INTERRUPT_ENABLE, ENABLE_RECEIVED, &mut outside);
        for _ in 0..3 {
            assert_eq!(serial.read(LINE_STATUS, &mut outside) & STATUS_RECEIVED, 0);
        }
        serial.write(MODEM_CONTROL, REQUEST, &mut outside);
        assert_eq!(outside.triggered, 1);
        assert_eq!(serial.read(DATA, &mut outside), b'x');
    }

    #[test]
    fn a_line_without_room_is_not_ready_to_send() {
        let (mut serial, mut outside) = (Serial::default(), Outside::default());
        assert_eq!(serial.read(LINE_STATUS, &mut outside), STATUS_SENT);
        outside.full = true;
        assert_eq!(serial.read(LINE_STATUS, &mut outside), 0);
        outside.full = false;
        assert_eq!(serial.read(LINE_STATUS, &mut outside), STATUS_SENT);
    }

    #[test]
    fn scratch_keeps_what_is_written() {
        let (mut serial, mut outside) = (Serial::default(), Outside::default());
        serial.write(SCRATCH, 0x5a, &mut outside);
        assert_eq!(serial.read(SCRATCH, &mut outside), 0x5a);
    }

    #[test]
    fn bytes_go_out_and_the_port_is_always_ready() {
        let (mut serial, mut outside) = (Serial::default(), Outside::default());
        for byte in *b"hello" {
            assert_eq!(
                serial.read(LINE_STATUS, &mut outside) & STATUS_SENT,
                STATUS_SENT
            );
            serial.write(DATA, byte, &mut outside);
        }
        assert_eq!(outside.said, b"hello");
        assert_eq!(
            outside.asked, 0,
            "who only sends must not cost a look at the input"
        );
    }

    #[test]
    fn input_is_looked_for_when_the_guest_waits() {
        let (mut serial, mut outside) = (Serial::default(), Outside::hearing(b"go"));
        assert_eq!(serial.read(LINE_STATUS, &mut outside) & STATUS_RECEIVED, 0);
        assert_eq!(serial.read(LINE_STATUS, &mut outside) & STATUS_RECEIVED, 1);
        assert_eq!(serial.read(DATA, &mut outside), b'g');
        assert_eq!(serial.read(LINE_STATUS, &mut outside) & STATUS_RECEIVED, 1);
        assert_eq!(serial.read(DATA, &mut outside), b'o');
        assert_eq!(serial.read(LINE_STATUS, &mut outside) & STATUS_RECEIVED, 0);
    }

    #[test]
    fn loopback_comes_back_and_nothing_goes_out() {
        let (mut serial, mut outside) = (Serial::default(), Outside::hearing(b"x"));
        serial.write(MODEM_CONTROL, LOOPBACK | 0x0a, &mut outside);
        for byte in 0..20 {
            serial.write(DATA, byte, &mut outside);
        }
        assert!(outside.said.is_empty());
        let status = serial.read(LINE_STATUS, &mut outside);
        assert_eq!(status & (STATUS_RECEIVED | STATUS_OVERRUN), 3);
        let back: Vec<u8> = (0..16).map(|_| serial.read(DATA, &mut outside)).collect();
        assert_eq!(back, (0..16).collect::<Vec<u8>>());
        assert_eq!(serial.read(MODEM_STATUS, &mut outside), 0x90);
    }

    #[test]
    fn interrupts_come_once_for_each_cause() {
        let (mut serial, mut outside) = (Serial::default(), Outside::default());
        serial.write(INTERRUPT_ENABLE, ENABLE_SENT, &mut outside);
        assert_eq!(outside.triggered, 1);
        assert_eq!(serial.read(INTERRUPT_ID, &mut outside), ID_SENT);
        assert_eq!(serial.read(INTERRUPT_ID, &mut outside), ID_NONE);
        serial.write(DATA, b'x', &mut outside);
        assert_eq!(outside.triggered, 2);
        serial.write(INTERRUPT_ENABLE, ENABLE_RECEIVED, &mut outside);
        outside.input.push_back(b'y');
        serial.read(LINE_STATUS, &mut outside);
        serial.read(LINE_STATUS, &mut outside);
        assert_eq!(outside.triggered, 3);
        assert_eq!(serial.read(INTERRUPT_ID, &mut outside), ID_RECEIVED);
    }

    #[test]
    fn the_divisor_hides_data_while_it_is_open() {
        let (mut serial, mut outside) = (Serial::default(), Outside::default());
        serial.write(LINE_CONTROL, DIVISOR_LATCH | 3, &mut outside);
        serial.write(DATA, 1, &mut outside);
        assert_eq!(serial.read(DATA, &mut outside), 1);
        serial.write(LINE_CONTROL, 3, &mut outside);
        assert_eq!(serial.read(DATA, &mut outside), 0);
        assert!(outside.said.is_empty());
    }
}
