//! A virtio network card in host memory for tests, which can also lie. Its network is a function of the test.

use super::fake_memory::{load, store};
use super::transport::{
    Access, INTERRUPT_ACK, INTERRUPT_STATUS, NEEDS_RESET, QUEUE_NOTIFY, STATUS,
};
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::vec::Vec;
use trapline_abi::platform::VIRTIO_MAGIC;
use trapline_workloads::Reason;

/// Bytes of a header.
const HEADER: usize = 12;

/// Misbehaviour of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    #[default]
    None,
    /// Reports this descriptor as that of a received frame.
    Received(u32),
    /// Reports this descriptor as that of a sent frame.
    Sent(u32),
    /// Reports this length of a received frame, with its header.
    Length(u32),
    /// Adds this to the index of the used ring of received frames.
    Jump(u16),
    /// Reports that it needs a reset.
    NeedsReset,
    /// Everything at random.
    Random,
}

/// Properties of the device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub features: u64,
    pub queue_size: u32,
    pub mac: [u8; 6],
    pub polls: bool,
    pub lie: Lie,
    pub seed: u64,
}

pub const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 5;

impl Default for Config {
    fn default() -> Self {
        Self {
            features: FEATURES,
            queue_size: 256,
            mac: [2, 0, 0, 0, 0, 9],
            polls: false,
            lie: Lie::None,
            seed: 1,
        }
    }
}

/// Function from a sent frame to those received in answer.
pub type Network = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>>>;

#[derive(Clone, Copy, Default)]
struct Queue {
    size: u16,
    areas: [u64; 3],
    available: u16,
    used: u16,
}

struct State {
    config: Config,
    network: Network,
    status: u32,
    selector: u32,
    causes: u32,
    selected: usize,
    queues: [Queue; 2],
    frames: VecDeque<Vec<u8>>,
    interrupts: u64,
    random: u64,
}

/// The device, shared with its test.
#[derive(Clone)]
pub struct FakeCard(Rc<RefCell<State>>);

impl FakeCard {
    pub fn new(config: Config, network: Network) -> Self {
        Self(Rc::new(RefCell::new(State {
            config,
            network,
            status: 0,
            selector: 0,
            causes: 0,
            selected: 0,
            queues: Default::default(),
            frames: VecDeque::new(),
            interrupts: 0,
            random: config.seed,
        })))
    }

    /// Lets frames arrive that no sent frame caused.
    pub fn deliver(&self, frames: Vec<Vec<u8>>) {
        self.0.borrow_mut().frames.extend(frames);
    }

    /// Puts the first of the frames that have arrived into a buffer of the driver.
    pub fn receive(&self) -> bool {
        self.0.borrow_mut().receive()
    }

    /// Returns true if the device was reset after its start.
    pub fn is_stopped(&self) -> bool {
        self.0.borrow().status == 0
    }
}

impl Access for FakeCard {
    fn read(&self, register: u64) -> u32 {
        let state = self.0.borrow();
        let [a, b, c, d, e, f] = state.config.mac;
        match register {
            0x000 => VIRTIO_MAGIC,
            0x004 => 2,
            0x008 => 1,
            0x010 => (state.config.features >> (32 * (state.selector & 1))) as u32,
            0x034 => state.config.queue_size,
            INTERRUPT_STATUS => state.causes,
            STATUS => state.status,
            0x100 => u32::from_le_bytes([a, b, c, d]),
            0x104 => u32::from_le_bytes([e, f, 1, 0]),
            _ => 0,
        }
    }

    fn write(&self, register: u64, value: u32) {
        let mut state = self.0.borrow_mut();
        let selected = state.selected;
        match register {
            0x014 => state.selector = value,
            0x030 => state.selected = value as usize,
            0x038 => state.queues[selected].size = value as u16,
            0x080..0x0b0 => {
                let area = &mut state.queues[selected].areas[(register as usize - 0x080) / 16];
                let shift = 8 * (register & 4);
                *area |= u64::from(value) << shift;
            }
            INTERRUPT_ACK => state.causes &= !value,
            STATUS => state.status = value,
            QUEUE_NOTIFY => state.transmit(),
            _ => {}
        }
    }

    fn interrupts(&self) -> u64 {
        let state = self.0.borrow();
        if state.config.polls {
            0
        } else {
            state.interrupts
        }
    }

    fn end_interrupt(&self) {}

    fn polls(&self) -> bool {
        self.0.borrow().config.polls
    }

    fn wait(&mut self, seen: u64, _: u64) -> Result<(), Reason> {
        let mut state = self.0.borrow_mut();
        if state.receive() || state.interrupts != seen {
            Ok(())
        } else {
            Err("nothing happens")
        }
    }
}

impl State {
    fn next(&mut self) -> u64 {
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Takes the next available descriptor of a queue: its number, address and length.
    fn take(&mut self, queue: usize) -> Option<(u16, u64, usize)> {
        let has_event_index = self.config.features & 1 << 29 != 0;
        let queue = &mut self.queues[queue];
        if queue.size == 0 || queue.available == load::<u16>(queue.areas[1] + 2) {
            return None;
        }
        let place = u64::from(queue.available % queue.size);
        let head: u16 = load(queue.areas[1] + 4 + 2 * place);
        queue.available = queue.available.wrapping_add(1);
        if has_event_index {
            store(
                queue.areas[2] + 4 + 8 * u64::from(queue.size),
                queue.available,
            );
        }
        let descriptor = queue.areas[0] + 16 * u64::from(head);
        Some((head, load(descriptor), load::<u32>(descriptor + 8) as usize))
    }

    fn complete(&mut self, queue: usize, id: u32, length: u32, step: u16) {
        let queue = &mut self.queues[queue];
        let element = queue.areas[2] + 4 + 8 * u64::from(queue.used % queue.size);
        store(element, id);
        store(element + 4, length);
        queue.used = queue.used.wrapping_add(step);
        store(queue.areas[2] + 2, queue.used);
    }

    fn transmit(&mut self) {
        while let Some((head, address, length)) = self.take(1) {
            assert!((HEADER..=HEADER + 1514).contains(&length), "{length}");
            // SAFETY: the driver has given a buffer of this length.
            let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, length) };
            assert_eq!(bytes[..HEADER], [0; HEADER], "no offloads");
            let answers = (self.network)(&bytes[HEADER..]);
            self.frames.extend(answers);
            let random = self.next();
            let id = match self.config.lie {
                Lie::Sent(id) => id,
                Lie::Random if random.is_multiple_of(8) => (random >> 8) as u32 % 80,
                _ => head.into(),
            };
            self.complete(1, id, 0, 1);
        }
    }

    /// Receives the next frame. Returns false if there is none.
    fn receive(&mut self) -> bool {
        let Some(frame) = self.frames.pop_front() else {
            return false;
        };
        let Some((head, address, room)) = self.take(0) else {
            return false;
        };
        assert!(room >= HEADER + frame.len(), "{room}");
        // SAFETY: the driver has given a buffer of this length.
        let bytes = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, room) };
        bytes[HEADER..][..frame.len()].copy_from_slice(&frame);
        let (right, random) = ((HEADER + frame.len()) as u32, self.next());
        let (id, length, step) = match self.config.lie {
            Lie::Received(id) => (id, right, 1),
            Lie::Length(length) => (head.into(), length, 1),
            Lie::Jump(step) => (head.into(), right, step),
            Lie::Random => match random % 8 {
                0 => ((random >> 8) as u32 % 80, right, 1),
                1 => (head.into(), (random >> 8) as u32, 1),
                2 => (head.into(), right, (random >> 8) as u16),
                _ => (head.into(), right, 1),
            },
            _ => (head.into(), right, 1),
        };
        self.complete(0, id, length, step);
        self.causes |= 1;
        if self.config.lie == Lie::NeedsReset {
            self.status |= NEEDS_RESET;
            self.causes |= 2;
        }
        self.interrupts += 1;
        true
    }
}
