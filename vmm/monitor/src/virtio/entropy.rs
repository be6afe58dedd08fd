//! Random bytes (virtio 1.2, section 5.4): a request is room, and comes back filled.

use crate::virtio::{Broken, Device, Memory, Ring, Served};

const KIND: u32 = 4;
const QUEUES: [u16; 1] = [64];

/// How many bytes a request gets at the most: a driver asks again.
const MOST: usize = 4096;

/// The device.
#[derive(Debug, Default)]
pub struct Entropy;

impl Device for Entropy {
    fn kind(&self) -> u32 {
        KIND
    }

    fn queues(&self) -> &[u16] {
        &QUEUES
    }
}

impl Entropy {
    /// Fills what waits, with what `source` puts into the bytes that it is given.
    ///
    /// # Errors
    /// The rings make no sense.
    pub fn serve(
        rings: &mut [Ring],
        memory: &Memory,
        source: &mut impl FnMut(&mut [u8]),
    ) -> Result<Served, Broken> {
        let [ring] = rings else {
            return Err(Broken::Ring);
        };
        let mut bytes = [0; MOST];
        ring.serve_all(memory, |chain| {
            let bytes = &mut bytes[..chain.writable_length().min(MOST)];
            source(bytes);
            chain.write(memory, 0, bytes)?;
            Ok(Some(bytes.len()))
        })
    }
}
