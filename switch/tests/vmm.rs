//! A network card of `trapline-vmm` whose queues `trapline-switch` serves. The test is the guest; on the other port are the
//! frames of the switch's own tests.

use serde_json::Value;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trapline_interface::fake::{Fake, FakeVm};
use trapline_interface::{Controllers, Hypervisor, Region, VmSpec};
use trapline_machine::net::external::{self, Link};
use trapline_machine::net::{ExternalCard, ExternalSource, Spec};
use trapline_machine::sandbox::Role;
use trapline_machine::threads;
use trapline_machine::virtio::Slot;
use trapline_monitor::virtio::driver::{rings, Driver, ENTRIES};
use trapline_monitor::virtio::net::{Mac, CONTROL, PAIRS};
use trapline_monitor::virtio::{slot_resources, Registers, EVENT_INDEX, QUEUE_NOTIFY, VERSION_1};
use trapline_switch::driver::traffic::fill;
use trapline_switch::driver::{Peer, Setup};

// Registers and status bits (virtio 1.2, 4.2.2 and 2.1).
const DEVICE_FEATURES: u32 = 0x010;
const DEVICE_FEATURES_SEL: u32 = 0x014;
const DRIVER_FEATURES: u32 = 0x020;
const DRIVER_FEATURES_SEL: u32 = 0x024;
const QUEUE_SEL: u32 = 0x030;
const QUEUE_SIZE_MAX: u32 = 0x034;
const QUEUE_SIZE: u32 = 0x038;
const QUEUE_READY: u32 = 0x044;
const INTERRUPT_STATUS: u32 = 0x060;
const STATUS: u32 = 0x070;
const AREAS: [u32; 3] = [0x080, 0x090, 0x0a0];
const LINK_STATUS: u32 = 0x106;
const USED_BUFFER: u64 = 1;

const HEADER: usize = 12;
const SIZE: usize = 60;
const OWN: Mac = [2, 0, 0, 0, 0, 7];

/// The switch, with ports a and b.
struct Switch {
    process: Child,
    directory: TempDir,
}

impl Switch {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = Self::spawn(directory.path());
        Self { process, directory }
    }

    fn spawn(directory: &Path) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
        for port in ["a", "b"] {
            command.arg("--listen").arg(directory.join(port));
        }
        command.arg("--counters").arg(directory.join("counters"));
        let process = command.stderr(Stdio::null()).spawn().unwrap();
        wait_until(|| UnixStream::connect(directory.join("counters")).ok());
        process
    }

    fn path(&self, port: &str) -> PathBuf {
        self.directory.path().join(port)
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn peer(&self) -> Peer {
        let setup = Setup {
            size: 16,
            ..Setup::SPLIT
        };
        let before = self.connections();
        let peer = Peer::connect(&self.path("b"), setup).unwrap();
        wait_until(|| (self.connections() > before).then_some(()));
        peer
    }

    /// Returns how often port b was started.
    fn connections(&self) -> u64 {
        let mut text = String::new();
        let mut socket = UnixStream::connect(self.path("counters")).unwrap();
        socket.read_to_string(&mut text).unwrap();
        let state: Value = serde_json::from_str(&text).unwrap();
        let ports = state["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["port"] == "b").unwrap();
        port["connections"].as_u64().unwrap()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

fn wait_until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing happens");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the configuration of a card on a switch.
fn card(path: &Path, mac: Option<Mac>, pairs: u16) -> (Spec, ExternalSource) {
    let external = ExternalSource::VhostUser(path.into());
    let source = external.clone().into();
    (Spec { source, mac, pairs }, external)
}

/// Returns why a card cannot be connected.
fn error(path: &Path, pairs: u16) -> String {
    let memory = Region::new(rings(2) as usize).unwrap();
    let (spec, source) = card(path, None, pairs);
    let connected = external::connect(&source, &spec, &memory);
    connected.err().unwrap().to_string()
}

/// A guest at port a, whose card is served by a confined thread.
struct Guest {
    vm: FakeVm,
    slot: Arc<Slot<ExternalCard>>,
}

impl Guest {
    fn connect(path: &Path, pairs: u16) -> Self {
        let vm = Fake::replaying([vec![]])
            .create_vm(&VmSpec::with(Controllers::Full))
            .unwrap();
        let queues = 2 * u32::from(pairs) + 1;
        let memory = Arc::new(Region::new(rings(queues) as usize).unwrap());
        let (spec, source) = card(path, Some(OWN), pairs);
        let (card, backend) = external::connect(&source, &spec, &memory).unwrap();
        let place = slot_resources(0).unwrap();
        let slot = Arc::new(Slot::new(&vm, place, &memory, card).unwrap());
        let mut link = Link::new(backend, &slot, &memory, pairs).unwrap();
        let served = Arc::clone(&slot);
        let serve = move || external::serve(&served, &mut link);
        threads::spawn("net0", Role::NetExternal, true, serve).unwrap();
        Self { vm, slot }
    }

    fn write(&self, register: u32, value: u32) {
        self.slot.write(register, 4, value.into());
    }

    /// Starts the device with these features.
    fn start(&self, features: u64) {
        let memory = self.slot.memory();
        self.write(STATUS, 1);
        self.write(STATUS, 3);
        for half in 0..2 {
            self.write(DRIVER_FEATURES_SEL, half);
            let features = features | VERSION_1;
            self.write(DRIVER_FEATURES, (features >> (32 * half)) as u32);
        }
        self.write(STATUS, 11);
        for queue in 0.. {
            self.write(QUEUE_SEL, queue);
            if self.slot.read(QUEUE_SIZE_MAX, 4) == 0 {
                break;
            }
            memory.write(rings(queue), &[0; 0x4000]).unwrap();
            self.write(QUEUE_SIZE, ENTRIES.into());
            for (register, offset) in AREAS.into_iter().zip([0, 0x1000, 0x2000]) {
                self.write(register, rings(queue) as u32 + offset);
            }
            self.write(QUEUE_READY, 1);
        }
        self.write(STATUS, 15);
        assert_eq!(self.slot.read(STATUS, 4), 15);
    }

    fn features(&self) -> u64 {
        let half = |number: u32| {
            self.write(DEVICE_FEATURES_SEL, number);
            self.slot.read(DEVICE_FEATURES, 4)
        };
        half(0) | half(1) << 32
    }

    fn driver(&self, queue: u32) -> Driver<'_> {
        Driver::new(self.slot.memory(), queue)
    }

    fn link_is_up(&self) -> bool {
        self.slot.read(LINK_STATUS, 2) == 1
    }

    /// Sends a frame to the station of the peer.
    fn send(&self, queue: &mut Driver<'_>, number: u64) {
        let mut frame = [0; HEADER + SIZE];
        fill(&mut frame[HEADER..], 2, OWN[5], number);
        queue.put(0x8000, &frame);
        queue.push(&[(0x8000, frame.len() as u32, false)]);
        self.write(QUEUE_NOTIFY, 1);
        wait_until(|| queue.used());
    }
}

/// Checks that the next frame that arrives is this one of the guest.
fn check_arrival(peer: &mut Peer, number: u64) {
    let mut wanted = [0; SIZE];
    fill(&mut wanted, 2, OWN[5], number);
    let mut frames = Vec::new();
    wait_until(|| {
        peer.receive(|frame| frames.push(frame.to_vec()));
        (!frames.is_empty()).then_some(())
    });
    assert_eq!(frames, [wanted]);
}

/// Exchanges a frame in each direction.
fn exchange(guest: &Guest, peer: &mut Peer, queues: &mut [Driver<'_>; 2], number: u64) {
    let [receiver, sender] = queues;
    guest.send(sender, number);
    check_arrival(peer, number);
    // With event indices, an interrupt for the next completion.
    let used = receiver.get16(rings(0) + 0x2002);
    receiver.put(
        rings(0) + 0x1004 + 2 * u64::from(ENTRIES),
        &used.to_le_bytes(),
    );
    receiver.push(&[(0, 2048, true)]);
    guest.write(QUEUE_NOTIFY, 0);
    let before = guest.vm.interrupts();
    peer.send(1, |frame| {
        fill(&mut frame[..SIZE], OWN[5], 2, number);
        SIZE
    });
    let (_, length) = wait_until(|| receiver.used());
    assert_eq!(length as usize, HEADER + SIZE);
    let mut wanted = [0; SIZE];
    fill(&mut wanted, OWN[5], 2, number);
    assert_eq!(receiver.bytes(HEADER as u64, SIZE), wanted);
    wait_until(|| (guest.vm.interrupts() > before).then_some(()));
    assert_eq!(
        guest.slot.read(INTERRUPT_STATUS, 4) & USED_BUFFER,
        USED_BUFFER
    );
}

#[test]
fn frames_pass_in_both_directions_until_the_driver_resets_the_device() {
    let switch = Switch::start();
    let guest = Guest::connect(&switch.path("a"), 1);
    assert_eq!(guest.features() & (CONTROL | PAIRS), 0);
    for features in [0, EVENT_INDEX] {
        guest.start(features);
        let mut peer = switch.peer();
        let mut queues = [guest.driver(0), guest.driver(1)];
        for number in 0..40 {
            exchange(&guest, &mut peer, &mut queues, number);
        }
        guest.write(STATUS, 0);
        assert_eq!(guest.slot.read(STATUS, 4), 0);
        // The switch has returned the queues.
        let [_, sender] = &mut queues;
        sender.push(&[(0x8000, 100, false)]);
        guest.write(QUEUE_NOTIFY, 1);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(sender.used(), None);
    }
}

#[test]
fn card_continues_with_a_restarted_switch() {
    let mut switch = Switch::start();
    let guest = Guest::connect(&switch.path("a"), 1);
    guest.start(0);
    let mut queues = [guest.driver(0), guest.driver(1)];
    let mut peer = switch.peer();
    exchange(&guest, &mut peer, &mut queues, 1);
    switch.kill();
    wait_until(|| (!guest.link_is_up()).then_some(()));
    switch.process = Switch::spawn(switch.directory.path());
    wait_until(|| guest.link_is_up().then_some(()));
    let mut peer = switch.peer();
    exchange(&guest, &mut peer, &mut queues, 2);
    // A reset without a switch returns.
    switch.kill();
    guest.write(STATUS, 0);
    guest.start(0);
    assert_eq!(guest.slot.counters.counts().failures, 2);
}

/// Sends frames as long as the queue has room. Returns how many were returned by the switch, each of which had been sent.
fn send_all(guest: &Guest, sender: &mut Driver<'_>, sent: &mut Vec<u16>) -> usize {
    let before = sent.len();
    while sent.len() < usize::from(ENTRIES) {
        let mut frame = [0; HEADER + SIZE];
        fill(&mut frame[HEADER..], 2, OWN[5], 1);
        sender.put(0x8000, &frame);
        sent.push(sender.push(&[(0x8000, frame.len() as u32, false)]));
    }
    if sent.len() > before {
        guest.write(QUEUE_NOTIFY, 1);
    }
    let mut returned = 0;
    while let Some((descriptor, _)) = sender.used() {
        let place = sent.iter().position(|it| u32::from(*it) == descriptor);
        sent.remove(place.expect("a descriptor is returned once"));
        returned += 1;
    }
    returned
}

#[test]
#[ignore = "slow: make test-all"]
fn switch_that_is_killed_at_a_hundred_moments_returns_each_descriptor_once() {
    let mut switch = Switch::start();
    let guest = Guest::connect(&switch.path("a"), 1);
    guest.start(0);
    let (mut sender, mut sent) = (guest.driver(1), Vec::new());
    let (mut count, mut longest) = (0, Duration::ZERO);
    for round in 0..100 {
        let end = Instant::now() + Duration::from_micros(round * 7919 % 10_007);
        while Instant::now() < end {
            count += send_all(&guest, &mut sender, &mut sent);
        }
        switch.kill();
        switch.process = Switch::spawn(switch.directory.path());
        let ready = Instant::now();
        wait_until(|| (send_all(&guest, &mut sender, &mut sent) > 0).then_some(()));
        longest = longest.max(ready.elapsed());
    }
    eprintln!("{count} descriptors; longest time until a new switch was used: {longest:?}");
    assert!(count > 1000, "{count}");
}

#[test]
fn more_pairs_than_the_switch_has_are_an_error_with_a_remedy() {
    let switch = Switch::start();
    let message = error(&switch.path("a"), 9);
    let expected = format!(
        "--net vhost-user={}: the process supports 8 pairs of queues, not 9\nhelp: queues=8 or fewer",
        switch.path("a").display()
    );
    assert_eq!(message, expected);
}

#[test]
fn driver_chooses_the_number_of_pairs() {
    let switch = Switch::start();
    let guest = Guest::connect(&switch.path("a"), 2);
    assert_eq!(guest.features() & (CONTROL | PAIRS), CONTROL | PAIRS);
    guest.start(CONTROL | PAIRS);
    let mut control = guest.driver(4);
    let mut set = |pairs: u8| {
        control.put(0x9000, &[4, 0, pairs, 0, 0xff]);
        control.push(&[(0x9000, 4, false), (0x9004, 1, true)]);
        guest.write(QUEUE_NOTIFY, 4);
        wait_until(|| control.used());
        control.bytes(0x9004, 1)[0]
    };
    assert_eq!([set(3), set(0), set(2)], [1, 1, 0]);
    let mut second = guest.driver(3);
    let mut peer = switch.peer();
    let mut frame = [0; HEADER + SIZE];
    fill(&mut frame[HEADER..], 2, OWN[5], 5);
    second.put(0x8000, &frame);
    second.push(&[(0x8000, frame.len() as u32, false)]);
    guest.write(QUEUE_NOTIFY, 3);
    check_arrival(&mut peer, 5);
}

#[test]
fn missing_switch_is_an_error_with_a_remedy() {
    let message = error(Path::new("/nonexistent/a"), 1);
    assert!(
        message.starts_with("--net vhost-user=/nonexistent/a: "),
        "{message}"
    );
    let remedy = message.lines().nth(1).unwrap();
    assert_eq!(
        remedy,
        "help: start the switch before: trapline-switch --listen /nonexistent/a"
    );
}
