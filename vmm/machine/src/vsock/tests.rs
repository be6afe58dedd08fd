//! The device between real sockets of the host and a driver that a test plays.

use super::*;
use crate::isolated::in_separate_process;
use crate::threads;
use expect_test::expect;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trapline_interface::fake::{Fake, FakeVm};
use trapline_interface::{Controllers, Hypervisor, Region, VmSpec};
use trapline_monitor::virtio::driver::{self, Driver};
use trapline_monitor::virtio::slot_resources;

const CID: u64 = 9;
const HEADER: usize = 44;
const REQUEST: u16 = 1;
const RESPONSE: u16 = 2;
const RST: u16 = 3;
const SHUTDOWN: u16 = 4;
const RW: u16 = 5;
const SPIN_POLLS: Duration = Duration::from_secs(60);

/// Rooms for what the guest hears, and where it says what.
const ROOMS: u64 = 8;
const ROOM: u64 = 4096;
const OWN: u64 = 0x9000;

/// A guest, its device, and where programs of the host connect.
struct Guest<'a> {
    slot: &'a Slot<Vsock>,
    hears: Driver<'a>,
    says: Driver<'a>,
    path: PathBuf,
}

/// A packet, and the ports as the guest sees them.
#[derive(Debug, PartialEq)]
struct Packet {
    operation: u16,
    own: u32,
    host: u32,
    flags: u32,
    bytes: Vec<u8>,
}

fn slot(vm: &FakeVm) -> Arc<Slot<Vsock>> {
    let ram = Arc::new(Region::new(driver::rings(3) as usize).unwrap());
    let place = slot_resources(0).unwrap();
    Arc::new(Slot::new(vm, place, &ram, Vsock::new(CID as u32)).unwrap())
}

fn vm() -> FakeVm {
    let spec = VmSpec::with(Controllers::Full);
    Fake::replaying([vec![]]).create_vm(&spec).unwrap()
}

impl<'a> Guest<'a> {
    /// Progress by a confined thread, behind a socket in `directory`.
    fn of(slot: &'a Arc<Slot<Vsock>>, directory: &Path, more: &str) -> Self {
        let path = directory.join("v.sock");
        let spec = format!("cid={CID},path={}{more}", path.display());
        let spec = Spec::parse(&spec).unwrap();
        let (listening, served) = (Listening::open(&spec).unwrap(), Arc::clone(slot));
        threads::spawn("vsock", spec.role(), true, move || {
            serve(&served, &listening)
        })
        .unwrap();
        slot.started(0);
        let mut guest = Self {
            hears: Driver::new(slot.memory(), 0),
            says: Driver::new(slot.memory(), 1),
            slot,
            path,
        };
        (0..ROOMS).for_each(|number| guest.offer(number));
        slot.ring();
        guest
    }

    fn offer(&mut self, number: u64) {
        self.hears.push(&[(number * ROOM, ROOM as u32, true)]);
    }

    fn say(&mut self, operation: u16, (own, host): (u32, u32), flags: u32, bytes: &[u8]) {
        let mut packet = Vec::new();
        packet.extend(CID.to_le_bytes());
        packet.extend(2_u64.to_le_bytes());
        let kind = 1 | u32::from(operation) << 16;
        for word in [own, host, bytes.len() as u32, kind, flags, 1 << 20, 0] {
            packet.extend(word.to_le_bytes());
        }
        packet.extend(bytes);
        self.says.put(OWN, &packet);
        self.says.push(&[(OWN, packet.len() as u32, false)]);
        self.slot.ring();
        let says = &mut self.says;
        until("a packet is taken", || says.used());
    }

    fn hear(&mut self) -> Packet {
        let hears = &mut self.hears;
        let (head, length) = until("a packet comes", || hears.used());
        let at = u64::from(head) % ROOMS * ROOM;
        let packet = Packet {
            operation: self.hears.get16(at + 30),
            host: self.hears.get32(at + 16),
            own: self.hears.get32(at + 20),
            flags: self.hears.get32(at + 32),
            bytes: self
                .hears
                .bytes(at + HEADER as u64, length as usize - HEADER),
        };
        self.offer(u64::from(head) % ROOMS);
        self.slot.ring();
        packet
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < SPIN_POLLS, "waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read(stream: &mut UnixStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.set_read_timeout(Some(SPIN_POLLS)).unwrap();
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn has_ended(stream: &mut UnixStream) -> bool {
    stream.set_read_timeout(Some(SPIN_POLLS)).unwrap();
    matches!(stream.read(&mut [0]), Ok(0))
}

#[test]
fn host_connects_to_guest() {
    if !in_separate_process(&[], "vsock::tests::host_connects_to_guest") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (vm, mut host_streams) = (vm(), Vec::new());
    let slot = slot(&vm);
    let mut guest = Guest::of(&slot, directory.path(), ",in");
    for number in 0..2 {
        let mut program = UnixStream::connect(&guest.path).unwrap();
        program.write_all(b"CONNECT 1024\nhello").unwrap();
        let asked = guest.hear();
        assert_eq!((asked.operation, asked.own), (REQUEST, 1024));
        let ports = (1024, asked.host);
        guest.say(RESPONSE, ports, 0, &[]);
        assert_eq!(
            read(&mut program, 14),
            format!("OK {}\n", asked.host).as_bytes()
        );
        let said = guest.hear();
        assert_eq!((said.operation, &said.bytes[..]), (RW, &b"hello"[..]));
        guest.say(RW, ports, 0, b"world");
        assert_eq!(read(&mut program, 5), b"world");
        assert_eq!(asked.host, (1 << 30) + number);
        host_streams.push((program, ports));
    }
    // The guest ends one, its program the other.
    let (mut program, ports) = host_streams.remove(0);
    guest.say(SHUTDOWN, ports, 3, &[]);
    assert_eq!(guest.hear().operation, RST);
    assert!(has_ended(&mut program));
    drop(host_streams);
    let output = guest.hear();
    assert_eq!((output.operation, output.flags), (SHUTDOWN, 2));
    // Those that say nothing sensible are sent away; the guest may not call.
    let mut program = UnixStream::connect(&guest.path).unwrap();
    program.write_all(b"HELO\n").unwrap();
    assert!(has_ended(&mut program));
    let mut silent = UnixStream::connect(&guest.path).unwrap();
    let others: Vec<_> = (0..MAX_CALLERS)
        .map(|_| UnixStream::connect(&guest.path).unwrap())
        .collect();
    assert!(has_ended(&mut silent));
    let at_path = guest.path.with_file_name("v.sock_80");
    let _listener = UnixListener::bind(at_path).unwrap();
    guest.say(REQUEST, (5, 80), 0, &[]);
    assert_eq!(guest.hear().operation, RST);
    drop(others);
    let counts = slot.counters.counts();
    assert_eq!((counts.read, counts.written), (10, 10));
}

/// The others are served when the first ones have sent their requests, and silent ones make room.
#[test]
fn callers_beyond_the_limit_wait() {
    if !in_separate_process(&[], "vsock::tests::callers_beyond_the_limit_wait") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let vm = vm();
    let slot = slot(&vm);
    let mut guest = Guest::of(&slot, directory.path(), ",in");
    let connect = |_| UnixStream::connect(&guest.path).unwrap();
    let mut callers: Vec<_> = (0..3 * MAX_CALLERS).map(connect).collect();
    for (number, caller) in callers.iter_mut().enumerate() {
        let request = format!("CONNECT {number}\n");
        caller.write_all(request.as_bytes()).unwrap();
        let asked = guest.hear();
        assert_eq!((asked.operation, asked.own), (REQUEST, number as u32));
        guest.say(RESPONSE, (asked.own, asked.host), 0, &[]);
        let answer = format!("OK {}\n", asked.host);
        assert_eq!(read(caller, answer.len()), answer.as_bytes());
    }
    let mut silent: Vec<_> = (0..MAX_CALLERS)
        .map(|_| UnixStream::connect(&guest.path).unwrap())
        .collect();
    let mut last = UnixStream::connect(&guest.path).unwrap();
    last.write_all(b"CONNECT 7\n").unwrap();
    assert_eq!(guest.hear().own, 7);
    assert!(has_ended(&mut silent[0]));
}

#[test]
fn guest_connects_to_host() {
    if !in_separate_process(&[], "vsock::tests::guest_connects_to_host") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let vm = vm();
    let slot = slot(&vm);
    let mut guest = Guest::of(&slot, directory.path(), "");
    let listener = UnixListener::bind(guest.path.with_file_name("v.sock_80")).unwrap();
    guest.say(REQUEST, (5, 81), 0, &[]);
    assert_eq!(guest.hear().operation, RST);
    guest.say(REQUEST, (5, 80), 0, &[]);
    let answer = guest.hear();
    assert_eq!(
        (answer.operation, answer.own, answer.host),
        (RESPONSE, 5, 80)
    );
    let (mut program, _) = listener.accept().unwrap();
    // More than a socket holds, to a program that does not read, and then does.
    let piece: Vec<u8> = (0..16 << 10).map(|at| (at % 253) as u8).collect();
    for _ in 0..4 {
        guest.say(RW, (5, 80), 0, &piece);
    }
    assert_eq!(read(&mut program, 64 << 10), piece.repeat(4));
    program.write_all(&piece).unwrap();
    program.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    let ended = loop {
        let packet = guest.hear();
        match packet.operation {
            RW => heard.extend(packet.bytes),
            SHUTDOWN => break packet.flags,
            _ => {}
        }
    };
    assert_eq!((heard == piece, ended), (true, 2));
    guest.say(SHUTDOWN, (5, 80), 2, &[]);
    assert!(has_ended(&mut program));
    // A driver that resets its device waits until the host has let go.
    guest.say(REQUEST, (6, 80), 0, &[]);
    assert_eq!(guest.hear().operation, RESPONSE);
    let (mut program, _) = listener.accept().unwrap();
    let registers: &dyn trapline_monitor::virtio::Registers = &*slot;
    registers.write(0x70, 4, 0);
    assert!(has_ended(&mut program));
    assert!(UnixStream::connect(&guest.path).is_ok_and(|mut program| {
        program.write_all(b"CONNECT 1\n").unwrap();
        has_ended(&mut program)
    }));
}

#[test]
fn only_stale_socket_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("v.sock");
    let spec = Spec::parse(&format!("cid=3,path={}", path.display())).unwrap();
    let reset_packet = || Listening::open(&spec).map(|_| ()).unwrap_err();
    drop(UnixListener::bind(&path).unwrap());
    let listening = Listening::open(&spec).unwrap();
    let busy = reset_packet();
    drop(listening);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    let other = reset_packet();
    assert_eq!(other.status(), 2);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let missing = Spec::parse("cid=3,path=/no/such/directory/v").unwrap();
    let missing = Listening::open(&missing).map(|_| ()).unwrap_err();
    let errors = format!("{busy}\n{other}\n{missing}");
    expect![[r#"
        vsock DIR/v.sock: another program listens there: end that, or name another path
        vsock DIR/v.sock: the file there is not a socket: remove it, or name another path
        vsock /no/such/directory/v: No such file or directory (os error 2)"#]]
    .assert_eq(&errors.replace(&directory.path().display().to_string(), "DIR"));
}
