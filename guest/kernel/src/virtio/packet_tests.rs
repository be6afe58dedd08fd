//! Numbered frames against a card whose network is the other guest, which may lose or damage them.

use super::card::{Card, BYTES};
use super::fake_memory::Memory;
use super::fake_network::{Config, FakeCard, Network};
use std::boxed::Box;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;
use trapline_abi::packet::{
    count_of, fill, number, number_of, Frames, ACKNOWLEDGED, ACKNOWLEDGEMENT, BURST, DAMAGED, DATA,
    RECEIVER, SENDER, WINDOW,
};
use trapline_workloads::packets::{Receiver, Sender};
use trapline_workloads::Reason;

fn card(config: Config, network: Network) -> (Card<FakeCard>, Memory) {
    let memory = Memory::new(BYTES);
    // SAFETY: the memory is exclusive and outlives the card.
    let card = unsafe { Card::start(FakeCard::new(config, network), memory.start) };
    (card.unwrap(), memory)
}

fn acknowledgement(count: u64) -> Vec<u8> {
    let mut frame = vec![0; 60];
    fill(&mut frame, [SENDER, RECEIVER], ACKNOWLEDGEMENT, count);
    frame
}

/// Sends two bursts to a receiver that answers frame `count` with the acknowledgements of `answer`.
fn burst(mut answer: impl FnMut(u64) -> Vec<u64> + 'static) -> Result<(), Reason> {
    let mut expected = 0;
    let network = move |frame: &[u8]| {
        if let Some(ping) = number(frame, SENDER, ACKNOWLEDGEMENT) {
            return vec![acknowledgement(ping)];
        }
        let sent = number(frame, SENDER, DATA).and_then(|it| count_of(it, frame.len()));
        assert_eq!(sent, Some(expected));
        expected += 1;
        answer(expected).into_iter().map(acknowledgement).collect()
    };
    let (card, _memory) = card(Config::default(), Box::new(network));
    let mut sender = Sender::new(card).unwrap();
    (sender.send(Frames::Burst(64))).and_then(|()| sender.send(Frames::Burst(1500)))
}

#[test]
fn bursts_end_when_all_frames_are_acknowledged() {
    let most = Rc::new(RefCell::new(0));
    let sent = Rc::clone(&most);
    let every = move |count: u64| {
        *sent.borrow_mut() = count;
        let is_due = count.is_multiple_of(ACKNOWLEDGED);
        is_due.then_some(count).into_iter().collect()
    };
    assert_eq!(burst(every), Ok(()));
    assert_eq!(*most.borrow(), 2 * BURST);
}

#[test]
fn lost_and_damaged_frames_are_errors() {
    let silent = burst(|_| vec![]);
    assert_eq!(silent, Err("nothing happens"));
    let early = |count| if count == 40 { vec![40] } else { vec![] };
    assert_eq!(burst(early), Err("nothing happens"));
    let damaged = |count| if count == 40 { vec![DAMAGED] } else { vec![] };
    assert_eq!(burst(damaged), Err("the receiver got a wrong frame"));
    let too_many = |count| if count == 1 { vec![WINDOW + 1] } else { vec![] };
    let reason = "the receiver acknowledged frames that were not sent";
    assert_eq!(burst(too_many), Err(reason));
}

/// Sends pings to a receiver that answers each with the numbers of `answer`.
fn ping(answer: impl Fn(u64) -> Vec<u64> + 'static) -> Result<(), Reason> {
    let network = move |frame: &[u8]| {
        let sent = number(frame, SENDER, ACKNOWLEDGEMENT).expect("a ping");
        answer(sent).into_iter().map(acknowledgement).collect()
    };
    let (card, _memory) = card(Config::default(), Box::new(network));
    let mut sender = Sender::new(card)?;
    (0..100).try_for_each(|_| sender.send(Frames::Ping))
}

#[test]
fn ping_ends_with_its_answer_only() {
    assert_eq!(ping(|number| vec![number]), Ok(()));
    assert_eq!(ping(|_| vec![]), Err("nothing happens"));
    let wrong = Err("the receiver answered a ping that was not sent");
    assert_eq!(ping(|number| vec![number - 1]), wrong);
    assert_eq!(ping(|_| vec![DAMAGED]), wrong);
    assert_eq!(ping(|number| vec![number, number]), wrong);
}

#[test]
fn receiver_answers_pings_between_frames() {
    let ping = |count| {
        let mut frame = vec![0; 60];
        fill(&mut frame, [RECEIVER, SENDER], ACKNOWLEDGEMENT, count);
        frame
    };
    assert_eq!(acknowledged(vec![ping(7), ping(8)]), [7, 8]);
    let mut frames: Vec<_> = (0..32).map(|count| frame(count, 64)).collect();
    frames.insert(9, ping(1000));
    assert_eq!(acknowledged(frames), [1000, 32]);
    let mut changed = ping(1);
    changed[59] ^= 1;
    assert_eq!(acknowledged(vec![changed]), [DAMAGED]);
}

#[test]
fn short_queues_are_rejected() {
    let config = Config {
        queue_size: 32,
        ..Config::default()
    };
    let (card, _memory) = card(config, Box::new(|_| Vec::new()));
    assert!(Sender::new(card).is_err());
}

/// Returns the acknowledgements of a receiver for these frames.
fn acknowledged(frames: Vec<Vec<u8>>) -> Vec<u64> {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&answers);
    let network = move |frame: &[u8]| {
        seen.borrow_mut()
            .extend(number(frame, RECEIVER, ACKNOWLEDGEMENT));
        Vec::new()
    };
    let fake = FakeCard::new(Config::default(), Box::new(network));
    let memory = Memory::new(BYTES);
    // SAFETY: the memory is exclusive and outlives the card.
    let card = unsafe { Card::start(fake.clone(), memory.start) };
    fake.deliver(frames);
    let served = Receiver::default().serve(&mut card.unwrap());
    assert_eq!(served, Err("nothing happens"));
    let answers = answers.borrow();
    answers.clone()
}

fn frame(count: u64, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    fill(
        &mut frame,
        [RECEIVER, SENDER],
        DATA,
        number_of(count, length),
    );
    frame
}

#[test]
fn receiver_acknowledges_checked_frames_only() {
    let all = |count: u64| (0..count).map(|it| frame(it, 64)).collect::<Vec<_>>();
    assert_eq!(acknowledged(all(100)), [32, 64, 96]);
    // A number of 0 begins anew.
    assert_eq!(acknowledged([all(40), all(33)].concat()), [32, 32]);
    let mut lost = all(40);
    lost.remove(7);
    assert_eq!(acknowledged(lost)[0], DAMAGED);
    let mut longer = all(2);
    longer[1].push(0);
    assert_eq!(acknowledged(longer), [DAMAGED]);
    let mut changed = all(2);
    changed[1][63] ^= 1;
    assert_eq!(acknowledged(changed), [DAMAGED]);
}
