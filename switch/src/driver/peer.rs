//! A guest with a network card, without a VM: a front end of vhost-user and the driver of its queues in one process.

use super::{memory_file, Driver, Either, PackedDriver, Returned, SplitDriver, BATCH};
use crate::net_header::NET_HEADER;
use crate::prefetch;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::{self, NonNull};
use thiserror::Error;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

/// Bytes of a buffer.
pub const BUFFER: u32 = 2048;

/// Times that an epoll instance waits for an event: a descriptor can be added once.
const WAITERS: usize = 200;

/// Guest-physical address of the memory.
const GUEST: u64 = 0x1_0000_0000;

/// Numbers of the queues of the first pair. Those of the others follow in the same order.
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

const VERSION_1: u64 = 1 << 32;
const RING_PACKED: u64 = 1 << 34;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const MRG_RXBUF: u64 = 1 << 15;
const MQ: u64 = 1 << 22;

/// Format, size and number of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Packed queues, not split ones.
    pub is_packed: bool,
    /// Descriptors of each queue, a power of two.
    pub size: u16,
    /// A frame may take several buffers.
    pub is_mergeable: bool,
    /// Pairs of queues.
    pub pairs: usize,
    /// Regions of the memory, all queues in the first one. The borders of the others lie within buffers.
    pub regions: usize,
}

impl Setup {
    /// One pair of split queues.
    pub const SPLIT: Self = Self {
        is_packed: false,
        size: 256,
        is_mergeable: false,
        pairs: 1,
        regions: 1,
    };
}

/// The reason why a peer cannot be connected.
#[derive(Debug, Error)]
pub enum PeerError {
    /// A system call has failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The switch refuses.
    #[error(transparent)]
    Protocol(#[from] vhost::Error),
    /// The same, by a request of vhost-user.
    #[error(transparent)]
    User(#[from] vhost::vhost_user::Error),
}

/// A queue with its buffers.
struct Side {
    driver: Either,
    /// First byte of the buffers.
    buffers: NonNull<u8>,
    /// Its address in the guest.
    guest: u64,
    free: Vec<u16>,
    kick: EventFd,
    call: EventFd,
}

impl Side {
    /// Returns the first byte of a buffer.
    fn start(&self, id: u16) -> NonNull<u8> {
        // SAFETY: the buffer is in the mapping.
        unsafe { self.buffers.add(usize::from(id) * BUFFER as usize) }
    }

    fn buffer(&mut self, id: u16) -> &mut [u8] {
        let start = self.start(id).as_ptr();
        // SAFETY: the buffer is in the mapping. The device accesses it only while it is available.
        unsafe { std::slice::from_raw_parts_mut(start, BUFFER as usize) }
    }

    fn address(&self, id: u16) -> u64 {
        self.guest + u64::from(id) * u64::from(BUFFER)
    }

    /// Makes all free buffers available to receive.
    fn refill(&mut self) {
        while let Some(id) = self.free.pop() {
            self.driver.add(id, self.address(id), BUFFER, true);
        }
        self.driver.publish();
    }

    /// Takes back the buffers that the device has read.
    fn reclaim(&mut self) {
        while let Some(returned) = self.driver.next() {
            self.free.push(returned.id);
        }
    }

    /// Shows a batch of the frames that have arrived, and makes their buffers available again. Returns their number.
    fn receive_batch(&mut self, visit: &mut impl FnMut(&[u8])) -> usize {
        let mut batch = [Returned::default(); BATCH];
        let mut count = 0;
        while count < BATCH {
            let Some(returned) = self.driver.next() else {
                break;
            };
            prefetch::for_reading(self.start(returned.id), returned.written);
            batch[count] = returned;
            count += 1;
        }
        for returned in &batch[..count] {
            let end = returned.written.min(BUFFER) as usize;
            let buffer = self.buffer(returned.id);
            visit(buffer.get(NET_HEADER as usize..end).unwrap_or_default());
            self.free.push(returned.id);
        }
        if count > 0 {
            self.refill();
        }
        count
    }
}

/// A connected peer.
pub struct Peer {
    frontend: Frontend,
    /// The file of the memory.
    pub file: File,
    memory: NonNull<u8>,
    length: usize,
    /// Length of a queue in bytes, and its number of descriptors.
    queue: usize,
    size: u16,
    /// The queues by their numbers: one to receive and one to send, for each pair.
    queues: Vec<Side>,
    kicks: u64,
}

// SAFETY: the mapping may be accessed by all threads.
unsafe impl Send for Peer {}

fn map(file: &File, length: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: a new mapping at an address that the kernel selects.
    match unsafe { libc::mmap(ptr::null_mut(), length, access, flags, file.as_raw_fd(), 0) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        at => NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

impl Peer {
    /// Connects to a port of a switch, and gives it all receive buffers.
    ///
    /// # Errors
    /// The switch is not there, or refuses.
    pub fn connect(path: &Path, setup: Setup) -> Result<Self, PeerError> {
        Self::over(UnixStream::connect(path)?, setup)
    }

    /// The same over a connected socket.
    ///
    /// # Errors
    /// The switch refuses.
    pub fn over(socket: UnixStream, setup: Setup) -> Result<Self, PeerError> {
        Self::in_file(socket, setup, memory_file)
    }

    /// The same with memory in a file that `create` makes with at least a number of bytes.
    ///
    /// # Errors
    /// There is no memory, or the switch refuses.
    pub fn in_file(
        socket: UnixStream,
        setup: Setup,
        create: impl FnOnce(u64) -> io::Result<File>,
    ) -> Result<Self, PeerError> {
        let size = u64::from(setup.size);
        let [_, _, queue] = if setup.is_packed {
            PackedDriver::layout(setup.size)
        } else {
            SplitDriver::layout(setup.size)
        };
        let queue = queue.next_multiple_of(4096);
        let buffers = size * u64::from(BUFFER);
        let count = 2 * setup.pairs;
        let length = count as u64 * (queue + buffers);
        let file = create(length)?;
        let memory = map(&file, length as usize)?;
        let side = |index: usize| -> io::Result<Side> {
            let offset = count as u64 * queue + index as u64 * buffers;
            // SAFETY: all queues and then all buffers lie in the mapping, page by page. The driver is dropped before it.
            let (driver, first) = unsafe {
                let start = memory.add(index * queue as usize);
                let driver = if setup.is_packed {
                    Either::Packed(PackedDriver::new(start, setup.size))
                } else {
                    Either::Split(SplitDriver::new(start, setup.size))
                };
                (driver, memory.add(offset as usize))
            };
            Ok(Side {
                driver,
                buffers: first,
                guest: GUEST + offset,
                free: (0..setup.size).rev().collect(),
                kick: EventFd::new(libc::EFD_NONBLOCK)?,
                call: EventFd::new(libc::EFD_NONBLOCK)?,
            })
        };
        let mut peer = Self {
            frontend: Frontend::from_stream(socket, count as u64),
            file,
            memory,
            length: length as usize,
            queue: queue as usize,
            size: setup.size,
            queues: (0..count).map(side).collect::<io::Result<_>>()?,
            kicks: 0,
        };
        for side in &mut peer.queues {
            // It polls.
            side.driver.set_notifications(false);
        }
        peer.negotiate(setup, queue)?;
        for side in peer.queues.iter_mut().skip(RECEIVE).step_by(2) {
            side.refill();
        }
        Ok(peer)
    }

    fn negotiate(&mut self, setup: Setup, queue: u64) -> Result<(), PeerError> {
        let frontend = &mut self.frontend;
        frontend.set_owner()?;
        let mut features = VERSION_1 | PROTOCOL_FEATURES;
        features |= if setup.is_packed { RING_PACKED } else { 0 };
        features |= if setup.is_mergeable { MRG_RXBUF } else { 0 };
        features |= if setup.pairs > 1 { MQ } else { 0 };
        let offered = frontend.get_features()?;
        frontend.set_features(features & offered)?;
        let protocol = frontend.get_protocol_features()?;
        let used = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        frontend.set_protocol_features(protocol & used)?;
        let user = self.memory.as_ptr() as u64;
        let (file, length) = (self.file.as_raw_fd(), self.length as u64);
        let queues = self.queues.len() as u64 * queue;
        let part = (length - queues) / setup.regions as u64;
        let border = |index: usize| match index {
            0 => 0,
            last if last == setup.regions => length,
            // A buffer is longer than that.
            _ => queues + index as u64 * part + 1000,
        };
        for index in 0..setup.regions {
            let region = VhostUserMemoryRegionInfo {
                guest_phys_addr: GUEST + border(index),
                memory_size: border(index + 1) - border(index),
                userspace_addr: user + border(index),
                mmap_offset: border(index),
                mmap_handle: file,
            };
            match index {
                0 => drop(frontend.set_mem_table(&[region])?),
                _ => drop(frontend.add_mem_region(&region)?),
            }
        }
        let [driver, device, _] = if setup.is_packed {
            PackedDriver::layout(setup.size)
        } else {
            SplitDriver::layout(setup.size)
        };
        let base = if setup.is_packed { 0x8000 } else { 0 };
        for (index, side) in self.queues.iter().enumerate() {
            let start = user + index as u64 * queue;
            frontend.set_vring_num(index, setup.size)?;
            frontend.set_vring_base(index, base)?;
            let addresses = VringConfigData {
                queue_max_size: setup.size,
                queue_size: setup.size,
                flags: 0,
                desc_table_addr: start,
                used_ring_addr: start + device,
                avail_ring_addr: start + driver,
                log_addr: None,
            };
            frontend.set_vring_addr(index, &addresses)?;
            frontend.set_vring_call(index, &side.call)?;
            frontend.set_vring_kick(index, &side.kick)?;
            frontend.set_vring_enable(index, true)?;
        }
        // Its answer comes behind all queues.
        frontend.get_features()?;
        Ok(())
    }

    /// Sends up to `most` frames by the first pair. `fill` writes a frame and returns its length. Returns the number of frames.
    pub fn send(&mut self, most: usize, fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        self.send_by(0, most, fill)
    }

    /// The same by a pair of queues.
    pub fn send_by(
        &mut self,
        pair: usize,
        most: usize,
        mut fill: impl FnMut(&mut [u8]) -> usize,
    ) -> usize {
        let side = &mut self.queues[2 * pair + TRANSMIT];
        side.reclaim();
        for id in side.free.iter().rev().take(most) {
            prefetch::for_writing(side.start(*id), BUFFER);
        }
        let mut sent = 0;
        while sent < most {
            let Some(id) = side.free.pop() else {
                break;
            };
            let buffer = side.buffer(id);
            buffer[..NET_HEADER as usize].fill(0);
            let length = fill(&mut buffer[NET_HEADER as usize..]) as u32 + NET_HEADER;
            side.driver.add(id, side.address(id), length, false);
            sent += 1;
        }
        if sent > 0 {
            side.driver.publish();
            if side.driver.wants_notification() {
                self.kicks += 1;
                let _full = side.kick.write(1);
            }
        }
        sent
    }

    /// Sends a frame whose address is not in memory.
    pub fn corrupt(&mut self) {
        let side = &mut self.queues[TRANSMIT];
        side.driver.add(0, GUEST - 1, BUFFER, false);
        side.driver.publish();
        let _full = side.kick.write(1);
    }

    /// Fills the events of all queues, of which each further write waits, and asks for all notifications.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn fill_events(&mut self) -> io::Result<()> {
        for side in &mut self.queues {
            side.call.write(u64::MAX - 1)?;
            // SAFETY: changes the flags of an open file.
            if unsafe { libc::fcntl(side.call.as_raw_fd(), libc::F_SETFL, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
            side.driver.set_notifications(true);
        }
        Ok(())
    }

    /// Lets a number of epoll instances wait for the event of the first pair's receive queue, each many times, and asks for all
    /// notifications. They wait until what is returned is dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait_for_event(&mut self, instances: usize) -> io::Result<(Vec<Epoll>, Vec<EventFd>)> {
        let side = &mut self.queues[RECEIVE];
        side.driver.set_notifications(true);
        let copies = (0..WAITERS).map(|_| side.call.try_clone());
        let copies = copies.collect::<io::Result<Vec<_>>>()?;
        let instances = (0..instances).map(|_| {
            let epoll = Epoll::new()?;
            for copy in &copies {
                let event = EpollEvent::new(EventSet::IN, 0);
                epoll.ctl(ControlOperation::Add, copy.as_raw_fd(), event)?;
            }
            Ok(epoll)
        });
        Ok((instances.collect::<io::Result<_>>()?, copies))
    }

    /// Sends a message by which the switch stops and starts the port.
    ///
    /// # Errors
    /// The switch has gone.
    pub fn restart(&mut self) -> Result<(), PeerError> {
        Ok(self.frontend.set_vring_enable(TRANSMIT, true)?)
    }

    /// Returns the first byte of the transmit queue, and its number of descriptors.
    pub(super) fn transmit_queue(&self) -> (NonNull<u8>, u16) {
        // SAFETY: the second queue lies in the mapping.
        let start = unsafe { self.memory.add(TRANSMIT * self.queue) };
        (start, self.size)
    }

    /// Shows a transmit buffer without its net header. Returns its address in the guest.
    pub(super) fn transmit_buffer(&mut self, id: u16, write: impl FnOnce(&mut [u8])) -> u64 {
        let side = &mut self.queues[TRANSMIT];
        write(&mut side.buffer(id)[NET_HEADER as usize..]);
        side.address(id)
    }

    /// Starts the transmit queue at a position, or stops it, as a VMM does whose driver resets the device.
    pub(super) fn restart_transmit(
        &mut self,
        base: u16,
        is_started: bool,
    ) -> Result<(), PeerError> {
        self.frontend.set_vring_enable(TRANSMIT, false)?;
        self.frontend.set_vring_base(TRANSMIT, base)?;
        Ok(self.frontend.set_vring_enable(TRANSMIT, is_started)?)
    }

    /// Returns the number of frames that the switch has not read yet.
    pub fn unsent(&mut self) -> usize {
        let size = usize::from(self.size);
        let transmit = self.queues.iter_mut().skip(TRANSMIT).step_by(2);
        let unsent = transmit.map(|side| {
            side.reclaim();
            size - side.free.len()
        });
        unsent.sum()
    }

    /// Shows the frames that have arrived, and makes their buffers available again. Returns their number.
    pub fn receive(&mut self, mut visit: impl FnMut(&[u8])) -> usize {
        let mut all = 0;
        for side in self.queues.iter_mut().skip(RECEIVE).step_by(2) {
            loop {
                let count = side.receive_batch(&mut visit);
                all += count;
                if count < BATCH {
                    break;
                }
            }
        }
        all
    }

    /// Returns the notifications that were sent, and those that came. It asks for none.
    pub fn notifications(&self) -> [u64; 2] {
        let calls = self.queues.iter().map(|side| side.call.read().unwrap_or(0));
        [self.kicks, calls.sum()]
    }

    /// Stops the queues, as a VMM does that pauses. Returns their positions, by their numbers.
    ///
    /// # Errors
    /// The switch has gone.
    pub fn stop(&self) -> Result<Vec<u32>, PeerError> {
        let queues = 0..self.queues.len();
        let positions = queues.map(|index| self.frontend.get_vring_base(index));
        Ok(positions.collect::<Result<_, _>>()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: the mapping is that of this peer, whose drivers are not used any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}
