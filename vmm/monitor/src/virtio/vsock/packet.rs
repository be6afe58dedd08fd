//! Handling of the guest's packets.

use super::connection::{Connection, State};
use super::header::{operation, Header, LENGTH, NEITHER, RECEIVES_NO_MORE, SENDS_NO_MORE};
use super::{Gone, Host};
use crate::virtio::{Chain, DriverError, Memory};
use alloc::collections::VecDeque;

/// Payload of a packet in guest memory.
pub struct Payload<'a> {
    pub chain: &'a Chain,
    pub memory: &'a Memory,
}

impl Payload<'_> {
    /// Appends `length` bytes to `buffered`.
    fn append(&self, length: usize, buffered: &mut VecDeque<u8>) -> Result<(), DriverError> {
        let mut bytes = [0; 4096];
        for from in (0..length).step_by(bytes.len()) {
            let piece = &mut bytes[..(length - from).min(4096)];
            self.chain.read(self.memory, LENGTH + from, piece)?;
            buffered.extend(&*piece);
        }
        Ok(())
    }
}

/// Handles a packet. Returns false if it ends the connection.
pub fn handle_packet(
    connection: &mut Connection,
    header: &Header,
    payload: &Payload<'_>,
    host: &mut impl Host,
) -> Result<bool, DriverError> {
    let goes_on = match (header.operation, connection.state) {
        // The reset for the guest is pending.
        (operation::RST, _) => false,
        (_, State::Dead) => true,
        (operation::RESPONSE, State::Requested) => {
            connection.state = State::Open;
            host.accepted(connection.key);
            true
        }
        (_, State::Requested) => false,
        (operation::RW, State::Open) => {
            let length = header.length as usize;
            let may = connection.guest_ended & SENDS_NO_MORE == 0 && length <= connection.room();
            if may {
                connection.received(header.length);
                payload.append(length, &mut connection.buffered)?;
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
            connection.request_credit_update();
            true
        }
        _ => false,
    };
    Ok(goes_on)
}

/// Writes buffered data to the host program; then propagates the guest's shutdown.
pub fn flush(connection: &mut Connection, host: &mut impl Host) {
    if connection.host_ended & RECEIVES_NO_MORE != 0 {
        connection.buffered.clear();
    }
    while !connection.buffered.is_empty() {
        match host.write(connection.key, connection.buffered.as_slices().0) {
            Ok(0) => return,
            Ok(count) => drop(
                connection
                    .buffered
                    .drain(..count.min(connection.buffered.len())),
            ),
            Err(Gone) => {
                connection.host_ended |= RECEIVES_NO_MORE;
                connection.buffered.clear();
            }
        }
    }
    if connection.guest_ended == NEITHER {
        host.close(connection.key);
        connection.state = State::Dead;
        return;
    }
    let is_finishing = connection.guest_ended & SENDS_NO_MORE != 0 && !connection.is_finished;
    // The host's stream of a lingering connection is closed.
    if is_finishing && !connection.is_lingering() {
        host.finish(connection.key);
        connection.is_finished = true;
    }
}
