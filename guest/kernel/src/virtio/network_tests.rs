//! The driver of a network card against a device that may lie.

use super::card::{Card, BYTES, MAX_FRAME};
use super::client::Client;
use super::fake_memory::Memory;
use super::fake_network::{Config, FakeCard, Lie, FEATURES};
use super::stack;
use super::transport::{is_device, BLOCK, NETWORK};
use std::boxed::Box;
use std::vec::Vec;
use trapline_abi::net::{Exchange, MAC};
use trapline_workloads::packets::Link;
use trapline_workloads::Reason;

/// A card whose network answers each frame with the same frame, with its memory.
struct Setup {
    card: Card<FakeCard>,
    fake: FakeCard,
    _memory: Memory,
}

fn open(config: Config) -> Result<Setup, Reason> {
    let fake = FakeCard::new(config, Box::new(|frame| vec![frame.to_vec()]));
    assert!(is_device(&fake, NETWORK) && !is_device(&fake, BLOCK));
    let memory = Memory::new(BYTES);
    // SAFETY: the memory is exclusive and outlives the card.
    let card = unsafe { Card::start(fake.clone(), memory.start)? };
    Ok(Setup {
        card,
        fake,
        _memory: memory,
    })
}

impl Setup {
    /// Sends a frame and returns the one received.
    fn echo(&mut self, frame: &[u8]) -> Result<Vec<u8>, Reason> {
        let card = &mut self.card;
        let Some(buffer) = card.transmitter.free() else {
            return Err(card.check().expect_err("no buffer is free"));
        };
        let fill = |bytes: &mut [u8]| bytes.copy_from_slice(frame);
        card.transmitter.send(buffer, frame.len(), fill);
        card.notify();
        loop {
            card.wait()?;
            if let Some((buffer, length)) = card.receiver.receive() {
                return Ok(card.receiver.read(buffer, length, <[u8]>::to_vec));
            }
            card.check()?;
        }
    }
}

#[test]
fn frames_arrive_unchanged_with_and_without_optional_features() {
    for features in [FEATURES, 1 << 32] {
        for polls in [false, true] {
            let config = Config {
                features,
                polls,
                ..Config::default()
            };
            let mut setup = open(config).unwrap();
            let mac = if features == FEATURES {
                config.mac
            } else {
                MAC
            };
            assert_eq!(setup.card.mac, mac);
            for number in 0..1000 {
                let length = 14 + number * 7 % (MAX_FRAME - 13);
                let frame = vec![number as u8; length];
                assert_eq!(setup.echo(&frame), Ok(frame));
            }
        }
    }
}

#[test]
fn impossible_reports_of_the_device_are_errors() {
    for lie in [
        Lie::Received(64),
        Lie::Received(100),
        Lie::Received(u32::MAX),
        Lie::Length(0),
        Lie::Length(11),
        Lie::Length(12 + MAX_FRAME as u32 + 1),
        Lie::Length(u32::MAX),
        Lie::Jump(65),
        Lie::Jump(u16::MAX),
        Lie::Sent(64),
        Lie::Sent(u32::MAX),
        Lie::NeedsReset,
    ] {
        let mut setup = open(Config {
            lie,
            ..Config::default()
        })
        .unwrap();
        // Sent frames are collected when all buffers are in use.
        let failed = (0..130).find_map(|_| setup.echo(&[7; 60]).err());
        assert!(
            failed.is_some_and(|reason| reason != "nothing happens"),
            "{lie:?}"
        );
        assert!(setup.fake.is_stopped(), "{lie:?}");
        assert!(setup.echo(&[7; 60]).is_err(), "{lie:?}: it stays unusable");
    }
}

#[test]
fn unsuitable_devices_are_rejected() {
    let start = |config| open(config).err();
    let default = Config::default();
    for (config, reason) in [
        (
            Config {
                features: 1 << 29,
                ..default
            },
            "legacy",
        ),
        (
            Config {
                queue_size: 4,
                ..default
            },
            "too short",
        ),
        (
            Config {
                mac: [1, 0, 0, 0, 0, 9],
                ..default
            },
            "one station",
        ),
        (
            Config {
                mac: [0; 6],
                ..default
            },
            "one station",
        ),
    ] {
        let failed = start(config).expect("the device is rejected");
        assert!(failed.contains(reason), "{failed}");
    }
}

/// Connects a stack to a network.
fn connect(config: Config, network: super::fake_network::Network) -> Result<(), Reason> {
    let fake = FakeCard::new(config, network);
    let memory = Memory::new(BYTES);
    let buffers = Memory::new(size_of::<stack::Memory>());
    // SAFETY: both are exclusive and zero, and outlive the stack.
    unsafe {
        let card = Card::start(fake, memory.start)?;
        let buffers = stack::Memory::initialise(buffers.start.cast());
        let mut stack = Client::connect(card, buffers)?;
        stack.exchange(Exchange::UdpPing)
    }
}

#[test]
fn silent_network_is_an_error() {
    let failed = connect(Config::default(), Box::new(|_| Vec::new()));
    assert_eq!(failed, Err("nothing happens"));
}

#[test]
fn stack_survives_arbitrary_frames_and_reports() {
    for seed in 1..200 {
        let mut random = seed;
        // The frames of the stack with damage, and frames of random bytes.
        let network = move |frame: &[u8]| {
            let mut answers = Vec::new();
            for _ in 0..3 {
                let mut answer = frame.to_vec();
                for _ in 0..4 {
                    random = 6_364_136_223_846_793_005_u64
                        .wrapping_mul(random)
                        .wrapping_add(1);
                    let place = (random >> 33) as usize % answer.len();
                    answer[place] = (random >> 24) as u8;
                }
                answers.push(answer);
            }
            answers.push(
                (0..random >> 54)
                    .map(|at| (random >> (at % 8)) as u8)
                    .collect(),
            );
            answers
        };
        let lie = if seed % 2 == 0 {
            Lie::Random
        } else {
            Lie::None
        };
        let config = Config {
            lie,
            seed,
            ..Config::default()
        };
        assert!(
            connect(config, Box::new(network)).is_err(),
            "no peer is there"
        );
    }
}
