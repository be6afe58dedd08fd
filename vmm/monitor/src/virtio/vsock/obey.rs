//! What a packet of the guest's does to its connection, and what is kept of it for the host.

use super::connection::{Connection, State};
use super::header::{operation, Header, LENGTH, NEITHER, RECEIVES_NO_MORE, SENDS_NO_MORE};
use super::{Gone, Host};
use crate::virtio::{Broken, Chain, Memory};
use std::collections::VecDeque;

/// The bytes of a packet in guest memory.
pub struct Payload<'a> {
    pub chain: &'a Chain,
    pub memory: &'a Memory,
}

impl Payload<'_> {
    /// Adds `length` of them to `kept`.
    fn append(&self, length: usize, kept: &mut VecDeque<u8>) -> Result<(), Broken> {
        let mut bytes = [0; 4096];
        for from in (0..length).step_by(bytes.len()) {
            let piece = &mut bytes[..(length - from).min(4096)];
            self.chain.read(self.memory, LENGTH + from, piece)?;
            kept.extend(&*piece);
        }
        Ok(())
    }
}

/// Does what the guest says of a connection. False if that ends it.
pub fn obey(
    connection: &mut Connection,
    header: &Header,
    payload: &Payload<'_>,
    host: &mut impl Host,
) -> Result<bool, Broken> {
    let goes_on = match (header.operation, connection.state) {
        // It is over, and the guest will be told.
        (operation::RST, _) => false,
        (_, State::Dead) => true,
        (operation::RESPONSE, State::Asked) => {
            connection.state = State::Open;
            host.accepted(connection.key);
            true
        }
        (_, State::Asked) => false,
        (operation::RW, State::Open) => {
            let length = header.length as usize;
            let may = connection.guest_ended & SENDS_NO_MORE == 0 && length <= connection.room();
            if may {
                connection.received(header.length);
                payload.append(length, &mut connection.kept)?;
                flush(connection, host);
            }
            may
        }
        (operation::SHUTDOWN, State::Open) => {
            connection.guest_ended |= header.flags & NEITHER;
            flush(connection, host);
            true
        }
        (operation::CREDIT_UPDATE, State::Open) => true,
        (operation::CREDIT_REQUEST, State::Open) => {
            connection.owe_credit();
            true
        }
        _ => false,
    };
    Ok(goes_on)
}

/// Passes on what is kept; when all is, and the guest wants no more, that is told.
pub fn flush(connection: &mut Connection, host: &mut impl Host) {
    if connection.host_ended & RECEIVES_NO_MORE != 0 {
        connection.kept.clear();
    }
    while !connection.kept.is_empty() {
        match host.write(connection.key, connection.kept.as_slices().0) {
            Ok(0) => return,
            Ok(count) => drop(connection.kept.drain(..count.min(connection.kept.len()))),
            Err(Gone) => {
                connection.host_ended |= RECEIVES_NO_MORE;
                connection.kept.clear();
            }
        }
    }
    if connection.guest_ended == NEITHER {
        host.close(connection.key);
        connection.state = State::Dead;
    } else if connection.guest_ended & SENDS_NO_MORE != 0 && !connection.is_finished {
        host.finish(connection.key);
        connection.is_finished = true;
    }
}
