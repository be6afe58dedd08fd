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
use vmm_sys_util::eventfd::EventFd;

/// Bytes of a buffer.
pub const BUFFER: u32 = 2048;

/// Guest-physical address of the memory.
const GUEST: u64 = 0x1_0000_0000;

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

const VERSION_1: u64 = 1 << 32;
const RING_PACKED: u64 = 1 << 34;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const MRG_RXBUF: u64 = 1 << 15;

/// Format and size of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Packed queues, not split ones.
    pub is_packed: bool,
    /// Descriptors of each queue, a power of two.
    pub size: u16,
    /// A frame may take several buffers.
    pub is_mergeable: bool,
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
    /// Offset of the first buffer in memory.
    buffers: u64,
    free: Vec<u16>,
    kick: EventFd,
    call: EventFd,
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
    receive: Side,
    transmit: Side,
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
        let size = u64::from(setup.size);
        let [_, _, queue] = match setup.is_packed {
            true => PackedDriver::layout(setup.size),
            false => SplitDriver::layout(setup.size),
        };
        let queue = queue.next_multiple_of(4096);
        let buffers = size * u64::from(BUFFER);
        let length = 2 * (queue + buffers);
        let file = memory_file(length)?;
        let memory = map(&file, length as usize)?;
        let side = |index: usize| -> io::Result<Side> {
            // SAFETY: both queues lie in the mapping, page by page, and the driver is dropped before it.
            let driver = unsafe {
                let start = memory.add(index * queue as usize);
                match setup.is_packed {
                    true => Either::Packed(PackedDriver::new(start, setup.size)),
                    false => Either::Split(SplitDriver::new(start, setup.size)),
                }
            };
            Ok(Side {
                driver,
                buffers: 2 * queue + index as u64 * buffers,
                free: (0..setup.size).rev().collect(),
                kick: EventFd::new(libc::EFD_NONBLOCK)?,
                call: EventFd::new(libc::EFD_NONBLOCK)?,
            })
        };
        let mut peer = Self {
            frontend: Frontend::from_stream(socket, 2),
            file,
            memory,
            length: length as usize,
            queue: queue as usize,
            size: setup.size,
            receive: side(RECEIVE)?,
            transmit: side(TRANSMIT)?,
            kicks: 0,
        };
        for side in [&mut peer.receive, &mut peer.transmit] {
            // It polls.
            side.driver.set_notifications(false);
        }
        peer.negotiate(setup, queue)?;
        peer.refill();
        Ok(peer)
    }

    fn negotiate(&mut self, setup: Setup, queue: u64) -> Result<(), PeerError> {
        let frontend = &mut self.frontend;
        frontend.set_owner()?;
        let mut features = VERSION_1 | PROTOCOL_FEATURES;
        features |= if setup.is_packed { RING_PACKED } else { 0 };
        features |= if setup.is_mergeable { MRG_RXBUF } else { 0 };
        let offered = frontend.get_features()?;
        frontend.set_features(features & offered)?;
        let protocol = frontend.get_protocol_features()?;
        frontend.set_protocol_features(protocol & VhostUserProtocolFeatures::MQ)?;
        let user = self.memory.as_ptr() as u64;
        frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: self.length as u64,
            userspace_addr: user,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }])?;
        let [driver, device, _] = match setup.is_packed {
            true => PackedDriver::layout(setup.size),
            false => SplitDriver::layout(setup.size),
        };
        let base = if setup.is_packed { 0x8000 } else { 0 };
        for (index, side) in [(RECEIVE, &self.receive), (TRANSMIT, &self.transmit)] {
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
        Ok(())
    }

    /// Returns the bytes of a buffer.
    /// Returns the first byte of a buffer.
    fn start(&self, offset: u64, id: u16) -> NonNull<u8> {
        let start = offset as usize + usize::from(id) * BUFFER as usize;
        // SAFETY: the buffer is in the mapping.
        unsafe { self.memory.add(start) }
    }

    fn buffer(&mut self, offset: u64, id: u16) -> &mut [u8] {
        let start = self.start(offset, id).as_ptr();
        // SAFETY: the buffer is in the mapping. The device accesses it only while it is available.
        unsafe { std::slice::from_raw_parts_mut(start, BUFFER as usize) }
    }

    fn address(offset: u64, id: u16) -> u64 {
        GUEST + offset + u64::from(id) * u64::from(BUFFER)
    }

    /// Makes all free receive buffers available.
    pub fn refill(&mut self) {
        let side = &mut self.receive;
        while let Some(id) = side.free.pop() {
            side.driver
                .add(id, Self::address(side.buffers, id), BUFFER, true);
        }
        side.driver.publish();
    }

    /// Takes back the buffers that the switch has read.
    fn reclaim(&mut self) {
        while let Some(returned) = self.transmit.driver.next() {
            self.transmit.free.push(returned.id);
        }
    }

    /// Sends up to `most` frames. `fill` writes a frame and returns its length. Returns the number of frames.
    pub fn send(&mut self, most: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        self.reclaim();
        for id in self.transmit.free.iter().rev().take(most) {
            prefetch::for_writing(self.start(self.transmit.buffers, *id), BUFFER);
        }
        let mut sent = 0;
        while sent < most {
            let Some(id) = self.transmit.free.pop() else {
                break;
            };
            let offset = self.transmit.buffers;
            let buffer = self.buffer(offset, id);
            buffer[..NET_HEADER as usize].fill(0);
            let length = fill(&mut buffer[NET_HEADER as usize..]) as u32 + NET_HEADER;
            self.transmit
                .driver
                .add(id, Self::address(offset, id), length, false);
            sent += 1;
        }
        if sent > 0 {
            self.transmit.driver.publish();
            if self.transmit.driver.wants_notification() {
                self.kicks += 1;
                let _full = self.transmit.kick.write(1);
            }
        }
        sent
    }

    /// Sends a frame whose address is not in memory.
    pub fn corrupt(&mut self) {
        self.transmit.driver.add(0, GUEST - 1, BUFFER, false);
        self.transmit.driver.publish();
        let _full = self.transmit.kick.write(1);
    }

    /// Returns the first byte of the transmit queue, and its number of descriptors.
    pub(super) fn transmit_queue(&self) -> (NonNull<u8>, u16) {
        // SAFETY: the second queue lies in the mapping.
        let start = unsafe { self.memory.add(TRANSMIT * self.queue) };
        (start, self.size)
    }

    /// Shows a transmit buffer without its net header. Returns its address in the guest.
    pub(super) fn transmit_buffer(&mut self, id: u16, write: impl FnOnce(&mut [u8])) -> u64 {
        let offset = self.transmit.buffers;
        write(&mut self.buffer(offset, id)[NET_HEADER as usize..]);
        Self::address(offset, id)
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
        self.reclaim();
        usize::from(self.size) - self.transmit.free.len()
    }

    /// Shows the frames that have arrived, and makes their buffers available again. Returns their number.
    pub fn receive(&mut self, mut visit: impl FnMut(&[u8])) -> usize {
        let mut all = 0;
        loop {
            let count = self.receive_batch(&mut visit);
            all += count;
            if count < BATCH {
                return all;
            }
        }
    }

    fn receive_batch(&mut self, visit: &mut impl FnMut(&[u8])) -> usize {
        let offset = self.receive.buffers;
        let mut batch = [Returned::default(); BATCH];
        let mut count = 0;
        while count < BATCH {
            let Some(returned) = self.receive.driver.next() else {
                break;
            };
            prefetch::for_reading(self.start(offset, returned.id), returned.written);
            batch[count] = returned;
            count += 1;
        }
        for returned in &batch[..count] {
            let end = returned.written.min(BUFFER) as usize;
            let buffer = self.buffer(offset, returned.id);
            visit(buffer.get(NET_HEADER as usize..end).unwrap_or_default());
            self.receive.free.push(returned.id);
        }
        if count > 0 {
            self.refill();
        }
        count
    }

    /// Returns the notifications that were sent, and those that came. It asks for none.
    pub fn notifications(&self) -> [u64; 2] {
        let calls = [&self.receive, &self.transmit].map(|side| side.call.read().unwrap_or(0));
        [self.kicks, calls.into_iter().sum()]
    }

    /// Stops the queues, as a VMM does that pauses. Returns their positions.
    ///
    /// # Errors
    /// The switch has gone.
    pub fn stop(&self) -> Result<[u32; 2], PeerError> {
        let positions = [RECEIVE, TRANSMIT].map(|index| self.frontend.get_vring_base(index));
        let [receive, transmit] = positions;
        Ok([receive?, transmit?])
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: the mapping is that of this peer, whose drivers are not used any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}
