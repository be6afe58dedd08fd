//! A card at a real tap, in a network of the test's own; a test plays the guest.

use super::*;
use crate::isolated::in_separate_process;
use crate::sandbox::Role;
use crate::threads;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use trapline_interface::fake::{Fake, FakeVm};
use trapline_interface::{Controllers, Hypervisor, Region, VmSpec};
use trapline_monitor::virtio::driver::{self, Driver};
use trapline_monitor::virtio::net::HEADER;
use trapline_monitor::virtio::slot_resources;
use trapline_skip::skip;

const WHAT: &str = "a network card at a tap";

const GUEST_CHECKSUM: u64 = 1 << 1;
const GUEST_TCP4: u64 = 1 << 7;
const MERGE: u64 = 1 << 15;

const HOST_PORT: u16 = 4000;
const GUEST_PORT: u16 = 5000;
const SPIN_POLLS: Duration = Duration::from_secs(60);

#[test]
fn derived_mac_is_local_and_stable() {
    assert_eq!(mac_for("tap0"), mac_for("tap0"));
    assert_ne!(mac_for("tap0"), mac_for("tap1"));
    assert_eq!(mac_for("")[0], 0x02);
}

#[test]
fn tap_errors_name_the_remedy() {
    let refusal = |source| Tap::open(&source).unwrap_err();
    let missing = refusal(TapSource::Named("no-such-tap".into()));
    assert!(
        missing.to_string().contains("ip tuntap add no-such-tap"),
        "{missing}"
    );
    assert_eq!(missing.status(), 2);
    let file = std::fs::File::open("/dev/null").unwrap();
    let none = refusal(TapSource::Inherited(file.as_raw_fd()));
    assert!(none.to_string().contains("TUNSETIFF"), "{none}");
    let other = refusal(TapSource::Named("lo".into())).to_string();
    assert!(other.contains("tap lo: "), "{other}");
}

/// Runs the test `name` in a network of its own, where it is root. True in there.
fn has_network(name: &str) -> bool {
    let may = Command::new("unshare")
        .args(["-rn", "ip", "tuntap", "add", "t", "mode", "tap"])
        .output();
    if !may.is_ok_and(|output| output.status.success()) {
        let why = "no network with a tap can be made here (unshare -rn ip tuntap)";
        skip(WHAT, why);
        return false;
    }
    in_separate_process(&["unshare", "-rn"], name)
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {output:?}");
}

/// A card, and all around it.
struct Guest {
    vm: FakeVm,
    slot: Arc<Slot<Card>>,
    tap: Arc<Tap>,
}

impl Guest {
    /// At a tap of the host 10.9.0.1, served by a confined thread.
    fn at(name: &str, features: u64) -> Self {
        let vm = Fake::replaying([vec![]])
            .create_vm(&VmSpec::with(Controllers::Full))
            .unwrap();
        let ram = Arc::new(Region::new(driver::rings(2) as usize).unwrap());
        let tap = Arc::new(Tap::open(&TapSource::Named(name.into())).unwrap());
        assert_eq!(tap.mtu(), Some(1500));
        let card = Card::new(Arc::clone(&tap), Some([2, 0, 0, 0, 0, 7]));
        let place = slot_resources(0).unwrap();
        let slot = Arc::new(Slot::new(&vm, place, &ram, card).unwrap());
        let (served, at) = (Arc::clone(&slot), Arc::clone(&tap));
        threads::spawn("net0", Role::Net, true, move || serve(&served, &at)).unwrap();
        slot.started(features);
        Self { vm, slot, tap }
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                start.elapsed() < SPIN_POLLS,
                "{what}: {:?}",
                self.slot.counters
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn tap(name: &str) -> UdpSocket {
    ip(&format!("tuntap add {name} mode tap"));
    ip(&format!("addr add 10.9.0.1/24 dev {name}"));
    ip(&format!("link set {name} up"));
    ip(&format!(
        "neigh add 10.9.0.2 lladdr 02:00:00:00:00:07 dev {name}"
    ));
    let socket = UdpSocket::bind(("10.9.0.1", HOST_PORT)).unwrap();
    socket.set_read_timeout(Some(SPIN_POLLS)).unwrap();
    socket
}

/// The sum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// A datagram from 10.9.0.2 to the host, as it lies on the wire.
fn datagram(to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((28 + length).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1]);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    for number in [GUEST_PORT, HOST_PORT, 8 + length, 0] {
        packet.extend(number.to_be_bytes());
    }
    packet.extend(payload);
    [&to[..], &[2, 0, 0, 0, 0, 7, 8, 0], &packet].concat()
}

#[test]
fn datagrams_pass_in_both_directions_under_the_filter() {
    if !has_network("net::tests::datagrams_pass_in_both_directions_under_the_filter") {
        return;
    }
    for (features, name) in [(0, "trap0"), (MERGE | GUEST_CHECKSUM | GUEST_TCP4, "trap1")] {
        let socket = tap(name);
        let guest = Guest::at(name, features);
        let memory = guest.slot.memory();
        let (mut heard, mut said) = (Driver::new(memory, 0), Driver::new(memory, 1));
        (0..4).for_each(|number| {
            heard.push(&[(0x1000 * number, 2048, true)]);
        });
        guest.slot.ring();
        // Others may come first: a network is never quiet. And it takes some time to begin.
        let (at, to) = guest.until("a frame arrives", || {
            socket.send_to(b"hello", ("10.9.0.2", GUEST_PORT)).unwrap();
            let (head, length) = heard.used()?;
            // The four rooms are offered again and again, in this order.
            let at = 0x1000 * u64::from(head % 4);
            let frame = heard.bytes(at + HEADER as u64, length as usize - HEADER);
            let is_ours = frame[12..14] == [8, 0] && frame[23] == 17;
            if !is_ours {
                heard.push(&[(at, 2048, true)]);
                guest.slot.ring();
            }
            is_ours.then(|| {
                assert_eq!(&frame[42..], b"hello");
                let mac: [u8; 6] = frame[6..12].try_into().unwrap();
                (at, mac)
            })
        });
        // The sum is left to who has agreed to complete it.
        let flags = heard.bytes(at, 1)[0];
        assert_eq!(flags, u8::from(features & GUEST_CHECKSUM != 0));
        assert_eq!(heard.get16(at + 10), 1);
        assert!(guest.vm.interrupts() > 0);

        let frame = datagram(to, b"world");
        said.put(0x8000, &[0; HEADER]);
        said.put(0x8000 + HEADER as u64, &frame);
        said.push(&[(0x8000, (HEADER + frame.len()) as u32, false)]);
        guest.slot.ring();
        let mut bytes = [0; 100];
        let (length, from) = socket.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..length], from.port()), (&b"world"[..], GUEST_PORT));
        guest.until("it comes back", || said.used());
        let counts = guest.slot.counters.counts();
        assert!(
            counts.requests >= 2 && counts.written == frame.len() as u64,
            "{counts:?}"
        );
        assert_eq!(counts.failures, 0);
        // The second opener gets an error.
        let busy = Tap::open(&TapSource::Named(name.into()))
            .unwrap_err()
            .to_string();
        assert!(busy.contains("another program uses it"), "{busy}");
        drop(socket);
        ip(&format!("addr del 10.9.0.1/24 dev {name}"));
        drop(guest.tap);
    }
}

#[test]
fn flood_uses_bounded_memory_and_deleted_tap_no_cpu() {
    if !has_network("net::tests::flood_uses_bounded_memory_and_deleted_tap_no_cpu") {
        return;
    }
    let socket = tap("trap0");
    let guest = Guest::at("trap0", 0);
    let memory = guest.slot.memory();
    let mut heard = Driver::new(memory, 0);
    let send = || socket.send_to(&[7; 1400], ("10.9.0.2", GUEST_PORT));
    let mut room = || {
        heard.push(&[(0, 2048, true)]);
        guest.slot.ring();
        let long = |(_, length)| (length > 1400).then_some(());
        guest.until("a frame arrives", || {
            // What the tap's own queue cannot hold is lost there.
            let _lost = send();
            heard.used().map(|used| long(used).is_some())
        })
    };
    while !room() {}
    let before = resident();
    for _ in 0..20_000 {
        let _lost = send();
    }
    assert!(room());
    assert!(resident() < before + (512 << 10), "{before} bytes before");
    ip("link del trap0");
    heard.push(&[(0, 2048, true)]);
    guest.slot.ring();
    let busy = || crate::usage::cpu_time().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = busy();
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        busy() - before < 50_000_000,
        "it waits for a tap that is gone"
    );
}

fn resident() -> u64 {
    crate::usage::MemoryUsage::open(&trapline_interface::Region::new(1).unwrap())
        .own_memory()
        .unwrap()
}
