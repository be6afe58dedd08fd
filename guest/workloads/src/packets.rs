//! Sender and receiver of numbered frames, see [`trapline_abi::packet`], over any [`Link`] or in datagrams.

use crate::system::Reason;
use trapline_abi::packet::{
    count_of, fill, number, number_of, Frames, ACKNOWLEDGED, ACKNOWLEDGEMENT, BURST, DAMAGED, DATA,
    RECEIVER, SENDER, SMALL, WINDOW,
};

/// Network card, or a socket, that sends and receives whole frames.
pub trait Link {
    /// Returns the number of frames that the link holds in each direction: received and not yet read, or not yet sent.
    fn buffers(&self) -> u64;

    /// Returns what `read` makes of the next received frame; `None` also after a failure.
    fn receive<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T>;

    /// Queues a frame of `length` bytes, which `fill` writes. Returns false if there is no free buffer.
    fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool;

    /// Sends the queued frames.
    fn notify(&mut self);

    /// Checks that there was no failure.
    ///
    /// # Errors
    /// There was.
    fn check(&mut self) -> Result<(), Reason>;

    /// Waits until a frame is received.
    ///
    /// # Errors
    /// The link fails, or receives nothing for too long.
    fn wait(&mut self) -> Result<(), Reason>;

    /// Ends interrupts until the next [`Self::wait`].
    ///
    /// # Errors
    /// The link fails.
    fn quiesce(&mut self) -> Result<(), Reason>;
}

/// Sender of frames.
pub struct Sender<L> {
    link: L,
    /// Number of the next frame.
    next: u64,
    /// Number of the next frame that the receiver expects, as far as it has acknowledged.
    acknowledged: u64,
    /// Number of the last ping.
    pings: u64,
}

impl<L: Link> Sender<L> {
    /// Creates a sender and opens it.
    ///
    /// # Errors
    /// The queues are too short, or the receiver does not answer.
    pub fn new(link: L) -> Result<Self, Reason> {
        let mut sender = Self::unopened(link);
        sender.open()?;
        Ok(sender)
    }

    /// Creates a sender, which the first burst opens.
    pub fn unopened(link: L) -> Self {
        Self {
            link,
            next: 0,
            acknowledged: 0,
            pings: 0,
        }
    }

    /// Sends a ping: when it is answered, the receiver has taken all frames that were sent before it, which would need buffers of
    /// those to come.
    fn open(&mut self) -> Result<(), Reason> {
        check_buffers(&self.link)?;
        self.ping()
    }

    /// Returns the link.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// Sends the frames of a sample, until the receiver has checked all. Then the card causes no interrupts.
    ///
    /// # Errors
    /// The card fails, or a frame was lost or damaged.
    pub fn send(&mut self, frames: Frames) -> Result<(), Reason> {
        match frames {
            Frames::Burst(length) => self.burst(length),
            Frames::Ping => self.ping(),
        }
    }

    fn burst(&mut self, length: usize) -> Result<(), Reason> {
        if self.pings == 0 {
            self.open()?;
        }
        let end = self.next + BURST;
        while self.acknowledged < end {
            self.send_up_to(end, length);
            self.link.notify();
            if !self.take_acknowledgements()? {
                self.link.wait()?;
            }
        }
        self.link.quiesce()
    }

    /// Sends a ping and waits for its answer. No other frame is on its way.
    fn ping(&mut self) -> Result<(), Reason> {
        self.pings += 1;
        let number = self.pings;
        let write = |frame: &mut [u8]| fill(frame, [RECEIVER, SENDER], ACKNOWLEDGEMENT, number);
        self.link.send(SMALL, write);
        self.link.notify();
        while !self.take_answer()? {
            self.link.wait()?;
        }
        self.link.quiesce()
    }

    /// Takes what was received. Returns true if it has the answer to the last ping.
    fn take_answer(&mut self) -> Result<bool, Reason> {
        let mut is_answered = false;
        let read = |frame: &[u8]| number(frame, RECEIVER, ACKNOWLEDGEMENT);
        while let Some(number) = self.link.receive(read) {
            match number {
                None => {}
                Some(number) if number == self.pings && !is_answered => is_answered = true,
                Some(_) => return Err("the receiver answered a ping that was not sent"),
            }
        }
        self.link.check()?;
        Ok(is_answered)
    }

    /// Sends frames up to number `end`, as many as may be on their way.
    #[inline(always)]
    fn send_up_to(&mut self, end: u64, length: usize) {
        let end = end.min(self.acknowledged + WINDOW);
        while self.next < end {
            let number = number_of(self.next, length);
            let write = |frame: &mut [u8]| fill(frame, [RECEIVER, SENDER], DATA, number);
            if !self.link.send(length, write) {
                return;
            }
            self.next += 1;
        }
    }

    /// Takes what was received. Returns true if it has more acknowledgements.
    #[inline(always)]
    fn take_acknowledgements(&mut self) -> Result<bool, Reason> {
        let before = self.acknowledged;
        let read = |frame: &[u8]| number(frame, RECEIVER, ACKNOWLEDGEMENT);
        while let Some(number) = self.link.receive(read) {
            match number {
                None => {}
                Some(DAMAGED) => return Err("the receiver got a wrong frame"),
                Some(count) if (self.acknowledged + 1..=self.next).contains(&count) => {
                    self.acknowledged = count;
                }
                Some(_) => return Err("the receiver acknowledged frames that were not sent"),
            }
        }
        self.link.check()?;
        Ok(self.acknowledged != before)
    }
}

/// Checks that the queues hold as many frames as may be on their way.
///
/// # Errors
/// They do not.
pub fn check_buffers(link: &impl Link) -> Result<(), Reason> {
    if link.buffers() >= WINDOW {
        Ok(())
    } else {
        Err("a queue of the network card, or a buffer of the socket, is too short for 64 frames")
    }
}

/// Result of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A frame that needs no answer.
    Counted,
    /// One to be answered with this number.
    Answered(u64),
    /// No frame of a sender.
    Other,
}

/// Receiver of frames.
#[derive(Default)]
pub struct Receiver {
    /// Number of the next frame.
    next: u64,
    /// Frames since the last acknowledgement.
    pending: u64,
}

impl Receiver {
    /// Receives from `link` until it fails. Frames of others are ignored.
    ///
    /// # Errors
    /// Always: the reason.
    pub fn serve(&mut self, link: &mut impl Link) -> Result<(), Reason> {
        check_buffers(link)?;
        loop {
            while let Some(taken) = link.receive(|frame| self.take(frame)) {
                answer(link, taken);
            }
            link.notify();
            link.check()?;
            link.wait()?;
        }
    }

    /// Checks and counts a received frame.
    #[inline(always)]
    pub fn take(&mut self, frame: &[u8]) -> Taken {
        if let Some(number) = number(frame, SENDER, DATA) {
            return self.count(count_of(number, frame.len()));
        }
        number(frame, SENDER, ACKNOWLEDGEMENT).map_or(Taken::Other, Taken::Answered)
    }

    /// Writes the answer to a datagram, which is a ping of one byte or has a frame, to `answer`. Returns its length, 0 without one.
    pub fn answer_datagram(&mut self, datagram: &[u8], answer: &mut [u8; SMALL]) -> usize {
        if let [byte] = datagram {
            answer[0] = !byte;
            return 1;
        }
        match self.take(datagram) {
            Taken::Answered(count) => {
                fill(answer, [SENDER, RECEIVER], ACKNOWLEDGEMENT, count);
                SMALL
            }
            Taken::Counted | Taken::Other => 0,
        }
    }

    /// Counts a frame, of which the count is `None` if it has a wrong length or content.
    #[inline(always)]
    fn count(&mut self, count: Option<u64>) -> Taken {
        if count == Some(0) {
            (self.next, self.pending) = (0, 0);
        }
        if count != Some(self.next) {
            return Taken::Answered(DAMAGED);
        }
        self.next += 1;
        self.pending += 1;
        if self.pending < ACKNOWLEDGED {
            return Taken::Counted;
        }
        self.pending = 0;
        Taken::Answered(self.next)
    }
}

/// Queues the answer to a frame, if it needs one. The sender has fewer frames on their way than there are buffers.
#[inline(always)]
pub fn answer(link: &mut impl Link, taken: Taken) {
    if let Taken::Answered(count) = taken {
        let write = |frame: &mut [u8]| fill(frame, [SENDER, RECEIVER], ACKNOWLEDGEMENT, count);
        link.send(SMALL, write);
    }
}
