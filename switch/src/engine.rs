//! The thread that forwards frames.

use crate::copy::{read_header, HEADERS};
use crate::counters::{Counter, Reason};
use crate::events::Events;
use crate::fault;
use crate::frame::{Header, LONGEST};
use crate::handle::{Bases, Command, Handle};
use crate::mirror::{Recorder, INTERVAL};
use crate::net_header::NET_HEADER;
use crate::patience::{Exhausted, Patience};
use crate::policy::Policy;
use crate::port::{Active, Port, Queue};
use crate::ring::{Chain, Fault, Segment};
use crate::table::{Learnt, Table};
use crate::tap::{Arrival, Tap};
use crate::work::{receive, Batch, End, Refused, Touched, Work, BATCH};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Bytes and descriptors, of which each is a page, that a port sends in a turn, of all its queues: it keeps others from their turns no
/// longer than it takes to copy them.
const LARGEST_TURN: u32 = 1 << 20;

/// Polls without a frame after which the time is read.
const POLLS: u32 = 64;

/// Waiting for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The thread polls.
    Poll,
    /// It polls for this time after the last frame, then it sleeps until a guest notifies it.
    Sleep(Duration),
}

/// The engine.
pub struct Engine {
    handle: Arc<Handle>,
    ports: Vec<Option<Port>>,
    policies: Vec<Policy>,
    /// Positions of the queues of ports that an invalid one has stopped.
    stopped: Vec<Bases>,
    table: Table,
    started: Instant,
    now: u32,
    /// Mappings that were lost, of all guests.
    lost: u64,
    events: Events,
    /// The port whose frames are copied.
    mirrored: Option<usize>,
    recorder: Recorder,
    /// CPU time of the notifications of each port.
    patience: Vec<Patience>,
}

/// Adds frames and bytes.
fn add(counters: &[Counter; 2], counts: [u64; 2]) {
    for (counter, count) in counters.iter().zip(counts) {
        counter.add(count);
    }
}

impl Engine {
    /// Creates the engine of a handle, with the restrictions of each port.
    ///
    /// # Errors
    /// The kernel refuses to wait for events, or two ports have the same fixed address.
    pub fn new(handle: Arc<Handle>, policies: Vec<Policy>) -> io::Result<Self> {
        let count = handle.counters.len();
        let mut table = Table::new(count);
        for (port, policy) in policies.iter().enumerate() {
            if policy.mac.is_some_and(|mac| !table.fix(mac, port)) {
                let equal =
                    "two ports have the same fixed address\nhelp: give each port another mac=";
                return Err(io::Error::other(equal));
            }
        }
        let engine = Self {
            ports: (0..count).map(|_| None).collect(),
            policies,
            stopped: vec![Bases::new(); count],
            table,
            lost: fault::lost_mappings(),
            started: Instant::now(),
            now: 0,
            events: Events::new()?,
            mirrored: handle.mirror.as_ref().map(|mirror| mirror.port),
            recorder: Recorder::new(),
            patience: (0..count).map(|_| Patience::default()).collect(),
            handle,
        };
        engine.events.add(&engine.handle.wake)?;
        Ok(engine)
    }

    /// Connects a port to a tap.
    ///
    /// # Errors
    /// The kernel refuses to wait for it.
    pub fn add_tap(&mut self, port: usize, tap: Tap) -> io::Result<()> {
        self.events.add(&tap)?;
        self.handle.counters[port].connections.add(1);
        self.ports[port] = Some(Port::Tap(Box::new(tap)));
        Ok(())
    }

    /// Forwards frames for ever.
    pub fn run(&mut self, wait: Wait) -> ! {
        // A switch that sleeps at once polls an idle port only once: its guests may need the CPU.
        let idle_polls = match wait {
            Wait::Sleep(Duration::ZERO) => 1,
            _ => POLLS,
        };
        let mut work = Work::default();
        let (mut polls, mut last) = (0, Instant::now());
        loop {
            // The load alone costs no locked access in each turn.
            if self.handle.is_pending.load(Ordering::Acquire) {
                self.obey();
            }
            if fault::lost_mappings() != self.lost {
                self.fail_lost();
            }
            let has_worked = self.poll_all(&mut work);
            if let Some(mirror) = &self.handle.mirror {
                self.recorder.end_turn(mirror);
            }
            polls += 1;
            if has_worked && polls < POLLS {
                continue;
            }
            if has_worked || polls >= idle_polls {
                polls = 0;
                let now = Instant::now();
                self.now = now.duration_since(self.started).as_secs() as u32;
                if has_worked {
                    last = now;
                }
                if let Wait::Sleep(after) = wait {
                    if now.duration_since(last) >= after {
                        self.sleep();
                        last = Instant::now();
                    }
                }
            }
            if !has_worked {
                std::hint::spin_loop();
            }
        }
    }

    /// Forwards a batch of each queue of all ports. Returns whether there were frames.
    fn poll_all(&mut self, work: &mut Work) -> bool {
        let mut has_worked = false;
        for port in 0..self.ports.len() {
            has_worked |= self.poll(port, work);
        }
        has_worked
    }

    /// Executes commands.
    fn obey(&mut self) {
        self.handle.is_pending.swap(false, Ordering::SeqCst);
        let handle = Arc::clone(&self.handle);
        let commands = handle.commands.lock();
        let commands = std::mem::take(&mut *commands.unwrap_or_else(PoisonError::into_inner));
        for command in commands {
            match command {
                Command::Attach(port, active, is_new) => {
                    if is_new {
                        self.table.clear(port);
                    }
                    self.attach(port, active);
                }
                Command::Detach(port, reply) => {
                    let mut bases = self.detach(port);
                    bases.append(&mut self.stopped[port]);
                    let _gone = reply.send(bases);
                }
            }
        }
    }

    fn attach(&mut self, port: usize, mut active: Box<Active>) {
        self.stopped[port].clear();
        active.begin(&self.events);
        if !(active.receive.is_empty() || active.transmit.is_empty()) {
            self.handle.counters[port].connections.add(1);
        }
        self.ports[port] = Some(Port::Guest(active));
    }

    /// Removes a guest. Its addresses remain, so that frames to it are dropped, and not sent to all others.
    fn detach(&mut self, port: usize) -> Bases {
        let Some(Port::Guest(mut active)) = self.ports[port].take() else {
            return Bases::new();
        };
        active.end(&self.events);
        // What was returned in the batch in which another queue is invalid. The port is stopped anyway, and once its
        // notifications have taken too long there are no more.
        let mut is_slow = false;
        for queue in active.queues() {
            if is_slow {
                queue.ring.publish();
            } else {
                let sent = notify(&self.handle, &mut self.patience[port], port, queue);
                is_slow = sent.is_err();
            }
        }
        let queues = active.queues();
        queues
            .map(|queue| (queue.index, queue.ring.base()))
            .collect()
    }

    /// Stops a port whose driver has made an error.
    #[cold]
    fn fail(&mut self, port: usize, fault: Fault) {
        self.handle.counters[port].fail(fault);
        if let (Fault::Event(_), Some(Port::Guest(active))) = (fault, &mut self.ports[port]) {
            // The driver sees what was returned, but no more notifications are sent.
            for queue in active.queues() {
                queue.ring.publish();
            }
        }
        self.stopped[port] = self.detach(port);
    }

    /// Stops the ports whose memory was truncated.
    #[cold]
    fn fail_lost(&mut self) {
        self.lost = fault::lost_mappings();
        for port in 0..self.ports.len() {
            if matches!(&self.ports[port], Some(Port::Guest(active)) if active.memory.is_lost()) {
                self.fail(port, Fault::Truncated);
            }
        }
    }

    /// Removes a tap that was deleted.
    #[cold]
    fn lose(&mut self, port: usize) {
        self.table.clear(port);
        self.ports[port] = None;
    }

    /// Sleeps until a guest, a tap or another thread wakes the engine.
    fn sleep(&mut self) {
        let has_frames = self.set_notifications(true);
        if !has_frames && !self.handle.is_pending.load(Ordering::Acquire) {
            let mirror = self.handle.mirror.as_ref();
            let has_copies = mirror.is_some_and(|mirror| self.recorder.end_turn(mirror));
            self.events.wait(has_copies.then_some(INTERVAL));
        }
        self.set_notifications(false);
    }

    /// Returns whether a frame may be available.
    fn set_notifications(&mut self, are_wanted: bool) -> bool {
        let mut is_available = false;
        for port in self.ports.iter_mut().flatten() {
            is_available |= port.set_notifications(are_wanted);
        }
        is_available
    }

    /// Forwards a batch of each queue of a port. Returns whether there were frames.
    fn poll(&mut self, port: usize, work: &mut Work) -> bool {
        let Some(mut source) = self.ports[port].take() else {
            return false;
        };
        work.turn = work.turn.wrapping_add(1);
        let batch = match &mut source {
            Port::Guest(active) => self.take_of_guest(port, active, work),
            Port::Tap(tap) => self.take_of_tap(port, tap, work),
        };
        self.settle(port, work);
        self.ports[port] = Some(source);
        match batch.end {
            End::Open => {}
            End::Fault(fault) => self.fail(port, fault),
            End::Gone => self.lose(port),
        }
        batch.has_frames
    }

    /// Forwards a batch of each queue of a guest.
    #[inline]
    fn take_of_guest(&mut self, port: usize, source: &mut Active, work: &mut Work) -> Batch {
        let mut batch = Batch::default();
        let count = source.transmit.len();
        let mut room = LARGEST_TURN;
        // A queue for which there is no room any more is the first one of the next turn.
        let first = std::mem::take(&mut source.first);
        for index in (first..count).chain(0..first) {
            if room == 0 {
                source.first = index;
                break;
            }
            let queue = &mut source.transmit[index];
            match work.take(&source.memory, queue, room) {
                Ok(bytes) => room = room.saturating_sub(bytes),
                Err(fault) => batch.end = End::Fault(fault),
            }
            batch.has_frames |= !work.frames.is_empty();
            let frames = std::mem::take(&mut work.frames);
            for frame in &frames {
                self.forward((port, index), frame, work);
                queue.ring.give(frame, 0);
            }
            work.frames = frames;
            if let Err(fault) = notify(&self.handle, &mut self.patience[port], port, queue) {
                batch.end = End::Fault(fault);
                break;
            }
        }
        batch
    }

    /// Forwards a batch of a tap.
    fn take_of_tap(&mut self, port: usize, tap: &mut Tap, work: &mut Work) -> Batch {
        let mut batch = Batch::default();
        if !tap.is_due() {
            return batch;
        }
        for _ in 0..BATCH {
            match tap.read() {
                Arrival::Frame(frame) => self.forward((port, 0), &frame, work),
                Arrival::Nothing => break,
                Arrival::Gone => {
                    batch.end = End::Gone;
                    break;
                }
            }
            batch.has_frames = true;
        }
        batch
    }

    /// Counts the frames of a batch, and notifies their receivers.
    #[inline]
    fn settle(&mut self, port: usize, work: &mut Work) {
        let sent = std::mem::take(&mut work.sent);
        add(&self.handle.counters[port].sent, sent);
        for Touched {
            port,
            index,
            received,
        } in work.touched.drain(..)
        {
            add(&self.handle.counters[port].received, received);
            if let Some(Port::Guest(receiver)) = &mut self.ports[port] {
                let queue = &mut receiver.receive[index];
                if let Err(fault) = notify(&self.handle, &mut self.patience[port], port, queue) {
                    self.fail(port, fault);
                }
            }
        }
    }

    /// Sends a frame to its destination, or to all ports.
    #[inline]
    fn forward(&mut self, (port, queue): (usize, usize), frame: &Chain, work: &mut Work) {
        let counters = &self.handle.counters[port];
        let length = frame.length.wrapping_sub(NET_HEADER);
        if frame.length < HEADERS as u32 || length > LONGEST {
            return counters.drop(Reason::Length);
        }
        let segments = frame.of(&work.segments);
        // All decisions are made by this copy, whatever the guest writes meanwhile.
        let header = read_header(segments);
        let (destination, source) = (header.destination(), header.source());
        work.sent[0] += 1;
        work.sent[1] += u64::from(length);
        if source.is_invalid_source() {
            return counters.drop(Reason::Source);
        }
        let learnt = if self.policies[port].permits(source) {
            self.table.learn(source, port, self.now)
        } else {
            Learnt::OfOther
        };
        self.copy_to_mirror(port, header, segments, frame.length);
        let counters = &self.handle.counters[port];
        match learnt {
            Learnt::Known => {}
            Learnt::NoRoom => counters.not_learnt.add(1),
            Learnt::OfOther => return counters.drop(Reason::Spoofed),
        }
        if destination.is_link_local() {
            return counters.drop(Reason::LinkLocal);
        }
        let found = if destination.is_group() {
            None
        } else {
            self.table.port(destination, self.now)
        };
        match found {
            Some(found) if found == port => counters.drop(Reason::SamePort),
            Some(found) if self.are_isolated(port, found) => counters.drop(Reason::Isolated),
            Some(found) => self.deliver(found, queue, frame, header, work),
            None => self.flood((port, queue), frame, header, work),
        }
    }

    /// Returns whether no frame goes from the one port to the other.
    #[inline]
    fn are_isolated(&self, one: usize, other: usize) -> bool {
        self.policies[one].is_isolated && self.policies[other].is_isolated
    }

    /// Copies a frame to all other ports. One with a fixed address gets no frame to another card.
    fn flood(
        &mut self,
        (port, queue): (usize, usize),
        frame: &Chain,
        header: Header,
        work: &mut Work,
    ) {
        let is_group = header.destination().is_group();
        for other in (0..self.ports.len()).filter(|other| *other != port) {
            let is_wanted = is_group || self.policies[other].mac.is_none();
            if is_wanted && self.ports[other].is_some() && !self.are_isolated(port, other) {
                self.deliver(other, queue, frame, header, work);
            }
        }
    }

    /// Copies a frame to a port.
    #[inline]
    fn deliver(
        &mut self,
        port: usize,
        queue: usize,
        frame: &Chain,
        header: Header,
        work: &mut Work,
    ) {
        let delivered = match &mut self.ports[port] {
            Some(Port::Guest(receiver)) => receive(receiver, queue, frame, header, work),
            Some(Port::Tap(tap)) => match tap.write(header, frame.of(&work.segments)) {
                Ok(()) => Ok(0),
                Err(reason) => Err(Refused::Drop(reason)),
            },
            None => Err(Refused::Drop(Reason::Down)),
        };
        match delivered {
            Ok(index) => {
                let received = work.received(port, index);
                received[0] += 1;
                received[1] += u64::from(frame.length - NET_HEADER);
                self.copy_to_mirror(port, header, frame.of(&work.segments), frame.length);
            }
            Err(Refused::Drop(reason)) => self.handle.counters[port].drop(reason),
            Err(Refused::Fault(fault)) => self.fail(port, fault),
        }
    }

    /// Copies a frame to the mirror if it is that of this port.
    #[inline]
    fn copy_to_mirror(&mut self, port: usize, header: Header, segments: &[Segment], length: u32) {
        if self.mirrored == Some(port) {
            if let Some(mirror) = &self.handle.mirror {
                self.recorder.add(mirror, header, segments, length);
            }
        }
    }
}

/// Publishes returned buffers and notifies the driver, if that has asked for it.
///
/// # Errors
/// The notifications of the port take too long.
#[inline]
fn notify(
    handle: &Handle,
    patience: &mut Patience,
    port: usize,
    queue: &mut Queue,
) -> Result<(), Fault> {
    if !queue.ring.publish() {
        return Ok(());
    }
    let Some(call) = &queue.call else {
        return Ok(());
    };
    let counters = &handle.counters[port];
    counters.notifications.add(1);
    let spent = patience.spend(|| {
        // It was an event when it came.
        let _ignored = handle.notifier.notify(call);
    });
    spent.map_err(|Exhausted { cost, rest }| {
        counters.delay(rest);
        Fault::Event(cost.as_micros() as u32)
    })
}
