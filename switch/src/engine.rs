//! The thread that forwards frames.

use crate::copy::{copy, read_header, HEADERS};
use crate::counters::{Counter, Reason};
use crate::frame::{Header, LONGEST};
use crate::handle::{Bases, Command, Handle};
use crate::net_header::NET_HEADER;
use crate::port::{Active, Queue};
use crate::ring::{Chain, Direction, Fault};
use crate::table::Table;
use crate::work::{spread, Refused, Touched, Work, BATCH};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

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
    ports: Vec<Option<Box<Active>>>,
    table: Table,
    started: Instant,
    now: u32,
    epoll: OwnedFd,
    work: Work,
}

/// Adds frames and bytes.
fn add(counters: &[Counter; 2], counts: [u64; 2]) {
    for (counter, count) in counters.iter().zip(counts) {
        counter.add(count);
    }
}

impl Engine {
    /// Creates the engine of a handle.
    ///
    /// # Errors
    /// The kernel refuses to wait for events.
    pub fn new(handle: Arc<Handle>) -> io::Result<Self> {
        // SAFETY: returns a descriptor without another owner, or a negative number.
        let epoll = match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
            ..0 => return Err(io::Error::last_os_error()),
            // SAFETY: see above.
            fd => unsafe { OwnedFd::from_raw_fd(fd) },
        };
        let count = handle.counters.len();
        let engine = Self {
            ports: (0..count).map(|_| None).collect(),
            table: Table::new(count),
            started: Instant::now(),
            now: 0,
            epoll,
            work: Work::default(),
            handle,
        };
        engine.listen(&engine.handle.wake, libc::EPOLL_CTL_ADD)?;
        Ok(engine)
    }

    /// Begins or ends to wait for an event. It is never read: each write of it ends a sleep once.
    fn listen(&self, event: &File, operation: libc::c_int) -> io::Result<()> {
        let mut events = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: 0,
        };
        let (epoll, fd) = (self.epoll.as_raw_fd(), event.as_raw_fd());
        // SAFETY: both descriptors are open, and the kernel reads one structure.
        match unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut events) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Forwards frames for ever.
    ///
    /// # Errors
    /// The kernel refuses the watchdog's signal.
    pub fn run(&mut self, wait: Wait) -> io::Result<Infallible> {
        self.handle.progress.watch_this_thread()?;
        let (mut polls, mut last) = (0, Instant::now());
        loop {
            // The load alone costs no locked access in each turn.
            if self.handle.is_pending.load(Ordering::Acquire) {
                self.obey();
            }
            let has_worked = self.poll_all();
            polls += 1;
            if has_worked && polls < POLLS {
                continue;
            }
            if has_worked || polls >= POLLS {
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
    fn poll_all(&mut self) -> bool {
        let mut has_worked = false;
        for port in 0..self.ports.len() {
            has_worked |= self.poll(port);
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
                Command::Attach(port, active) => self.attach(port, active),
                Command::Detach(port, reply) => {
                    let bases = self.detach(port);
                    let _gone = reply.send(bases);
                }
            }
        }
    }

    fn attach(&mut self, port: usize, mut active: Box<Active>) {
        for queue in active.queues() {
            queue.ring.set_notifications(false);
            if let Some(kick) = &queue.kick {
                // One that cannot be waited for is found by polling after the next wake-up.
                let _ignored = self.listen(kick, libc::EPOLL_CTL_ADD);
            }
        }
        if !(active.receive.is_empty() || active.transmit.is_empty()) {
            self.handle.counters[port].connections.add(1);
        }
        self.ports[port] = Some(active);
    }

    fn detach(&mut self, port: usize) -> Bases {
        self.table.clear(port);
        let Some(mut active) = self.ports[port].take() else {
            return Bases::new();
        };
        for queue in active.queues() {
            if let Some(kick) = &queue.kick {
                let _ignored = self.listen(kick, libc::EPOLL_CTL_DEL);
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
        self.detach(port);
    }

    /// Sleeps until a guest or another thread wakes the engine.
    fn sleep(&mut self) {
        let has_buffers = self.set_notifications(true);
        if !has_buffers && !self.handle.is_pending.load(Ordering::Acquire) {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
            // SAFETY: the kernel writes at most 8 structures.
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 8, -1) };
        }
        self.set_notifications(false);
    }

    /// Returns whether a frame is available.
    fn set_notifications(&mut self, are_wanted: bool) -> bool {
        let mut is_available = false;
        for active in self.ports.iter_mut().flatten() {
            for queue in &mut active.transmit {
                queue.ring.set_notifications(are_wanted);
                is_available |= queue.ring.has_buffer();
            }
        }
        is_available
    }

    /// Forwards a batch of each queue of a port. Returns whether there were frames.
    fn poll(&mut self, port: usize) -> bool {
        let Some(mut source) = self.ports[port].take() else {
            return false;
        };
        let (mut has_worked, mut fault) = (false, None);
        let mut work = std::mem::take(&mut self.work);
        for (index, queue) in source.transmit.iter_mut().enumerate() {
            work.segments.clear();
            work.frames.clear();
            while work.frames.len() < BATCH {
                match queue
                    .ring
                    .take(&source.memory, Direction::Readable, &mut work.segments)
                {
                    Ok(Some(chain)) => work.frames.push(chain),
                    Ok(None) => break,
                    Err(found) => {
                        fault = Some(found);
                        break;
                    }
                }
            }
            has_worked |= !work.frames.is_empty();
            let frames = std::mem::take(&mut work.frames);
            for frame in &frames {
                self.forward((port, index), frame, &mut work);
                queue.ring.give(frame, 0);
            }
            work.frames = frames;
            notify(&self.handle, port, queue);
        }
        let counters = &self.handle.counters;
        add(&counters[port].sent, std::mem::take(&mut work.sent));
        for Touched {
            port,
            index,
            received,
        } in work.touched.drain(..)
        {
            add(&counters[port].received, received);
            if let Some(receiver) = &mut self.ports[port] {
                notify(&self.handle, port, &mut receiver.receive[index]);
            }
        }
        self.work = work;
        self.ports[port] = Some(source);
        if let Some(fault) = fault {
            self.fail(port, fault);
        }
        has_worked
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
        if !self.table.learn(source, port, self.now) {
            counters.not_learnt.add(1);
        }
        if destination.is_link_local() {
            return counters.drop(Reason::LinkLocal);
        }
        let found = match destination.is_group() {
            true => None,
            false => self.table.port(destination, self.now),
        };
        match found {
            Some(found) if found == port => counters.drop(Reason::SamePort),
            Some(found) => self.deliver(found, queue, frame, header, work),
            None => {
                for other in (0..self.ports.len()).filter(|other| *other != port) {
                    if self.ports[other].is_some() {
                        self.deliver(other, queue, frame, header, work);
                    }
                }
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
        let counters = &self.handle.counters[port];
        let Some(receiver) = &mut self.ports[port] else {
            return counters.drop(Reason::Down);
        };
        let index = match receiver.receive.len() {
            0 => return counters.drop(Reason::Down),
            1 => 0,
            count => queue % count,
        };
        let ring = &mut receiver.receive[index].ring;
        let mark = ring.mark();
        work.targets.clear();
        let first = match ring.take(&receiver.memory, Direction::Writable, &mut work.targets) {
            Ok(Some(first)) => first,
            Ok(None) => return counters.drop(Reason::NoBuffer),
            Err(fault) => return self.fail(port, fault),
        };
        if first.length >= frame.length {
            let (from, to) = (frame.of(&work.segments), first.of(&work.targets));
            copy(from, to, 1, header, frame.length);
            ring.give(&first, frame.length);
        } else if let Err(refused) = spread(receiver, index, frame, header, first, work) {
            match refused {
                Refused::Fault(fault) => return self.fail(port, fault),
                Refused::Drop(reason) => {
                    receiver.receive[index].ring.rewind(mark);
                    return counters.drop(reason);
                }
            }
        }
        let received = work.received(port, index);
        received[0] += 1;
        received[1] += u64::from(frame.length - NET_HEADER);
    }
}

/// Publishes returned buffers and notifies the driver, if that has asked for it.
#[inline]
fn notify(handle: &Handle, port: usize, queue: &mut Queue) {
    if !queue.ring.publish() {
        return;
    }
    if let Some(call) = &queue.call {
        handle.counters[port].notifications.add(1);
        // A guest that is not notified because its event is full or gone harms itself.
        let _ignored = handle.progress.notification(|| {
            let mut call = call;
            call.write(&1_u64.to_ne_bytes())
        });
    }
}
