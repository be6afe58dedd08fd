use super::*;
use crate::virtio::driver::{self, Driver, ENTRIES};
use proptest::prelude::*;
use std::format;
use std::vec;
use std::vec::Vec;

/// A device that gives each request back, saying that it wrote all.
#[derive(Debug, Default)]
struct Echo {
    written: Vec<(usize, Vec<u8>)>,
    active: Option<u64>,
}

impl Device for Echo {
    fn kind(&self) -> u32 {
        42
    }
    fn features(&self) -> u64 {
        1 << 5
    }
    fn queues(&self) -> &[u16] {
        &[ENTRIES, 4]
    }
    fn configuration(&self) -> &[u8] {
        &[1, 2, 3, 4, 5]
    }
    fn configure(&mut self, offset: usize, bytes: &[u8]) {
        self.written.push((offset, bytes.to_vec()));
    }
    fn activate(&mut self, features: u64) {
        self.active = Some(features);
    }
    fn reset(&mut self) {
        self.active = None;
    }
}

fn fresh() -> (Transport<Echo>, Memory) {
    (Transport::new(Echo::default()), driver::memory(2))
}

fn say(transport: &mut Transport<Echo>, memory: &Memory, words: &[(u32, u32)]) {
    for (offset, value) in words {
        let _nothing = transport.write(*offset, 4, (*value).into(), memory);
    }
}

#[test]
fn handshake_starts_the_device() {
    let (mut transport, memory) = fresh();
    assert_eq!(transport.read(MAGIC, 4), u64::from(VIRT));
    assert_eq!(transport.read(VERSION, 4), 2);
    assert_eq!(transport.read(DEVICE_ID, 4), 42);
    assert_eq!(transport.read(DEVICE_FEATURES, 4), 1 << 5 | 3 << 28);
    assert!(transport.live().is_none());
    driver::start(&mut transport, &memory, 1 << 5);
    assert_eq!(transport.device().active, Some(1 << 5 | VERSION_1));
    assert_eq!(transport.live().unwrap().1.len(), 2);
    let _serve = transport.write(QUEUE_NOTIFY, 4, 1, &memory);
    assert_eq!(transport.write(QUEUE_NOTIFY, 4, 2, &memory), Outcome::None);
    assert_eq!(transport.write(STATUS, 4, 0, &memory), Outcome::Reset);
    assert!(transport.live().is_none() && transport.device().active.is_none());
    assert_eq!(transport.read(STATUS, 4), 0);
}

#[test]
fn handshake_order_is_enforced() {
    let (mut transport, memory) = fresh();
    say(&mut transport, &memory, &[(STATUS, DRIVER_OK.into())]);
    assert_eq!(transport.read(STATUS, 4), 0);
    // Without virtio 1, and with what is not offered, there is no agreement.
    for features in [0, 1 << 6] {
        say(
            &mut transport,
            &memory,
            &[
                (STATUS, 0),
                (STATUS, 1),
                (STATUS, 3),
                (DRIVER_FEATURES, features),
                (DRIVER_FEATURES_SEL, 1),
                (DRIVER_FEATURES, features.min(1)),
                (STATUS, 0x0b),
            ],
        );
        assert_eq!(transport.read(STATUS, 4), 3);
    }
    driver::start(&mut transport, &memory, 0);
    say(&mut transport, &memory, &[(STATUS, 1)]);
    assert_eq!(transport.read(STATUS, 4), 0x0f);
    say(&mut transport, &memory, &[(STATUS, 0x8f)]);
    assert!(transport.live().is_none());
}

#[test]
fn running_ring_cannot_be_reconfigured() {
    let (mut transport, memory) = fresh();
    driver::start(&mut transport, &memory, 0);
    let geometry = |transport: &mut Transport<Echo>| format!("{:?}", transport.rings[0]);
    let before = geometry(&mut transport);
    say(
        &mut transport,
        &memory,
        &[
            (QUEUE_SEL, 0),
            (QUEUE_READY, 0),
            (QUEUE_SIZE, 2),
            (QUEUE_DESC_LOW, 0x100),
            (DRIVER_FEATURES, 1 << 5),
        ],
    );
    assert_eq!(geometry(&mut transport), before);
}

#[test]
fn ring_outside_memory_is_not_ready() {
    let (mut transport, memory) = fresh();
    for at in [driver::rings(2) - 0x1000, u64::MAX - 0x2fff] {
        say(
            &mut transport,
            &memory,
            &[
                (STATUS, 0),
                (STATUS, 1),
                (STATUS, 3),
                (DRIVER_FEATURES_SEL, 1),
            ],
        );
        say(
            &mut transport,
            &memory,
            &[(DRIVER_FEATURES, 1), (STATUS, 11)],
        );
        driver::lay_out(&mut transport, &memory, at);
        assert_eq!(transport.read(QUEUE_READY, 4), 0, "{at:#x}");
    }
}

#[test]
fn malformed_ring_breaks_the_device() {
    let (mut transport, memory) = fresh();
    driver::start(&mut transport, &memory, 0);
    let mut driver = Driver::new(&memory, 0);
    let head = driver.push(&[(0, 8, false), (8, 9, true)]);
    let serve = |transport: &mut Transport<Echo>| {
        let (_, rings) = transport.live().unwrap();
        rings[0].serve_all(&memory, |chain| Ok(Some(chain.writable_length())))
    };
    let served = serve(&mut transport).unwrap();
    assert!(served.interrupt && !served.more);
    assert_eq!(driver.used(), Some((head.into(), 9)));
    assert_eq!(driver.used(), None);
    // In a circle.
    driver.describe(4, 0, 8, 1, 5);
    driver.describe(5, 0, 8, 1, 4);
    driver.offer(4);
    assert_eq!(serve(&mut transport), Err(DriverError::Chain));
    transport.fail(DriverError::Chain);
    assert!(transport.live().is_none() && transport.is_broken());
    assert_eq!(transport.read(INTERRUPT_STATUS, 4), 2);
    assert_eq!(transport.read(STATUS, 4), 0x4f);
    say(&mut transport, &memory, &[(INTERRUPT_ACK, 2), (STATUS, 0)]);
    assert_eq!(transport.read(INTERRUPT_STATUS, 4), 0);
    // More than the ring holds.
    driver::start(&mut transport, &memory, 0);
    driver.claim(ENTRIES + 1);
    assert_eq!(serve(&mut transport), Err(DriverError::Ring));
    for head in [ENTRIES, u16::MAX] {
        say(&mut transport, &memory, &[(STATUS, 0)]);
        driver::start(&mut transport, &memory, 0);
        let mut driver = Driver::new(&memory, 0);
        driver.offer(head);
        assert_eq!(serve(&mut transport), Err(DriverError::Chain));
    }
}

#[test]
fn requests_are_bounded_per_turn() {
    let (mut transport, memory) = fresh();
    driver::start(&mut transport, &memory, 0);
    let mut driver = Driver::new(&memory, 0);
    for _ in 0..ENTRIES {
        driver.push(&[(0, 1, true)]);
    }
    let (_, rings) = transport.live().unwrap();
    let mut count = 0;
    let served = rings[0].serve_all(&memory, |_| {
        // The driver offers another as soon as one is taken.
        driver.push(&[(0, 1, true)]);
        count += 1;
        Ok(Some(0))
    });
    assert_eq!((served.unwrap().more, count), (true, ENTRIES));
}

#[test]
fn configuration_is_readable_in_any_size() {
    let (mut transport, memory) = fresh();
    assert_eq!(transport.read(CONFIG, 1), 1);
    assert_eq!(transport.read(CONFIG + 1, 2), 0x0302);
    assert_eq!(transport.read(CONFIG, 8), 0x05_0403_0201);
    assert_eq!(transport.read(CONFIG + 4, 4), 5);
    assert_eq!(transport.read(CONFIG + 0xff, 8), 0);
    let _nothing = transport.write(CONFIG + 2, 2, 0x1234, &memory);
    assert_eq!(transport.device().written, [(2, vec![0x34, 0x12])]);
}

proptest! {
    /// Any writes in any state: nothing panics, rings that are live lie in memory, and a
    /// reset always leads back to the beginning.
    #[test]
    fn any_pokes_leave_a_device_that_can_be_reset(
        pokes in prop::collection::vec((0..SIZE + 8, prop::sample::select(vec![1_u8, 2, 4, 8]),
            prop_oneof![0..16_u64, any::<u64>(), Just(0x1_0000), Just(0x1_1000)]), 0..300),
    ) {
        let (mut transport, memory) = fresh();
        for (number, (offset, size, value)) in pokes.into_iter().enumerate() {
            // Half of the pokes come close to what a driver would say.
            let offset = if number % 2 == 0 { offset & !3 } else { STATUS };
            let value = if number % 2 == 0 { value } else { 0x0f & (value << 1 | 1) };
            let _any = transport.write(offset, size, value, &memory);
            transport.read(offset, size);
            if let Some((_, rings)) = transport.live() {
                for ring in rings {
                    let _broken = ring.serve_all(&memory, |_| Ok(Some(0)));
                }
            }
        }
        let _reset = transport.write(STATUS, 4, 0, &memory);
        driver::start(&mut transport, &memory, 0);
        prop_assert!(transport.live().is_some());
    }
}

/// A device whose only queue another process serves.
struct External;

impl Device for External {
    fn kind(&self) -> u32 {
        1
    }
    fn common_features(&self) -> u64 {
        VERSION_1
    }
    fn queues(&self) -> &[u16] {
        &[ENTRIES]
    }
    fn external_queues(&self) -> usize {
        1
    }
}

#[test]
fn interrupt_of_another_process_is_one_for_used_buffers() {
    let (mut transport, memory) = (Transport::new(External), driver::memory(1));
    let _nothing = transport.write(DEVICE_FEATURES_SEL, 4, 0, &memory);
    assert_eq!(
        transport.read(DEVICE_FEATURES, 4),
        0,
        "only what the process offers"
    );
    driver::start(&mut transport, &memory, 0);
    let rung = transport.write(QUEUE_NOTIFY, 4, 0, &memory);
    assert_eq!(rung, Outcome::Notify(0));
    let status = |transport: &Transport<External>| transport.read(INTERRUPT_STATUS, 4);
    assert_eq!(status(&transport), u64::from(USED));
    transport.reconfigure(|_| {});
    assert_eq!(status(&transport), u64::from(USED | CHANGED));
    let _nothing = transport.write(INTERRUPT_ACK, 4, 3, &memory);
    assert_eq!(status(&transport), u64::from(USED));
    let (_, rings) = transport.live().unwrap();
    let layout = rings[0].layout(&memory).unwrap();
    let start = driver::rings(0);
    assert_eq!(layout.areas, [start, start + 0x1000, start + 0x2000]);
    assert_eq!((layout.size, layout.used), (ENTRIES, 0));
}
