//! An entropy source (virtio 1.2, section 5.4).

use crate::virtio::{Device, DriverError, Memory, Progress, Ring};

const KIND: u32 = 4;
const QUEUES: [u16; 1] = [64];

/// Bytes per request at most; drivers ask again.
const MAX: usize = 4096;

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
    /// Fills all waiting buffers by `source`.
    ///
    /// # Errors
    /// The rings are malformed.
    pub fn serve(
        rings: &mut [Ring],
        memory: &Memory,
        source: &mut impl FnMut(&mut [u8]),
    ) -> Result<Progress, DriverError> {
        let [ring] = rings else {
            return Err(DriverError::Ring);
        };
        ring.serve_all(memory, |chain| {
            let mut bytes = [0; MAX];
            let bytes = &mut bytes[..chain.writable_length().min(MAX)];
            source(bytes);
            chain.write(memory, 0, bytes)?;
            Ok(Some(bytes.len()))
        })
    }
}
