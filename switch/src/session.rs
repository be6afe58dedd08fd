//! The vhost-user protocol with the VMM of one guest (QEMU, docs/interop/vhost-user.rst).
//!
//! Each message that changes a queue stops the port in the engine, and starts it again if all that a queue needs is known.

use crate::handle::Handle;
use crate::memory::{Memory, MemoryError, Spec, MOST_REGIONS};
use crate::port::{Active, Effort, Queue};
use crate::ring::{Addresses, Packed, Ring, Split, LARGEST};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    FrontendReq, VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};
use vhost::VhostUserMemoryRegionBase;

/// Maximum number of pairs of queues of a port.
pub const MOST_PAIRS: usize = 8;

/// Features (Virtual I/O Device 1.2, 5.1.3 and 6; vhost-user, `VHOST_USER_F_PROTOCOL_FEATURES`).
mod feature {
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const MQ: u64 = 1 << 22;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const RING_PACKED: u64 = 1 << 34;
    pub const ALL: u64 =
        MRG_RXBUF | MQ | INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1 | RING_PACKED;
}

/// Requests that the offered features allow. The crate acts upon some of the others before it asks the session.
const REQUESTS: [FrontendReq; 20] = [
    FrontendReq::GET_FEATURES,
    FrontendReq::SET_FEATURES,
    FrontendReq::SET_OWNER,
    FrontendReq::RESET_OWNER,
    FrontendReq::SET_MEM_TABLE,
    FrontendReq::SET_VRING_NUM,
    FrontendReq::SET_VRING_ADDR,
    FrontendReq::SET_VRING_BASE,
    FrontendReq::GET_VRING_BASE,
    FrontendReq::SET_VRING_KICK,
    FrontendReq::SET_VRING_CALL,
    FrontendReq::SET_VRING_ERR,
    FrontendReq::GET_PROTOCOL_FEATURES,
    FrontendReq::SET_PROTOCOL_FEATURES,
    FrontendReq::GET_QUEUE_NUM,
    FrontendReq::SET_VRING_ENABLE,
    FrontendReq::RESET_DEVICE,
    FrontendReq::GET_MAX_MEM_SLOTS,
    FrontendReq::ADD_MEM_REG,
    FrontendReq::REM_MEM_REG,
];

/// Features of the protocol.
const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::RESET_DEVICE)
    .union(VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS);

/// Least time between two starts of a port: the engine forwards nothing meanwhile.
const PACE: Duration = Duration::from_millis(1);

/// State of a queue, as far as the front end has set it.
#[derive(Debug, Default)]
struct Vring {
    size: u32,
    addresses: Option<Addresses>,
    base: u32,
    kick: Option<File>,
    /// The front end has started it, with an event or without.
    is_started: bool,
    call: Option<File>,
    is_enabled: bool,
}

/// A connection.
struct Session {
    handle: Arc<Handle>,
    port: usize,
    features: u64,
    memory: Arc<Memory>,
    vrings: Vec<Vring>,
    /// The engine has the port.
    is_attached: bool,
    /// Time of its last start.
    started: Option<Instant>,
}

fn copied(file: &Option<File>) -> Result<Option<File>> {
    let copy = file.as_ref().map(File::try_clone).transpose();
    copy.map_err(Error::ReqHandlerError)
}

impl Session {
    fn new(handle: Arc<Handle>, port: usize) -> Self {
        Self {
            handle,
            port,
            features: 0,
            memory: Arc::default(),
            vrings: (0..2 * MOST_PAIRS).map(|_| Vring::default()).collect(),
            is_attached: false,
            started: None,
        }
    }

    /// Takes the port from the engine.
    fn stop(&mut self) {
        if std::mem::take(&mut self.is_attached) {
            for (index, base) in self.handle.detach(self.port) {
                self.vrings[index].base = base;
            }
        }
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        self.stop();
        let vring = self.vrings.get_mut(index as usize);
        vring.ok_or(Error::InvalidParam)
    }

    /// Gives the port to the engine, with the queues of which all is known.
    fn start(&mut self) -> Result<()> {
        self.stop();
        let memory = &self.memory;
        if memory.is_lost() {
            return Err(Error::InvalidParam);
        }
        let mut active = Active {
            memory: Arc::clone(memory),
            receive: Vec::new(),
            transmit: Vec::new(),
            first: 0,
            is_mergeable: self.features & feature::MRG_RXBUF != 0,
            effort: Effort::default(),
        };
        let has_events = self.features & feature::EVENT_IDX != 0;
        let always = self.features & feature::PROTOCOL_FEATURES == 0;
        for (index, vring) in self.vrings.iter().enumerate() {
            let (Some(addresses), true) = (&vring.addresses, vring.is_started) else {
                continue;
            };
            if !(vring.is_enabled || always) {
                continue;
            }
            let ring = match self.features & feature::RING_PACKED {
                0 => Split::new(memory, vring.size, addresses, vring.base, has_events)
                    .map(Ring::Split),
                _ => Packed::new(memory, vring.size, addresses, vring.base).map(Ring::Packed),
            };
            let queue = Queue {
                index,
                ring: ring.ok_or(Error::InvalidParam)?,
                kick: copied(&vring.kick)?,
                call: copied(&vring.call)?,
                prefetched: 0,
            };
            match index % 2 {
                0 => active.receive.push(queue),
                _ => active.transmit.push(queue),
            }
        }
        if !(active.receive.is_empty() && active.transmit.is_empty()) {
            let is_new = self.started.is_none();
            self.wait_for_turn();
            self.is_attached = true;
            self.handle.attach(self.port, active, is_new);
        }
        Ok(())
    }

    /// Waits until the port may be started again.
    fn wait_for_turn(&mut self) {
        std::thread::sleep(self.handle.counters[self.port].rest());
        if let Some(rest) = self.started.and_then(|at| PACE.checked_sub(at.elapsed())) {
            std::thread::sleep(rest);
        }
        self.started = Some(Instant::now());
    }

    /// Uses other memory.
    fn set_memory(&mut self, memory: std::result::Result<Memory, MemoryError>) -> Result<()> {
        self.stop();
        let memory = memory.map_err(|error| Error::ReqHandlerError(io::Error::other(error)))?;
        self.memory = Arc::new(memory);
        self.start()
    }

    /// Checks that a file is an event: a call that waits for another one, or closes it, may never return.
    fn event(&self, file: Option<File>) -> Result<Option<File>> {
        let is_event = |file: &File| self.handle.notifier.is_event(file);
        if file.as_ref().is_none_or(is_event) {
            Ok(file)
        } else {
            Err(Error::InvalidParam)
        }
    }

    fn reset(&mut self) {
        self.stop();
        let started = self.started;
        *self = Self::new(Arc::clone(&self.handle), self.port);
        self.started = started;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns a region of memory.
fn spec(region: &VhostUserMemoryRegion) -> Spec {
    Spec {
        guest: region.guest_phys_addr,
        size: region.memory_size,
        user: region.user_addr,
        offset: region.mmap_offset,
    }
}

const fn unsupported<T>() -> Result<T> {
    Err(Error::InvalidOperation("not offered"))
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(feature::ALL)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        // Legacy drivers have another header.
        if features & !feature::ALL != 0 || features & feature::VERSION_1 == 0 {
            return Err(Error::FeatureMismatch);
        }
        self.stop();
        self.features = features;
        self.start()
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let specs: Vec<_> = regions.iter().map(spec).zip(files).collect();
        // The old memory is gone before: both need not fit.
        self.stop();
        self.memory = Arc::default();
        self.set_memory(Memory::new(&specs))?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        if num == 0 || num > LARGEST {
            return Err(Error::InvalidParam);
        }
        self.vring(index)?.size = num;
        self.start()
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        device: u64,
        driver: u64,
        _: u64,
    ) -> Result<()> {
        self.vring(index)?.addresses = Some(Addresses {
            descriptors,
            driver,
            device,
        });
        self.start()
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.vring(index)?.base = base;
        self.start()
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let vring = self.vring(index)?;
        (vring.is_started, vring.kick, vring.call) = (false, None, None);
        let base = vring.base;
        self.start()?;
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let event = self.event(file)?;
        let vring = self.vring(index.into())?;
        (vring.is_started, vring.kick) = (true, event);
        self.start()
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let event = self.event(file)?;
        self.vring(index.into())?.call = event;
        self.start()
    }

    fn set_vring_err(&mut self, _: u8, _: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        match features & !PROTOCOL.bits() {
            0 => Ok(()),
            _ => Err(Error::FeatureMismatch),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(MOST_PAIRS as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.vring(index)?.is_enabled = enable;
        self.start()
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        unsupported()
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        unsupported()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        unsupported()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        unsupported()
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        unsupported()
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        unsupported()
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MOST_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        self.set_memory(self.memory.with(spec(region), &file))?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.set_memory(self.memory.without(spec(region)))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        unsupported()
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        unsupported()
    }
}

/// Waits for the next message, and checks that its request was offered. It stays in the socket.
fn check_request(socket: &UnixStream) -> Result<()> {
    let mut request = [0; 4];
    let count = loop {
        // SAFETY: the buffer has this length.
        let count = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                request.as_mut_ptr().cast(),
                request.len(),
                libc::MSG_PEEK,
            )
        };
        let error = io::Error::last_os_error();
        match count {
            ..0 if error.kind() == io::ErrorKind::Interrupted => {}
            ..0 => return Err(Error::SocketError(error)),
            count => break count as usize,
        }
    };
    match count {
        0 => Err(Error::Disconnected),
        4 if REQUESTS
            .iter()
            .any(|it| *it as u32 == u32::from_le_bytes(request)) =>
        {
            Ok(())
        }
        4 => unsupported(),
        _ => Err(Error::PartialMessage),
    }
}

/// Serves a front end until it disconnects. Its port is then free again.
///
/// # Errors
/// The reason why the connection ended, unless the front end closed it.
pub fn serve(handle: &Arc<Handle>, port: usize, socket: UnixStream) -> Result<()> {
    let session = Arc::new(Mutex::new(Session::new(Arc::clone(handle), port)));
    let next = socket.try_clone().map_err(Error::SocketError)?;
    let mut requests = BackendReqHandler::from_stream(socket, Arc::clone(&session));
    let result = loop {
        match check_request(&next).and_then(|()| requests.handle_request()) {
            Ok(()) => {}
            Err(Error::Disconnected) => break Ok(()),
            // The front end has its answer, if it wanted one.
            Err(Error::SocketRetry(_)) => {}
            Err(error) => break Err(error),
        }
    };
    session
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .stop();
    result
}
