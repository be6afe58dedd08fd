//! Requests to Xen, by `/dev/xen/privcmd` (Linux `include/uapi/xen/privcmd.h`).

use crate::ioctl::{open, request, request_number};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use trapline_interface::{Missing, PAGE};

const DEVICE: &str = "/dev/xen/privcmd";

const HYPERCALL: libc::c_ulong = request_number(b'P', 0, size_of::<Hypercall>());
const MAP_BATCH: libc::c_ulong = request_number(b'P', 4, size_of::<Batch>());
const DM_OP: libc::c_ulong = request_number(b'P', 5, size_of::<DeviceModelOperation>());
const RESTRICT: libc::c_ulong = request_number(b'P', 6, size_of::<u16>());
const MAP_RESOURCE: libc::c_ulong = request_number(b'P', 7, size_of::<Resource>());

/// `privcmd_hypercall`.
#[repr(C)]
struct Hypercall {
    number: u64,
    arguments: [u64; 5],
}

/// `privcmd_mmapbatch_v2`.
#[repr(C)]
struct Batch {
    count: u32,
    domain: u16,
    address: u64,
    frames: *const u64,
    errors: *mut libc::c_int,
}

/// `privcmd_dm_op_buf`.
#[repr(C)]
struct Buffer {
    start: *mut libc::c_void,
    size: usize,
}

/// `privcmd_dm_op`.
#[repr(C)]
struct DeviceModelOperation {
    domain: u16,
    buffers: u16,
    buffer: *const Buffer,
}

/// `privcmd_mmap_resource`.
#[repr(C)]
struct Resource {
    domain: u16,
    kind: u32,
    id: u32,
    first: u32,
    count: u64,
    address: u64,
}

/// `__HYPERVISOR_sched_op` with `SCHEDOP_yield` (Xen `public/sched.h`). The constant is in memory that cannot be written,
/// so that a filter of system calls can admit this hypercall by its address.
static YIELD: Hypercall = Hypercall {
    number: 29,
    arguments: [0; 5],
};

/// `__HYPERVISOR_domctl` (Xen `public/xen.h`).
const DOMCTL: u64 = 36;
/// `XEN_DOMCTL_unpausedomain` (Xen `public/domctl.h`).
const UNPAUSE: u32 = 4;
/// Values of `XEN_DOMCTL_INTERFACE_VERSION`, of Xen 4.11 and later releases. The operation has had the same number and no
/// arguments in all of them; Xen refuses other versions than its own and does nothing.
const DOMCTL_VERSIONS: std::ops::RangeInclusive<u32> = 0x10..=0x1f;

/// `xen_domctl` (Xen `public/domctl.h`): its head, and the union of all operations.
#[repr(C)]
struct Control {
    command: u32,
    version: u32,
    domain: u16,
    pad: [u16; 3],
    operation: [u64; 16],
}

/// Frames of a domain mapped into this process, for the rest of its life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub start: NonNull<u8>,
    pub length: usize,
}

/// Requests of this process about one domain.
#[derive(Debug)]
pub(crate) struct Privcmd {
    device: File,
    domain: u16,
}

/// The right to make one hypercall, which yields the CPU to another domain.
#[derive(Debug)]
pub(crate) struct Yielding(File);

impl Yielding {
    pub fn open() -> Result<Self, Missing> {
        open(DEVICE).map(Self)
    }

    /// Returns the only request that is made: the descriptor, the number of the request and the address of its argument.
    pub fn request(&self) -> (RawFd, libc::c_ulong, usize) {
        (self.0.as_raw_fd(), HYPERCALL, (&raw const YIELD).addr())
    }

    /// Yields the CPU to another domain.
    pub fn yield_cpu(&self) {
        // SAFETY: the kernel reads a constant, and the hypercall has no argument. It cannot fail.
        unsafe { libc::ioctl(self.0.as_raw_fd(), HYPERCALL, &raw const YIELD) };
    }
}

impl Privcmd {
    pub fn open(domain: u16) -> Result<Self, Missing> {
        let device = open(DEVICE)?;
        Ok(Self { device, domain })
    }

    /// Executes a device model operation, `xen_dm_op` (Xen `public/hvm/dm_op.h`), which may write its results to
    /// `operation`.
    ///
    /// # Safety
    /// `operation` must begin with the number of an operation that has no other buffers.
    pub unsafe fn device_model<T>(&self, operation: &mut T) -> io::Result<()> {
        let buffer = Buffer {
            start: (&raw mut *operation).cast(),
            size: size_of::<T>(),
        };
        let mut argument = DeviceModelOperation {
            domain: self.domain,
            buffers: 1,
            buffer: &raw const buffer,
        };
        // SAFETY: the request reads these structures and accesses `operation` only, by contract.
        unsafe { request(&self.device, DM_OP, &mut argument) }.map(drop)
    }

    /// Maps memory of the domain from guest-physical address 0. Fails if a page does not exist.
    pub fn map_memory(&self, length: usize) -> io::Result<Mapping> {
        let frames: Vec<u64> = (0..(length / PAGE) as u64).collect();
        let mut errors: Vec<libc::c_int> = vec![0; frames.len()];
        let mapping = self.reserve(length)?;
        let mut batch = Batch {
            count: u32::try_from(frames.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            domain: self.domain,
            address: mapping.start.addr().get() as u64,
            frames: frames.as_ptr(),
            errors: errors.as_mut_ptr(),
        };
        // SAFETY: the arrays have `count` elements, and the mapping has as many pages.
        unsafe { request(&self.device, MAP_BATCH, &mut batch) }?;
        match errors.into_iter().find(|error| *error != 0) {
            Some(error) => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
            None => Ok(mapping),
        }
    }

    /// Maps a page of a resource, `XENMEM_acquire_resource` (Xen `public/memory.h`).
    pub fn map_resource(&self, kind: u32, id: u32, frame: u32) -> io::Result<Mapping> {
        let mapping = self.reserve(PAGE)?;
        let mut resource = Resource {
            domain: self.domain,
            kind,
            id,
            first: frame,
            count: 1,
            address: mapping.start.addr().get() as u64,
        };
        // SAFETY: the request reads this structure; the mapping has one page.
        unsafe { request(&self.device, MAP_RESOURCE, &mut resource) }?;
        Ok(mapping)
    }

    /// Reserves addresses for frames of the domain.
    fn reserve(&self, length: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.device.as_raw_fd(),
                0,
            )
        };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        let start = start.ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { start, length })
    }

    /// Unpauses the domain. The only request outside of Xen's stable interface.
    pub fn unpause(&self) -> io::Result<()> {
        let mut last = io::ErrorKind::Unsupported.into();
        for version in DOMCTL_VERSIONS {
            let control = Control {
                command: UNPAUSE,
                version,
                domain: self.domain,
                pad: [0; 3],
                operation: [0; 16],
            };
            let mut call = Hypercall {
                number: DOMCTL,
                arguments: [(&raw const control).addr() as u64, 0, 0, 0, 0],
            };
            // SAFETY: Xen reads a `xen_domctl` at the address, and writes to no other memory.
            match unsafe { request(&self.device, HYPERCALL, &mut call) } {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
            if last.raw_os_error() != Some(libc::EACCES) {
                break;
            }
        }
        Err(last)
    }

    /// Restricts this process to device model operations and mappings of the domain, permanently.
    pub fn restrict(&self) -> io::Result<()> {
        let mut domain = self.domain;
        // SAFETY: the request reads the number of a domain.
        unsafe { request(&self.device, RESTRICT, &mut domain) }.map(drop)
    }
}
