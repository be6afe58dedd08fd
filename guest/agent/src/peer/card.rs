//! The other guest of workload `net`, as a Linux guest: it receives numbered frames, and is the peer of exchanges.

use super::Server;
use crate::interface::CARD;
use crate::packet_socket::PacketSocket;
use crate::{drivers, interface};
use std::io;
use std::net::Ipv4Addr;
use trapline_abi::net::{PEER, PORT};
use trapline_abi::packet::READY;
use trapline_workloads::packets::{Link, Receiver};

/// Serves the guest behind the network card. `ready` gets a text when it does.
///
/// # Errors
/// Always: the reason.
pub fn serve(ready: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    drivers::prepare().map_err(io::Error::other)?;
    interface::disable_ipv6();
    let address = Ipv4Addr::from(PEER);
    interface::configure(CARD, address)?;
    interface::wait_for_link(CARD)?;
    let mut frames = PacketSocket::open(CARD)?;
    let server = Server::bind(address, PORT)?;
    let receive = move || {
        let mut receiver = Receiver::default();
        // A guest that sends nothing for a while may send later.
        while frames.check().is_ok() {
            let _reason = receiver.serve(&mut frames);
        }
    };
    std::thread::Builder::new().spawn(receive)?;
    ready(READY.as_bytes());
    server.serve()
}
