//! The other guest against the client of the same exchanges, and against numbered frames.

use super::card::{Card, BYTES};
use super::client::Client;
use super::fake_memory::Memory;
use super::fake_network::{Config, FakeCard, Network};
use super::server::Server;
use super::stack;
use std::boxed::Box;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;
use trapline_abi::net::{Exchange, Stream};
use trapline_abi::packet::{
    fill, number, number_of, ACKNOWLEDGED, ACKNOWLEDGEMENT, DATA, RECEIVER, SENDER,
};
use trapline_workloads::Reason;

/// Frames that a card has sent.
type Sent = Rc<RefCell<Vec<Vec<u8>>>>;

/// A card with memory that lives as long as the test, as that of the image does.
fn card(mac: u8, network: Network) -> (Card<FakeCard>, FakeCard, &'static mut stack::Memory) {
    let config = Config {
        mac: [2, 0, 0, 0, 0, mac],
        ..Config::default()
    };
    let fake = FakeCard::new(config, network);
    let memory = Box::leak(Box::new(Memory::new(BYTES)));
    let buffers = Box::leak(Box::new(Memory::new(size_of::<stack::Memory>())));
    // SAFETY: both are exclusive and zero, and never freed.
    unsafe {
        let card = Card::start(fake.clone(), memory.start).unwrap();
        let buffers = stack::Memory::initialise(buffers.start.cast());
        (card, fake, buffers)
    }
}

/// Returns the network of a client, which is one server.
fn server() -> Network {
    let sent = Sent::default();
    let written = Rc::clone(&sent);
    let collect = move |frame: &[u8]| {
        written.borrow_mut().push(frame.to_vec());
        Vec::new()
    };
    let (card, fake, memory) = card(RECEIVER, Box::new(collect));
    let mut server = Server::new(card, memory).unwrap();
    Box::new(move |frame: &[u8]| {
        fake.deliver(vec![frame.to_vec()]);
        assert!(fake.receive());
        server.turn().unwrap();
        sent.take()
    })
}

fn client(network: Network) -> Client<FakeCard> {
    let (card, _, memory) = card(SENDER, network);
    Client::connect(card, memory).unwrap()
}

#[test]
fn all_exchanges_are_answered() {
    let mut client = client(server());
    for _ in 0..3 {
        for (exchange, _) in Exchange::ALL {
            let exchanged = client.exchange(exchange);
            assert_eq!(
                exchanged.is_ok(),
                exchange != Exchange::SendFile && !exchange.is_over_vsock(),
                "{exchange:?}"
            );
        }
    }
}

#[test]
fn a_damaged_stream_is_reported() {
    let mut server = server();
    let mut has_damaged = false;
    let network = move |frame: &[u8]| {
        let mut frame = frame.to_vec();
        // Two words of a full segment are exchanged, which its checksum does not see.
        if frame.len() == 1514 && !has_damaged {
            has_damaged = true;
            frame.swap(1000, 1002);
        }
        server(&frame)
    };
    let mut client = client(Box::new(network));
    let sent = client.exchange(Exchange::Send(Stream::Tcp));
    assert_eq!(
        sent,
        Err("the answer of the peer is not that to the request")
    );
}

/// Sends datagrams to a server that gets them through `pass`, which may change or lose the full ones.
fn send_datagrams(pass: impl Fn(u32, &mut Vec<u8>) -> bool + 'static) -> Result<(), Reason> {
    let (mut server, mut count) = (server(), 0);
    let network = move |frame: &[u8]| {
        let mut frame = frame.to_vec();
        if frame.len() == 1514 {
            count += 1;
            if !pass(count, &mut frame) {
                return Vec::new();
            }
        }
        server(&frame)
    };
    client(Box::new(network)).exchange(Exchange::Datagrams(1472))
}

#[test]
fn damaged_and_lost_datagrams_are_reported() {
    assert_eq!(send_datagrams(|_, _| true), Ok(()));
    // Two halves of a word are exchanged, which the checksum does not see.
    let damage = |count, frame: &mut Vec<u8>| {
        if count == 100 {
            let (low, high) = frame[56..].split_at_mut(6);
            low[..2].swap_with_slice(&mut high[..2]);
        }
        true
    };
    let reason = Err("the receiver got a wrong frame");
    assert_eq!(send_datagrams(damage), reason);
    assert_eq!(send_datagrams(|count, _| count != 100), reason);
    assert_eq!(
        send_datagrams(|count, _| count != 1024),
        Err("nothing happens")
    );
}

#[test]
fn numbered_frames_are_counted_between_exchanges() {
    let mut server = server();
    let mut acknowledged = Vec::new();
    for count in 0..2 * ACKNOWLEDGED {
        let mut frame = [0; 64];
        fill(&mut frame, [RECEIVER, SENDER], DATA, number_of(count, 64));
        let answers = server(&frame);
        acknowledged.extend(
            answers
                .iter()
                .filter_map(|it| number(it, RECEIVER, ACKNOWLEDGEMENT)),
        );
        // A frame that is of no interest to anyone.
        assert!(server(&[0xff; 60]).is_empty());
    }
    assert_eq!(acknowledged, [ACKNOWLEDGED, 2 * ACKNOWLEDGED]);
}

#[test]
fn it_serves_until_its_card_fails() {
    let (card, _, memory) = card(RECEIVER, Box::new(|_| Vec::new()));
    let mut server = Server::new(card, memory).unwrap();
    assert_eq!(server.serve(), Err("nothing happens"));
}
