//! A network card in a network controlled by the input.

use super::Subject;
use crate::virtio::chain::Part;
use crate::virtio::driver::{Chunk, Driver};
use crate::virtio::net::{FrameBuffer, Header, Net, Network, Offloads, HEADER, MAX_FRAME};
use crate::virtio::{Device, DriverError, Memory, Progress, Transport};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use arbitrary::{Result, Unstructured};

/// Limit of frames waiting in the network.
const MAX: usize = 20;

/// Server of a card.
#[derive(Debug, Default)]
pub struct Wire {
    coming: VecDeque<(Header, usize)>,
    read: usize,
    sent: usize,
    lost: usize,
}

/// A network with the negotiated offloads.
struct Port<'a> {
    wire: &'a mut Wire,
    memory: &'a Memory,
    agreed: Offloads,
}

impl Port<'_> {
    fn check(&self, parts: &[Part]) {
        // IOV_MAX without header and remainder.
        assert!(parts.len() <= 1_022);
        for part in parts {
            assert!(part.length > 0 && self.memory.contains(part.at, part.length));
        }
    }
}

impl Network for Port<'_> {
    fn read(&mut self, room: FrameBuffer<'_>) -> Option<usize> {
        self.check(room.parts);
        let (header, length) = self.wire.coming.pop_front()?;
        *room.header = header.0;
        let all: usize = room.parts.iter().map(|part| part.length).sum();
        assert!(length <= all.saturating_add(room.rest.len()));
        self.wire.read += 1;
        Some(length)
    }

    fn write(&mut self, header: &Header, parts: &[Part]) {
        self.check(parts);
        let length = parts.iter().map(|part| part.length).sum();
        assert!((14..=MAX_FRAME).contains(&length) && header.uses_only(self.agreed));
        self.wire.sent += 1;
    }

    fn lost(&mut self) {
        self.wire.lost += 1;
    }
}

fn header(input: &mut Unstructured<'_>) -> Result<Header> {
    let mut header = Header(input.arbitrary()?);
    header.0[0] = input.int_in_range(0..=3)?;
    header.0[1] = *input.choose(&[0, 0, 0, 1, 4, 3, 0x81])?;
    Ok(header)
}

impl Subject for Wire {
    type Device = Net;

    fn begin(input: &mut Unstructured<'_>) -> Result<(Net, Self)> {
        let mtu = input.arbitrary()?;
        Ok((Net::new([2, 0, 0, 0, 0, 1], mtu), Self::default()))
    }

    fn request(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Chunk>)> {
        let is_room = input.arbitrary()?;
        let mut pieces = Vec::new();
        for number in 0..input.int_in_range(1..=4_u64)? {
            let length = if input.arbitrary()? {
                input.int_in_range(1..=2000)?
            } else {
                input.int_in_range(0..=0x8000)?
            };
            pieces.push((0x1000 * (number + 1), length, is_room));
        }
        if is_room {
            Ok((Vec::new(), pieces))
        } else {
            Ok((header(input)?.0.to_vec(), pieces))
        }
    }

    fn serve(
        &mut self,
        transport: &mut Transport<Net>,
        memory: &Memory,
    ) -> core::result::Result<Progress, DriverError> {
        let Some((net, rings)) = transport.live() else {
            return Ok(Progress::default());
        };
        let agreed = net.transmit_offloads();
        let mut port = Port {
            wire: self,
            memory,
            agreed,
        };
        let sent = net.transmit(rings, memory, &mut port)?;
        let heard = net.receive(rings, memory, &mut port)?;
        // A card with buffers has received all frames.
        assert!(heard.more || !net.has_room() || self.coming.is_empty());
        Ok(sent.and(heard))
    }

    fn happen(&mut self, _: &mut Transport<Net>, input: &mut Unstructured<'_>) -> Result<()> {
        let frame = (header(input)?, input.int_in_range(0..=MAX_FRAME)?);
        if self.coming.len() < MAX {
            self.coming.push_back(frame);
        }
        Ok(())
    }

    fn settle(&mut self, _: &mut Transport<Net>) {
        self.coming.clear();
    }

    fn prove(&mut self, transport: &mut Transport<Net>, memory: &Memory) {
        assert_ne!(transport.device().features(), 0);
        let (mut hears, mut says) = (Driver::new(memory, 0), Driver::new(memory, 1));
        says.put(0x100, &[0; HEADER]);
        says.push(&[(0x100, HEADER as u32, false), (0x1000, 60, false)]);
        hears.push(&[(0x2000, 50, true)]);
        hears.push(&[(0x3000, 50, true)]);
        self.coming.push_back((Header::default(), 60));
        let before = (self.sent, self.lost);
        let served = self.serve(transport, memory).expect("it makes sense");
        assert!(served.interrupt && !served.more);
        assert_eq!((self.sent, self.lost), (before.0 + 1, before.1));
        assert_eq!(says.used(), Some((0, 0)));
        assert_eq!((hears.used(), hears.used()), (Some((0, 50)), Some((1, 22))));
        assert_eq!(hears.get16(0x200a), 2);
    }
}
