//! A virtio block device in host memory for tests, or an entropy device, which can also lie.

use super::fake_memory::{load, store};
use super::ring::Kind;
use super::transport::{Access, BLOCK, ENTROPY, INTERRUPT_ACK, INTERRUPT_STATUS, NEEDS_RESET};
use super::transport::{QUEUE_NOTIFY, STATUS};
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;
use trapline_abi::platform::VIRTIO_MAGIC;
use trapline_workloads::Reason;

/// Misbehaviour of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    #[default]
    None,
    /// Reports this descriptor as completed.
    Id(u32),
    /// Reports each completion twice.
    Twice,
    /// Adds this to the index of the used ring.
    Jump(u16),
    /// Reports this number of bytes.
    Length(u32),
    /// Writes no status.
    NoStatus,
    /// Reports this status.
    Status(u8),
    /// Completes nothing.
    Silence,
    /// Reports that it needs a reset.
    NeedsReset,
    /// The same, and completes nothing.
    Broken,
    /// Returns other data.
    Data,
    /// Does not write.
    NoWrite,
    /// Everything at random.
    Random,
}

/// Properties of the device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Device ID.
    pub kind: u32,
    pub features: u64,
    pub version: u32,
    pub queue_size: u32,
    pub mib: u32,
    pub polls: bool,
    /// The reset register keeps its value.
    pub never_resets: bool,
    pub lie: Lie,
    /// Number of truthful completions before it lies.
    pub truths: u32,
    pub seed: u64,
}

pub const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 9;

impl Default for Config {
    fn default() -> Self {
        Self {
            kind: BLOCK,
            features: FEATURES,
            version: 2,
            queue_size: 256,
            mib: 2,
            polls: false,
            never_resets: false,
            lie: Lie::None,
            truths: 0,
            seed: 1,
        }
    }
}

/// Events that the device has counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub interrupts: u64,
    pub notifications: u64,
    pub flushes: u64,
    pub requests: u64,
    /// Largest number of requests in flight.
    pub depth: usize,
}

/// A request as the device found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub kind: u32,
    pub sector: u64,
    pub bytes: u32,
    /// Requests that were in flight already.
    pub others: usize,
}

#[derive(Default)]
struct State {
    status: u32,
    selector: u32,
    causes: u32,
    size: u16,
    areas: [u64; 3],
    available: u16,
    used: u16,
    pending: Vec<u16>,
    disk: Vec<u8>,
    counts: Counts,
    fetched: Vec<Fetched>,
    random: u64,
}

/// The device, shared with its test.
#[derive(Clone)]
pub struct Fake {
    config: Config,
    state: Rc<RefCell<State>>,
}

impl Fake {
    pub fn new(config: Config) -> Self {
        let state = State {
            disk: vec![0; (config.mib as usize) << 20],
            random: config.seed,
            ..State::default()
        };
        Self {
            config,
            state: Rc::new(RefCell::new(state)),
        }
    }

    pub fn counts(&self) -> Counts {
        self.state.borrow().counts
    }

    /// Returns the requests since the last call, in the order of submission.
    pub fn take_fetched(&self) -> Vec<Fetched> {
        std::mem::take(&mut self.state.borrow_mut().fetched)
    }

    /// Returns the content of the disk.
    pub fn disk(&self) -> Vec<u8> {
        self.state.borrow().disk.clone()
    }

    /// Writes to the start of the disk.
    pub fn write_disk(&self, bytes: &[u8]) {
        self.state.borrow_mut().disk[..bytes.len()].copy_from_slice(bytes);
    }

    /// Changes a byte of the disk.
    pub fn damage(&self, offset: usize) {
        self.state.borrow_mut().disk[offset] ^= 1;
    }
}

impl Access for Fake {
    fn read(&self, register: u64) -> u32 {
        let state = self.state.borrow();
        match register {
            0x000 => VIRTIO_MAGIC,
            0x004 => self.config.version,
            0x008 => self.config.kind,
            0x010 => (self.config.features >> (32 * (state.selector & 1))) as u32,
            0x014 => state.selector,
            0x034 => self.config.queue_size,
            INTERRUPT_STATUS => state.causes,
            STATUS => state.status,
            0x100 => self.config.mib << 11,
            _ => 0,
        }
    }

    fn write(&self, register: u64, value: u32) {
        let mut state = self.state.borrow_mut();
        match register {
            0x014 => state.selector = value,
            0x038 => state.size = value as u16,
            0x080 | 0x090 | 0x0a0 => {
                let area = (register as usize - 0x080) / 16;
                state.areas[area] = state.areas[area] >> 32 << 32 | u64::from(value);
            }
            0x084 | 0x094 | 0x0a4 => {
                let area = (register as usize - 0x084) / 16;
                state.areas[area] = u64::from(value) << 32 | state.areas[area] & 0xffff_ffff;
            }
            INTERRUPT_ACK => state.causes &= !value,
            STATUS if value == 0 && self.config.never_resets => {}
            STATUS => {
                state.status = value;
                if value == 0 {
                    state.pending.clear();
                }
            }
            QUEUE_NOTIFY => {
                state.counts.notifications += 1;
                state.fetch(&self.config);
            }
            _ => {}
        }
    }

    fn interrupts(&self) -> u64 {
        if self.config.polls {
            0
        } else {
            self.state.borrow().counts.interrupts
        }
    }

    fn end_interrupt(&self) {}

    fn polls(&self) -> bool {
        self.config.polls
    }

    fn wait(&mut self, seen: u64, _: u64) -> Result<(), Reason> {
        let mut state = self.state.borrow_mut();
        let before = state.counts.requests;
        // Several completions may share an interrupt.
        for _ in 0..=state.next() % 3 {
            state.complete(&self.config);
        }
        let is_interrupted = state.counts.interrupts != seen;
        let is_over = state.counts.requests == before;
        if is_over && !is_interrupted {
            Err("nothing happens")
        } else {
            Ok(())
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

    fn has_event_index(config: &Config) -> bool {
        config.features & 1 << 29 != 0
    }

    /// Takes all available requests.
    fn fetch(&mut self, config: &Config) {
        let available: u16 = load(self.areas[1] + 2);
        while self.available != available {
            let place = u64::from(self.available % self.size);
            let head = load(self.areas[1] + 4 + 2 * place);
            self.available = self.available.wrapping_add(1);
            self.pending.push(head);
            if config.kind == ENTROPY {
                continue;
            }
            let (header, _, _, next) = self.descriptor(head);
            self.fetched.push(Fetched {
                kind: load(header),
                sector: load(header + 8),
                bytes: self.descriptor(next).1,
                others: self.pending.len() - 1,
            });
        }
        self.counts.depth = self.counts.depth.max(self.pending.len());
        if Self::has_event_index(config) {
            let event = self.areas[2] + 4 + 8 * u64::from(self.size);
            store(event, self.available);
        }
    }

    /// Completes one of the requests, in any order.
    fn complete(&mut self, config: &Config) {
        if config.lie == Lie::Broken {
            self.needs_reset();
        }
        if self.pending.is_empty() || [Lie::Silence, Lie::Broken].contains(&config.lie) {
            return;
        }
        let lies = self.counts.requests >= config.truths.into();
        let lie = if lies { config.lie } else { Lie::None };
        let chosen = self.next() as usize % self.pending.len();
        let head = self.pending.swap_remove(chosen);
        self.counts.requests += 1;
        let length = match config.kind {
            ENTROPY => self.descriptor(head).1,
            _ => self.perform(head, lie),
        };
        let (id, length, step) = self.report(head.into(), length, lie);
        let old = self.used;
        for _ in 0..step.min(self.size) {
            let element = self.areas[2] + 4 + 8 * u64::from(self.used % self.size);
            store(element, id);
            store(element + 4, length);
            self.used = self.used.wrapping_add(1);
        }
        self.used = old.wrapping_add(step);
        store(self.areas[2] + 2, self.used);
        if lie == Lie::NeedsReset {
            self.needs_reset();
        } else if self.is_interrupt_wanted(config, old) {
            self.causes |= 1;
            self.counts.interrupts += 1;
        }
    }

    fn needs_reset(&mut self) {
        self.status |= NEEDS_RESET;
        self.causes |= 2;
        self.counts.interrupts += 1;
    }

    /// Returns descriptor, length and number of completions as reported.
    fn report(&mut self, head: u32, length: u32, lie: Lie) -> (u32, u32, u16) {
        let random = self.next();
        match lie {
            Lie::Id(id) => (id, length, 1),
            Lie::Twice => (head, length, 2),
            Lie::Jump(step) => (head, length, step),
            Lie::Length(length) => (head, length, 1),
            Lie::Random => match random % 8 {
                0 => (random as u32 >> 8, length, 1),
                1 => ((random >> 8) as u32 % 128, length, 1),
                2 => (head, (random >> 8) as u32, 1),
                3 => (head, length, (random >> 8) as u16),
                _ => (head, length, 1),
            },
            _ => (head, length, 1),
        }
    }

    fn is_interrupt_wanted(&self, config: &Config, old: u16) -> bool {
        if Self::has_event_index(config) {
            let event: u16 = load(self.areas[1] + 4 + 2 * u64::from(self.size));
            let since = self.used.wrapping_sub(event).wrapping_sub(1);
            return since < self.used.wrapping_sub(old);
        }
        load::<u16>(self.areas[1]) & 1 == 0
    }

    /// Returns address, length, flags and successor.
    fn descriptor(&self, number: u16) -> (u64, u32, u16, u16) {
        let place = self.areas[0] + 16 * u64::from(number);
        let (flags, next) = (load(place + 12), load(place + 14));
        (load(place), load(place + 8), flags, next)
    }

    /// Performs the request at descriptor `head`. Returns the bytes written.
    fn perform(&mut self, head: u16, lie: Lie) -> u32 {
        let (header, _, _, next) = self.descriptor(head);
        let (kind, sector): (u32, u64) = (load(header), load(header + 8));
        let (data, length, flags, after) = self.descriptor(next);
        let offset = sector as usize * 512;
        let (status, reads) = if kind == Kind::Flush as u32 {
            self.counts.flushes += 1;
            (data, 0)
        } else {
            assert_eq!(flags & 2 != 0, kind == Kind::Read as u32, "direction");
            let bytes = &mut self.disk[offset..offset + length as usize];
            // SAFETY: the driver has given a buffer of this length.
            let buffer =
                unsafe { core::slice::from_raw_parts_mut(data as *mut u8, length as usize) };
            match kind == Kind::Read as u32 {
                true => buffer.copy_from_slice(bytes),
                false if lie == Lie::NoWrite => {}
                false => bytes.copy_from_slice(buffer),
            }
            if lie == Lie::Data {
                buffer[length as usize - 1] ^= 1;
            }
            let reads = if flags & 2 != 0 { length } else { 0 };
            (self.descriptor(after).0, reads)
        };
        match lie {
            Lie::NoStatus => {}
            Lie::Status(value) => store(status, value),
            Lie::Random => store(status, u8::from(self.next().is_multiple_of(16))),
            _ => store(status, 0_u8),
        }
        reads + 1
    }
}
