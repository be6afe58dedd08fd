//! Numbered frames over a card, see [`trapline_abi::packet`]: neither a stack nor a copy.

use super::card::{Card, MAX_FRAME};
use super::transport::Access;
use trapline_abi::packet::{
    count_of, fill, number, number_of, ACKNOWLEDGED, ACKNOWLEDGEMENT, BURST, DAMAGED, DATA,
    RECEIVER, SENDER, SMALL, WINDOW,
};
use trapline_workloads::Reason;

/// Sender of frames.
pub struct Sender<A> {
    card: Card<A>,
    /// Number of the next frame.
    next: u64,
    /// Number of the next frame that the receiver expects, as far as it has acknowledged.
    acknowledged: u64,
    /// Number of the last ping.
    pings: u64,
}

impl<A: Access> Sender<A> {
    /// Creates a sender.
    ///
    /// # Errors
    /// The queues are too short.
    pub fn new(card: Card<A>) -> Result<Self, Reason> {
        check_queues(&card)?;
        Ok(Self {
            card,
            next: 0,
            acknowledged: 0,
            pings: 0,
        })
    }

    /// Sends [`BURST`] frames of `length` bytes, until the receiver has checked all. Then the card causes no interrupts.
    ///
    /// # Errors
    /// The card fails, or a frame was lost or damaged.
    pub fn burst(&mut self, length: usize) -> Result<(), Reason> {
        let end = self.next + BURST;
        while self.acknowledged < end {
            self.send(end, length);
            self.card.notify();
            if !self.take_acknowledgements()? {
                self.card.wait()?;
            }
        }
        self.card.quiesce()
    }

    /// Sends a ping and waits for its answer. No other frame is on its way.
    ///
    /// # Errors
    /// The card fails, or the answer is another.
    pub fn ping(&mut self) -> Result<(), Reason> {
        self.pings += 1;
        let number = self.pings;
        if let Some(buffer) = self.card.transmitter.free() {
            let write = |frame: &mut [u8]| fill(frame, [RECEIVER, SENDER], ACKNOWLEDGEMENT, number);
            self.card.transmitter.send(buffer, SMALL, write);
        }
        self.card.notify();
        while !self.take_answer()? {
            self.card.wait()?;
        }
        self.card.quiesce()
    }

    /// Takes what was received. Returns true if it has the answer to the last ping.
    fn take_answer(&mut self) -> Result<bool, Reason> {
        let mut is_answered = false;
        let port = &mut self.card.receiver;
        while let Some((buffer, length)) = port.receive() {
            let read = |frame: &[u8]| number(frame, RECEIVER, ACKNOWLEDGEMENT);
            match port.read(buffer, length, read) {
                None => {}
                Some(number) if number == self.pings && !is_answered => is_answered = true,
                Some(_) => return Err("the receiver answered a ping that was not sent"),
            }
        }
        self.card.check()?;
        Ok(is_answered)
    }

    /// Sends frames up to number `end`, as many as may be on their way.
    #[inline(always)]
    fn send(&mut self, end: u64, length: usize) {
        let end = end.min(self.acknowledged + WINDOW);
        while self.next < end {
            let Some(buffer) = self.card.transmitter.free() else {
                return;
            };
            let number = number_of(self.next, length);
            let write = |frame: &mut [u8]| fill(frame, [RECEIVER, SENDER], DATA, number);
            self.card.transmitter.send(buffer, length, write);
            self.next += 1;
        }
    }

    /// Takes what was received. Returns true if it has more acknowledgements.
    #[inline(always)]
    fn take_acknowledgements(&mut self) -> Result<bool, Reason> {
        let before = self.acknowledged;
        let port = &mut self.card.receiver;
        while let Some((buffer, length)) = port.receive() {
            let read = |frame: &[u8]| number(frame, RECEIVER, ACKNOWLEDGEMENT);
            match port.read(buffer, length, read) {
                None => {}
                Some(DAMAGED) => return Err("the receiver got a wrong frame"),
                Some(count) if (self.acknowledged + 1..=self.next).contains(&count) => {
                    self.acknowledged = count;
                }
                Some(_) => return Err("the receiver acknowledged frames that were not sent"),
            }
        }
        self.card.check()?;
        Ok(self.acknowledged != before)
    }
}

/// Checks that the queues hold as many frames as may be on their way.
fn check_queues<A: Access>(card: &Card<A>) -> Result<(), Reason> {
    match card.buffers() >= WINDOW {
        true => Ok(()),
        false => Err("a queue of the network card is too short for 64 frames"),
    }
}

/// Receiver of frames.
pub struct Receiver<A> {
    card: Card<A>,
    /// Number of the next frame.
    next: u64,
    /// Frames since the last acknowledgement.
    pending: u64,
}

impl<A: Access> Receiver<A> {
    /// Creates a receiver.
    ///
    /// # Errors
    /// The queues are too short.
    pub fn new(card: Card<A>) -> Result<Self, Reason> {
        check_queues(&card)?;
        Ok(Self {
            card,
            next: 0,
            pending: 0,
        })
    }

    /// Receives frames and acknowledges them until the card fails. Returns the reason.
    pub fn serve(&mut self) -> Reason {
        loop {
            if let Err(reason) = self.turn() {
                return reason;
            }
        }
    }

    /// Takes the frames that were received, and waits for others.
    #[inline(always)]
    fn turn(&mut self) -> Result<(), Reason> {
        while let Some((buffer, length)) = self.card.receiver.receive() {
            match self.card.receiver.read(buffer, length, received) {
                Received::Other => {}
                Received::Data(number) => self.count(count_of(number, length)),
                Received::Ping(number) => self.answer(number),
            }
        }
        self.card.notify();
        self.card.check()?;
        self.card.wait()
    }

    /// Counts a frame, of which the count is `None` if it has a wrong length or content.
    #[inline(always)]
    fn count(&mut self, count: Option<u64>) {
        if count == Some(0) {
            (self.next, self.pending) = (0, 0);
        }
        if count != Some(self.next) {
            return self.answer(DAMAGED);
        }
        self.next += 1;
        self.pending += 1;
        if self.pending == ACKNOWLEDGED {
            self.pending = 0;
            self.answer(self.next);
        }
    }

    fn answer(&mut self, count: u64) {
        let port = &mut self.card.transmitter;
        // The sender has fewer acknowledgements on their way than there are buffers.
        if let Some(buffer) = port.free() {
            let write = |frame: &mut [u8]| fill(frame, [SENDER, RECEIVER], ACKNOWLEDGEMENT, count);
            port.send(buffer, SMALL, write);
        }
    }
}

/// Frame that a receiver got, with its number.
enum Received {
    Data(u64),
    Ping(u64),
    Other,
}

/// Returns what a received frame is.
#[inline(always)]
fn received(frame: &[u8]) -> Received {
    match number(frame, SENDER, DATA) {
        Some(number) => Received::Data(number),
        None => match number(frame, SENDER, ACKNOWLEDGEMENT) {
            Some(number) => Received::Ping(number),
            None => Received::Other,
        },
    }
}

const _: () = assert!(SMALL <= MAX_FRAME);
