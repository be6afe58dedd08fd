//! A driver controlled by bytes, for fuzzers and regression tests.
//!
//! Bytes become driver steps that are mostly valid: a request, an altered descriptor, a register access. The device must not
//! panic and must work after a reset. A device takes part by implementing [`Subject`].

mod block;
mod net;
mod small;
mod vsock;

pub use block::Disk;
pub use net::Wire;
pub use small::{Bytes, Numbers};
pub use vsock::Programs;

use crate::virtio::driver::{self, Chunk, Driver, ENTRIES};
use crate::virtio::registers::{FEATURES_OK, QUEUE_NOTIFY, SIZE, STATUS};
use crate::virtio::{Device, DriverError, Memory, Outcome, Progress, Transport};
use alloc::vec;
use alloc::vec::Vec;
use arbitrary::{Result, Unstructured};

/// A device under test and its server.
pub trait Subject {
    /// Device type.
    type Device: Device;

    /// Creates device and server as chosen by `input`.
    ///
    /// # Errors
    /// The input has ended.
    fn begin(input: &mut Unstructured<'_>) -> Result<(Self::Device, Self)>
    where
        Self: Sized;

    /// Returns a mostly valid request: contents of the first, readable descriptor, and the other descriptors.
    ///
    /// # Errors
    /// The input has ended.
    fn request(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Chunk>)>;

    /// Serves the device once and checks its requests.
    ///
    /// # Errors
    /// The device needs a reset.
    fn serve(
        &mut self,
        transport: &mut Transport<Self::Device>,
        memory: &Memory,
    ) -> core::result::Result<Progress, DriverError>;

    /// Simulates an external event.
    ///
    /// # Errors
    /// The input has ended.
    fn happen(
        &mut self,
        _transport: &mut Transport<Self::Device>,
        _input: &mut Unstructured<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// Completes all requests in flight.
    fn settle(&mut self, _transport: &mut Transport<Self::Device>) {}

    /// Executes one valid request on a device that has just started.
    fn prove(&mut self, transport: &mut Transport<Self::Device>, memory: &Memory);
}

/// Address of a request.
const HEADER: u64 = 0x100;

/// Limit of steps.
const MAX: usize = 200;

/// Executes `bytes` with all driver steps.
pub fn exercise<S: Subject>(bytes: &[u8]) {
    run::<S>(bytes, |guest, input| guest.step(input));
}

/// Executes `bytes` with register accesses only.
pub fn poke<S: Subject>(bytes: &[u8]) {
    run::<S>(bytes, |guest, input| {
        if input.ratio(1, 16)? {
            guest.serve();
            Ok(())
        } else {
            guest.poke(input)
        }
    });
}

fn run<S: Subject>(
    bytes: &[u8],
    step: impl Fn(&mut Guest<S>, &mut Unstructured<'_>) -> Result<()>,
) {
    let mut input = Unstructured::new(bytes);
    let Ok(mut guest) = Guest::<S>::begin(&mut input) else {
        return;
    };
    for _ in 0..MAX {
        if input.is_empty() || step(&mut guest, &mut input).is_err() {
            break;
        }
    }
    guest.end();
}

struct Guest<S: Subject> {
    subject: S,
    transport: Transport<S::Device>,
    memory: Memory,
    queues: u32,
    /// Number of requests offered in each queue.
    offered: Vec<u16>,
}

impl<S: Subject> Guest<S> {
    fn begin(input: &mut Unstructured<'_>) -> Result<Self> {
        let (device, subject) = S::begin(input)?;
        let queues = device.queues().len();
        let mut guest = Self {
            memory: driver::memory(queues as u32),
            queues: queues as u32,
            offered: vec![0; queues],
            transport: Transport::new(device),
            subject,
        };
        guest.start(u64::MAX);
        Ok(guest)
    }

    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        match input.int_in_range(0..=15_u8)? {
            0..=4 => self.push(input),
            5 => self.describe(input),
            6 => self.scribble(input),
            7 => self.claim(input),
            8 => self.poke(input),
            9 => {
                let features = input.arbitrary()?;
                self.start(features);
                Ok(())
            }
            10..=12 => {
                self.serve();
                Ok(())
            }
            _ => self.subject.happen(&mut self.transport, input),
        }
    }

    /// Resets and starts the device.
    fn start(&mut self, features: u64) {
        self.reset();
        let rings = (self.queues * 0x4000) as usize;
        let cleared = self.memory.write(driver::rings(0), &vec![0; rings]);
        cleared.expect("rings are in memory");
        self.offered.fill(0);
        let offered = self.transport.device().features() | crate::virtio::registers::OFFERED;
        driver::start(&mut self.transport, &self.memory, features & offered);
    }

    fn reset(&mut self) {
        let outcome = self.transport.write(STATUS, 4, 0, &self.memory);
        assert_eq!(outcome, Outcome::Reset);
        assert_eq!(self.transport.read(STATUS, 4), 0);
    }

    /// Offers a request, sometimes with an invalid descriptor.
    fn push(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let queue = input.int_in_range(0..=self.queues - 1)?;
        let (begin, mut pieces) = self.subject.request(input)?;
        if !begin.is_empty() {
            pieces.insert(0, (HEADER, begin.len() as u32, false));
        }
        if pieces.is_empty() || input.ratio(1, 4)? {
            let place = input.int_in_range(0..=pieces.len())?;
            let odd = piece(input)?;
            match pieces.get_mut(place) {
                Some(piece) => *piece = odd,
                None => pieces.push(odd),
            }
        }
        let mut driver = self.driver(queue);
        driver.put(HEADER, &begin);
        let first = input.int_in_range(0..=ENTRIES - 1)?;
        chain(&mut driver, first, &pieces);
        driver.offer(first);
        self.offered[queue as usize] = self.offered[queue as usize].wrapping_add(1);
        Ok(())
    }

    fn describe(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let queue = input.int_in_range(0..=self.queues - 1)?;
        let (at, length, _) = piece(input)?;
        let number = input.int_in_range(0..=ENTRIES)?;
        let (flags, next) = (input.int_in_range(0..=7)?, input.int_in_range(0..=ENTRIES)?);
        self.driver(queue).describe(number, at, length, flags, next);
        Ok(())
    }

    fn scribble(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let at = input.int_in_range(0..=driver::rings(self.queues) - 8)?;
        let bytes: [u8; 8] = input.arbitrary()?;
        self.driver(0).put(at, &bytes);
        Ok(())
    }

    fn claim(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let queue = input.int_in_range(0..=self.queues - 1)?;
        let available = input.arbitrary()?;
        self.driver(queue).claim(available);
        self.offered[queue as usize] = available;
        Ok(())
    }

    fn poke(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let offset = if input.ratio(7, 8)? {
            4 * input.int_in_range(0..=SIZE / 4 - 1)?
        } else {
            input.int_in_range(0..=SIZE - 1)?
        };
        let size = *input.choose(&[4, 4, 4, 1, 2, 8])?;
        if input.arbitrary()? {
            self.transport.read(offset, size);
            return Ok(());
        }
        let value = match input.int_in_range(0..=3)? {
            0 => input.int_in_range(0..=2)?,
            1 => input.int_in_range(0..=255)?,
            2 => driver::rings(input.int_in_range(0..=2)?),
            _ => input.arbitrary()?,
        };
        let _whoever = self.transport.write(offset, size, value, &self.memory);
        Ok(())
    }

    /// Serves the device.
    fn serve(&mut self) {
        if self.transport.live().is_none() {
            return;
        }
        match self.subject.serve(&mut self.transport, &self.memory) {
            Ok(_) => assert!(!self.transport.is_broken()),
            Err(why) => {
                self.transport.fail(why);
                assert!(self.transport.live().is_none() && self.transport.is_broken());
            }
        }
    }

    /// Checks that the device works after a reset.
    fn end(mut self) {
        self.reset();
        self.subject.settle(&mut self.transport);
        assert_eq!(self.transport.device().in_flight(), 0);
        self.start(u64::MAX);
        assert_eq!(self.transport.read(STATUS, 4) & u64::from(FEATURES_OK), 8);
        let rung = self.transport.write(QUEUE_NOTIFY, 4, 0, &self.memory);
        assert_eq!(rung, Outcome::Notify(0));
        self.subject.prove(&mut self.transport, &self.memory);
    }

    fn driver(&self, queue: u32) -> Driver<'_> {
        Driver::continuing(&self.memory, queue, self.offered[queue as usize])
    }
}

/// Returns a descriptor, mostly in memory.
fn piece(input: &mut Unstructured<'_>) -> Result<Chunk> {
    let at = match input.int_in_range(0..=7)? {
        0..=5 => 0x1000 * input.int_in_range(1..=8)?,
        6 => driver::rings(0) + input.int_in_range(0..=0x4000)?,
        _ => input.arbitrary()?,
    };
    let length = match input.int_in_range(0..=7)? {
        0..=3 => 512 * input.int_in_range(0..=9)?,
        4 => 1,
        5 | 6 => input.int_in_range(0..=64)?,
        _ => input.arbitrary()?,
    };
    Ok((at, length, input.arbitrary()?))
}

/// Writes linked descriptors.
fn chain(driver: &mut Driver<'_>, first: u16, pieces: &[Chunk]) {
    let (next, write) = (1, 2);
    for ((at, length, is_written), number) in pieces.iter().zip(0..) {
        let (here, is_last) = (
            (first + number) % ENTRIES,
            usize::from(number) + 1 == pieces.len(),
        );
        let flags = if is_last { 0 } else { next } | if *is_written { write } else { 0 };
        driver.describe(here, *at, *length, flags, (here + 1) % ENTRIES);
    }
}

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All fuzz targets, by the names of their corpus directories.
pub const TARGETS: [(&str, Target); 5] = [
    ("transport", poke::<Bytes>),
    ("rings", |bytes| match bytes.split_first() {
        Some((which, rest)) if which % 2 == 0 => exercise::<Bytes>(rest),
        _ => exercise::<Numbers>(bytes),
    }),
    ("block", exercise::<Disk>),
    ("net", exercise::<Wire>),
    ("vsock", exercise::<Programs>),
];

/// Returns the fuzz target of this name.
pub fn target(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target)
}
