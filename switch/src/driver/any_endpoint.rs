//! An endpoint of a kind that is chosen at run time.

use super::endpoint::Endpoint;
use super::kernel::{PacketSocket, Tap};
use super::vde::VdeSocket;
use super::Peer;

/// An endpoint of any kind.
pub enum AnyEndpoint {
    /// A vhost-user front end with the driver of its queues.
    Peer(Peer),
    /// A network interface of Linux.
    Packet(PacketSocket),
    /// The program's side of a tap.
    Tap(Tap),
    /// A port of a VDE switch.
    Vde(VdeSocket),
}

/// Calls a method of any kind.
macro_rules! each {
    ($endpoint:expr, $name:ident => $call:expr) => {
        match $endpoint {
            AnyEndpoint::Peer($name) => $call,
            AnyEndpoint::Packet($name) => $call,
            AnyEndpoint::Tap($name) => $call,
            AnyEndpoint::Vde($name) => $call,
        }
    };
}

impl Endpoint for AnyEndpoint {
    #[inline]
    fn send(&mut self, pair: usize, most: usize, fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        each!(self, it => Endpoint::send(it, pair, most, fill))
    }

    #[inline]
    fn receive(&mut self, visit: impl FnMut(&[u8])) {
        each!(self, it => Endpoint::receive(it, visit));
    }

    fn unsent(&mut self) -> usize {
        each!(self, it => Endpoint::unsent(it))
    }

    fn notifications(&self) -> [u64; 2] {
        each!(self, it => Endpoint::notifications(it))
    }
}
