//! The control queue (virtio 1.2, section 5.1.6.5): the number of pairs of queues in use (5.1.6.5.6).

use crate::virtio::{DriverError, Memory, Progress, Ring};

/// Class and command: VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET.
const SET_PAIRS: [u8; 2] = [4, 0];

/// Answers: VIRTIO_NET_OK, VIRTIO_NET_ERR.
const DONE: u8 = 0;
const REFUSED: u8 = 1;

/// Answers the driver's commands. `set_pairs` uses this number of pairs, and returns false if there are fewer.
///
/// # Errors
/// The ring is malformed, or a command has no room for the answer.
pub fn serve(
    ring: &mut Ring,
    memory: &Memory,
    mut set_pairs: impl FnMut(u16) -> bool,
) -> Result<Progress, DriverError> {
    ring.serve_all(memory, |chain| {
        let mut command = [0; 4];
        let is_known = chain.readable_length() == command.len();
        if is_known {
            chain.read(memory, 0, &mut command)?;
        }
        let [class, number, low, high] = command;
        let is_done = [class, number] == SET_PAIRS && set_pairs(u16::from_le_bytes([low, high]));
        chain.write(memory, 0, &[if is_done { DONE } else { REFUSED }])?;
        Ok(Some(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::driver::{self, Driver};
    use crate::virtio::{Device, Transport};
    use std::vec;
    use std::vec::Vec;

    struct Commands;

    impl Device for Commands {
        fn kind(&self) -> u32 {
            super::super::KIND
        }
        fn queues(&self) -> &[u16] {
            &[driver::ENTRIES]
        }
    }

    /// Sends a command. Returns its answer and the numbers of pairs that were set.
    fn answer(command: &[u8], room: u32) -> (Result<u8, DriverError>, Vec<u16>) {
        let (mut transport, memory) = (Transport::new(Commands), driver::memory(1));
        driver::start(&mut transport, &memory, 0);
        let mut queue = Driver::new(&memory, 0);
        queue.put(0, command);
        queue.put(0x1000, &[0xff]);
        queue.push(&[(0, command.len() as u32, false), (0x1000, room, true)]);
        let mut set = Vec::new();
        let (_, rings) = transport.live().unwrap();
        let served = serve(&mut rings[0], &memory, |pairs| {
            set.push(pairs);
            (1..=2).contains(&pairs)
        });
        (served.map(|_| queue.bytes(0x1000, 1)[0]), set)
    }

    #[test]
    fn pairs_are_set_and_other_commands_refused() {
        assert_eq!(answer(&[4, 0, 2, 0], 1), (Ok(DONE), vec![2]));
        assert_eq!(answer(&[4, 0, 3, 0], 1), (Ok(REFUSED), vec![3]));
        for command in [
            &[4, 1, 2, 0][..],
            &[0, 0, 1, 0],
            &[4, 0, 2],
            &[4, 0, 2, 0, 0],
            &[4],
        ] {
            assert_eq!(answer(command, 1), (Ok(REFUSED), vec![]), "{command:?}");
        }
        assert_eq!(answer(&[4, 0, 2, 0], 0).0, Err(DriverError::Request));
    }
}
