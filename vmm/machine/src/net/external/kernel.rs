//! The kernel as the one that serves a card's queues: vhost-net (Linux, include/uapi/linux/vhost.h).

use crate::net::Tap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use trapline_monitor::virtio::net::{Offloads, FRAMES};
use trapline_monitor::virtio::Memory;
use vhost::net::VhostNet;
use vhost::vhost_kern::net::Net;
use vhost::VhostBackend;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// A tap of which the kernel takes frames, and to which it writes them.
pub struct Kernel {
    pub net: Net<Arc<GuestMemoryMmap>>,
    tap: Tap,
    /// The same tap, as a file for `VHOST_NET_SET_BACKEND`.
    file: File,
    /// What the kernel itself implements; offloads are the tap's.
    pub implemented: u64,
}

impl Kernel {
    /// Opens vhost-net for this tap.
    ///
    /// # Errors
    /// The kernel has none, or this user has no access to it.
    pub fn open(tap: Tap, memory: &Memory) -> io::Result<Self> {
        let net = Net::new(Arc::new(describe(memory)?)).map_err(io::Error::other)?;
        net.set_owner().map_err(io::Error::other)?;
        let implemented = net.get_features().map_err(io::Error::other)?;
        let file = File::from(tap.as_fd().try_clone_to_owned()?);
        Ok(Self {
            net,
            tap,
            file,
            implemented,
        })
    }

    /// Returns the features that a card can offer.
    pub fn offered(&self) -> u64 {
        self.implemented | FRAMES
    }

    /// Prepares the tap and the kernel for what the driver has accepted.
    pub fn accept(&self, features: u64) -> Result<(), io::Error> {
        self.tap.leave(Offloads::received(features))?;
        let accepted = self.net.set_features(features & self.implemented);
        accepted.map_err(io::Error::other)
    }

    /// Connects a queue with the tap, or disconnects it: then the kernel does not access guest memory for it.
    pub fn connect(&self, index: usize, is_connected: bool) -> Result<(), vhost::Error> {
        self.net
            .set_backend(index, is_connected.then_some(&self.file))
    }
}

/// Describes the memory of a guest to the crates that check addresses in it.
fn describe(memory: &Memory) -> io::Result<GuestMemoryMmap> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let regions = memory.pieces().map(|(at, length)| {
        let start = memory.pointer(at as u64, length);
        let start = start.ok_or(io::ErrorKind::InvalidInput)?.as_ptr();
        // SAFETY: the memory is mapped, and until this process ends. The result does not unmap it.
        let mapping = unsafe { MmapRegion::build_raw(start, length, access, libc::MAP_SHARED) };
        let region =
            GuestRegionMmap::new(mapping.map_err(io::Error::other)?, GuestAddress(at as u64));
        region.ok_or(io::Error::from(io::ErrorKind::InvalidInput))
    });
    let regions = regions.collect::<io::Result<_>>()?;
    GuestMemoryMmap::from_regions(regions).map_err(io::Error::other)
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the tap owns the descriptor.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}
