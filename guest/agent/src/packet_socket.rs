//! Packet sockets with memory-mapped rings (Linux, Documentation/networking/packet_mmap.rst, `TPACKET_V2`).
//!
//! The socket receives numbered frames only ([`trapline_abi::packet`]), by a filter in the kernel.

use crate::sys::{wait_readable, wait_writable, zero_or_error};
use std::ffi::{c_int, c_void};
use std::io::{self, ErrorKind};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trapline_abi::packet::{ACKNOWLEDGEMENT, DATA};
use trapline_workloads::packets::Link;
use trapline_workloads::Reason;

/// Slots of a ring: four times as many as frames may be on their way.
const SLOTS: usize = 256;
/// Bytes of a slot, with the header.
const SLOT: usize = 2048;
/// Bytes of a ring.
const RING: usize = SLOTS * SLOT;
/// Bytes of a block, which is contiguous in the kernel.
const BLOCK: usize = 64 << 10;

/// Start of a frame to be sent, in its slot.
const TO_SEND: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();

/// Milliseconds within which a frame arrives.
const PATIENCE: u64 = 10_000;

/// A socket of one interface.
pub struct PacketSocket {
    socket: OwnedFd,
    /// The ring of received frames, and behind it that of frames to be sent.
    rings: *mut u8,
    received: usize,
    sent: usize,
    /// Frames were queued since the last notification.
    is_pending: bool,
    failure: Option<Reason>,
}

// SAFETY: the rings belong to the socket, which one thread at a time uses.
unsafe impl Send for PacketSocket {}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and no longer used.
        unsafe { libc::munmap(self.rings.cast(), 2 * RING) };
    }
}

impl PacketSocket {
    /// Opens a socket of an interface.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses.
    pub fn open(interface: &str) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: makes a new descriptor from numbers.
        let socket = match unsafe { libc::socket(libc::AF_PACKET, kind, 0) } {
            ..0 => return Err(io::Error::last_os_error()),
            // SAFETY: it has no other owner.
            fd => unsafe { OwnedFd::from_raw_fd(fd) },
        };
        filter(&socket)?;
        let ring = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (RING / BLOCK) as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: SLOTS as u32,
        };
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_TX_RING, &ring)?;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, socket.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let rings =
            unsafe { libc::mmap(ptr::null_mut(), 2 * RING, access, libc::MAP_SHARED, fd, 0) };
        if rings == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let opened = Self {
            socket,
            rings: rings.cast(),
            received: 0,
            sent: 0,
            is_pending: false,
            failure: None,
        };
        opened.bind(interface)?;
        Ok(opened)
    }

    fn bind(&self, interface: &str) -> io::Result<()> {
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: zeros are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: the name is a C string. There is no interface 0.
        address.sll_ifindex = match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => return Err(io::Error::last_os_error()),
            index => index as c_int,
        };
        let length = size_of_val(&address) as libc::socklen_t;
        let address = (&raw const address).cast();
        // SAFETY: the address is as long as it says.
        zero_or_error(unsafe { libc::bind(self.socket.as_raw_fd(), address, length) }.into())
    }

    /// Returns slot `number` of a ring, and its status, if that is `wanted`: then it belongs to this process.
    fn slot(
        &self,
        ring: usize,
        number: usize,
        wanted: impl Fn(u32) -> bool,
    ) -> Option<(*mut u8, &AtomicU32)> {
        // SAFETY: within the rings, which outlive the reference. The status is the first word of the header; the kernel
        // accesses it, too, as an atomic one.
        let (slot, status) = unsafe {
            let slot = self.rings.add(ring * RING + number % SLOTS * SLOT);
            (slot, AtomicU32::from_ptr(slot.cast()))
        };
        wanted(status.load(Ordering::Acquire)).then_some((slot, status))
    }

    /// Sends the queued frames. The kernel takes them in order, and only some while the socket's buffer is full.
    fn send_queued(&self) -> io::Result<()> {
        let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
        let is_queued = |status| status & libc::TP_STATUS_SEND_REQUEST != 0;
        let mut deadline = None;
        loop {
            // SAFETY: no buffer: the frames are in the ring.
            if unsafe { libc::send(fd, ptr::null(), 0, flags) } < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != ErrorKind::WouldBlock {
                    return Err(error);
                }
            }
            if self.slot(1, self.sent - 1, is_queued).is_none() {
                return Ok(());
            }
            let patience = Duration::from_millis(PATIENCE);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + patience);
            // A free slot of the ring makes the socket writable, too.
            wait_writable(self.socket.as_fd(), PATIENCE)?;
            if Instant::now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

/// Sets an option of a socket.
fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value: *const c_void = ptr::from_ref(value).cast();
    // SAFETY: the kernel reads a value of this length.
    zero_or_error(
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) }.into(),
    )
}

/// Lets the socket receive frames of the types of numbered frames only.
fn filter(socket: &OwnedFd) -> io::Result<()> {
    /// Offset of the type in a frame.
    const TYPE: u32 = 12;
    let kinds = [DATA, ACKNOWLEDGEMENT].map(|kind| u32::from(u16::from_be_bytes(kind)));
    let load = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    let (equal, end) = ((libc::BPF_JMP | libc::BPF_JEQ) as u16, libc::BPF_RET as u16);
    // SAFETY: these functions compose numbers.
    let mut program = unsafe {
        [
            libc::BPF_STMT(load, TYPE),
            libc::BPF_JUMP(equal, kinds[0], 1, 0),
            libc::BPF_JUMP(equal, kinds[1], 0, 1),
            libc::BPF_STMT(end, SLOT as u32),
            libc::BPF_STMT(end, 0),
        ]
    };
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Waits until a socket has received a frame.
///
/// # Errors
/// The kernel refuses, or none arrives for too long.
pub fn wait_for_frame(socket: BorrowedFd<'_>) -> Result<(), Reason> {
    match wait_readable(&[socket], PATIENCE) {
        Ok(true) => Ok(()),
        Ok(false) => Err("no frame arrives within ten seconds"),
        Err(_) => Err("the kernel does not wait for a frame"),
    }
}

impl Link for PacketSocket {
    fn buffers(&self) -> u64 {
        SLOTS as u64
    }

    fn receive<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let is_received = |status| status & libc::TP_STATUS_USER != 0;
        let (slot, status) = self.slot(0, self.received, is_received)?;
        // SAFETY: the slot has a header, behind which the kernel has written the frame.
        let frame = unsafe {
            let header = slot.cast::<libc::tpacket2_hdr>().read();
            let start = usize::from(header.tp_mac).min(SLOT);
            let length = (header.tp_snaplen as usize).min(SLOT - start);
            std::slice::from_raw_parts(slot.add(start), length)
        };
        let result = read(frame);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.received += 1;
        Some(result)
    }

    fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let is_free = |status| status == libc::TP_STATUS_AVAILABLE;
        let Some((slot, status)) = self.slot(1, self.sent, is_free) else {
            let is_wrong = |status| status & libc::TP_STATUS_WRONG_FORMAT != 0;
            if self.slot(1, self.sent, is_wrong).is_some() {
                self.failure = Some("the kernel refuses a frame");
            }
            return false;
        };
        let length = length.min(SLOT - TO_SEND);
        // SAFETY: the slot belongs to this process until its status changes.
        unsafe {
            fill(std::slice::from_raw_parts_mut(slot.add(TO_SEND), length));
            (&raw mut (*slot.cast::<libc::tpacket2_hdr>()).tp_len).write(length as u32);
        }
        status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.sent += 1;
        self.is_pending = true;
        true
    }

    fn notify(&mut self) {
        if !std::mem::take(&mut self.is_pending) {
            return;
        }
        if self.send_queued().is_err() {
            self.failure = Some("the kernel does not send frames");
        }
    }

    fn check(&mut self) -> Result<(), Reason> {
        self.failure.map_or(Ok(()), Err)
    }

    fn wait(&mut self) -> Result<(), Reason> {
        self.check()?;
        wait_for_frame(self.socket.as_fd())
    }

    fn quiesce(&mut self) -> Result<(), Reason> {
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::pin_to_current_cpu;
    use crate::interface;
    use std::process::Command;
    use trapline_abi::packet::Frames;
    use trapline_skip::skip;
    use trapline_workloads::packets::{Receiver, Sender};

    const LOOPBACK: &str = "lo";

    /// Runs another test of this module in a network namespace of its own.
    fn run_in_namespace(test: &str) {
        let enter = || {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--net"]);
            command
        };
        let is_permitted = enter().arg("true").output();
        if !is_permitted.is_ok_and(|output| output.status.success()) {
            return skip("packet sockets", "no network namespace can be made");
        }
        let path = format!("packet_socket::tests::{test}");
        let program = std::env::current_exe().unwrap();
        let words = ["--ignored", "--exact", &path, "--nocapture"];
        let output = enter().arg(program).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    /// Returns a sender to a receiver, both at the loopback device. That queues frames by CPU: those that are sent on another,
    /// as by the timer of a queueing discipline, could overtake.
    fn sender() -> Sender<PacketSocket> {
        pin_to_current_cpu().unwrap();
        let mut receiving = PacketSocket::open(LOOPBACK).unwrap();
        std::thread::spawn(move || Receiver::default().serve(&mut receiving));
        Sender::new(PacketSocket::open(LOOPBACK).unwrap()).unwrap()
    }

    #[test]
    fn frames_are_sent_and_received() {
        run_in_namespace("send_frames");
    }

    #[test]
    #[ignore = "needs a namespace: frames_are_sent_and_received"]
    fn send_frames() {
        interface::enable(LOOPBACK).unwrap();
        let mut sender = sender();
        for frames in [64, 1500].map(Frames::Burst) {
            assert_eq!(sender.send(frames), Ok(()));
        }
        (0..100).for_each(|_| assert_eq!(sender.send(Frames::Ping), Ok(())));
    }

    #[test]
    fn frames_wait_for_space_in_the_send_buffer() {
        run_in_namespace("send_frames_slowly");
    }

    /// A queueing discipline keeps frames, which stay in the send buffer so long. That holds two.
    #[test]
    #[ignore = "needs a namespace: frames_wait_for_space_in_the_send_buffer"]
    fn send_frames_slowly() {
        interface::enable(LOOPBACK).unwrap();
        let words = "qdisc add dev lo root tbf rate 200mbit burst 3000 limit 1000000";
        let limited = Command::new("tc").args(words.split(' ')).output();
        if !limited.is_ok_and(|output| output.status.success()) {
            return skip("a full send buffer", "no queueing discipline 'tbf'");
        }
        let mut sender = sender();
        let (level, option) = (libc::SOL_SOCKET, libc::SO_SNDBUF);
        set(&sender.link().socket, level, option, &1).unwrap();
        assert_eq!(sender.send(Frames::Burst(1500)), Ok(()));
        // They are sent at once without the discipline.
        let words = "qdisc show dev lo";
        let shown = Command::new("tc").arg("-s").args(words.split(' ')).output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        assert!(!shown.contains("overlimits 0 "), "{shown}");
    }
}
