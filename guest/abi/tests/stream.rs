//! Records are decoded correctly from a console stream with text and damage.

use proptest::collection::vec;
use proptest::prelude::*;
use trapline_abi::codec::{Error, Reader, Writer};
use trapline_abi::frame::{encode, MAX_FRAME, MAX_RELAY, MAX_TEXT};
use trapline_abi::record::{Channel, Sender};
use trapline_abi::{Counter, Decoder, Item, Op, OpSet, Record, Stage};

/// Record with its own storage, and its timestamp.
#[derive(Clone, Debug)]
struct OwnedRecord {
    shape: u8,
    numbers: [u64; 4],
    small: u16,
    bytes: Vec<u8>,
    at: u64,
}

impl OwnedRecord {
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        trapline_abi::frame::truncate(&text).to_owned()
    }

    fn record<'a>(&'a self, text: &'a str) -> Record<'a> {
        let [a, b, c, d] = self.numbers;
        let op = Op::ALL[self.small as usize % Op::ALL.len()];
        let child = self.small;
        match self.shape % 16 {
            0 => Record::Hello {
                version: child,
                sender: [Sender::Image, Sender::Agent][usize::from(a & 1 == 1)],
                ring: b as u8,
                memory: c,
                planned: OpSet::from_words([d, c, b, a]),
            },
            1 => Record::Stage {
                stage: Stage::ALL[self.small as usize % Stage::ALL.len()],
                at: a,
            },
            2 => Record::Begin {
                op,
                clock_cost: a,
                loop_cost: b,
                exits: Some(c >> 1),
            },
            3 => Record::Sample {
                op,
                start: a.min(b),
                end: a.max(b),
                count: c,
            },
            4 => Record::End {
                op,
                samples: a as u32,
                check: b,
                exits: None,
            },
            5 => Record::Skip { op, reason: text },
            6 => Record::Fail { op, reason: text },
            7 => Record::Panic { message: text },
            8 => Record::Done,
            9 => Record::Count {
                counter: Counter::ALL[self.small as usize % Counter::ALL.len()],
                value: a,
            },
            10 => Record::Launch { child },
            11 => Record::Relay {
                child,
                channel: Channel::Events,
                bytes: &self.bytes,
            },
            12 => Record::Reaped {
                child,
                status: a as u32,
                peak_kib: b,
            },
            13 => Record::Idle {
                op,
                ticks: a,
                bytes: b,
            },
            14 => Record::Nonce { nonce: a },
            _ => Record::Ready,
        }
    }
}

prop_compose! {
    fn owned()(shape: u8, numbers: [u64; 4], small: u16, at: u64,
              bytes in vec(any::<u8>(), 0..MAX_RELAY)) -> OwnedRecord {
        OwnedRecord { shape, numbers, small, bytes, at }
    }
}

fn frame(owned: &OwnedRecord) -> Vec<u8> {
    let mut buffer = [0; MAX_FRAME];
    let text = owned.text();
    let length = encode(&owned.record(&text), owned.at, &mut buffer).expect("fits");
    buffer[..length].to_vec()
}

/// Decodes a stream in pieces. Returns the records as text, and all bytes outside of records.
fn decode(stream: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let mut decoder = Decoder::new();
    let (mut records, mut text) = (Vec::new(), Vec::new());
    let mut sink = |item: Item<'_>| match item {
        Item::Record(record, at) => records.push(format!("{at} {record:?}")),
        Item::Text(byte) => text.push(byte),
        Item::Damaged => {}
    };
    for piece in stream.chunks(piece.max(1)) {
        decoder.feed(piece, &mut sink);
    }
    decoder.finish(&mut sink);
    (records, text)
}

fn expected(all: &[OwnedRecord]) -> Vec<String> {
    all.iter()
        .map(|owned| format!("{} {:?}", owned.at, owned.record(&owned.text())))
        .collect()
}

proptest! {
    #[test]
    fn every_record_arrives_and_the_text_between_is_kept(
        all in vec((owned(), "[ -~\n]{0,40}"), 1..8), piece in 1usize..3000,
    ) {
        let mut stream = Vec::new();
        let mut between = Vec::new();
        for (owned, text) in &all {
            stream.extend_from_slice(text.as_bytes());
            between.extend_from_slice(text.as_bytes());
            stream.extend(frame(owned));
        }
        let (records, text) = decode(&stream, piece);
        let all: Vec<OwnedRecord> = all.into_iter().map(|(owned, _)| owned).collect();
        prop_assert_eq!(records, expected(&all));
        prop_assert_eq!(text, between);
    }

    #[test]
    fn a_damaged_frame_costs_no_other(
        before in owned(), hurt in owned(), after in owned(), place: prop::sample::Index, bit in 0u8..8,
    ) {
        let mut damaged = frame(&hurt);
        let place = place.index(damaged.len());
        damaged[place] ^= 1 << bit;
        let stream = [frame(&before), damaged, frame(&after)].concat();
        let (records, _) = decode(&stream, stream.len());
        let expected = expected(&[before, after]);
        prop_assert_eq!(records.first(), expected.first());
        prop_assert_eq!(records.last(), expected.last());
        prop_assert_eq!(records.len(), 2, "a damaged record was accepted");
    }

    #[test]
    fn wide_numbers_have_the_shortest_encoding_and_are_equal_after_reading(
        mut words: [u64; 4], bits in 0usize..=256,
    ) {
        for bit in bits..256 {
            words[bit / 64] &= !(1 << (bit % 64));
        }
        let is_set = |bit: usize| words.get(bit / 64).is_some_and(|word| word & 1 << (bit % 64) != 0);
        let longest = (0..256).rev().find(|bit| is_set(*bit)).unwrap_or(0);
        let expected = (0..=longest / 7).map(|byte| {
            let value = (0..7).map(|bit| u8::from(is_set(7 * byte + bit)) << bit).sum::<u8>();
            value | if byte == longest / 7 { 0 } else { 0x80 }
        });
        let mut buffer = [0; 37];
        let mut writer = Writer::new(&mut buffer);
        writer.wide(words).expect("fits");
        let used = writer.used();
        prop_assert_eq!(&buffer[..used], expected.collect::<Vec<_>>());
        let mut reader = Reader::new(&buffer[..used]);
        prop_assert_eq!(reader.wide(), Ok(words));
        prop_assert!(reader.is_empty());
        for shorter in 0..used {
            prop_assert_eq!(Reader::new(&buffer[..shorter]).wide(), Err(Error::Short));
        }
    }

    #[test]
    fn garbage_is_text_and_never_a_record(noise in vec(any::<u8>(), 0..5000), piece in 1usize..2000) {
        let (records, text) = decode(&noise, piece);
        prop_assert!(records.is_empty(), "a checksum by chance: {:?}", records);
        prop_assert_eq!(text, noise);
    }

    #[test]
    fn a_valid_frame_with_any_payload_never_panics(kind: u8, body in vec(any::<u8>(), 0..200)) {
        let mut frame = vec![0xf5, b'T', kind];
        frame.extend((body.len() as u16).to_le_bytes());
        frame.extend(&body);
        let checksum = trapline_abi::frame::crc32(&frame[2..]);
        frame.extend(checksum.to_le_bytes());
        decode(&frame, frame.len());
    }
}

/// Ten million damaged frames, each before one that arrives.
#[test]
#[ignore = "long: make fuzz"]
fn damaged_frames_cost_no_other() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut decoder = Decoder::new();
    let whole = OwnedRecord {
        shape: 8,
        numbers: [0; 4],
        small: 0,
        bytes: Vec::new(),
        at: 7,
    };
    let whole = frame(&whole);
    for _ in 0..10_000_000 {
        let hurt = OwnedRecord {
            shape: random.u8(..),
            numbers: [(); 4].map(|()| random.u64(..)),
            small: random.u16(..),
            bytes: (0..random.usize(..40)).map(|_| random.u8(..)).collect(),
            at: random.u64(..),
        };
        let mut bytes = frame(&hurt);
        let at = random.usize(..bytes.len());
        bytes[at] ^= random.u8(1..);
        let mut records = 0;
        let mut sink = |item: Item<'_>| match item {
            Item::Record(record, at) => {
                assert_eq!((record, at), (Record::Done, 7), "{hurt:?}");
                records += 1;
            }
            Item::Text(_) | Item::Damaged => {}
        };
        decoder.feed(&bytes, &mut sink);
        decoder.feed(&whole, &mut sink);
        decoder.finish(&mut sink);
        assert_eq!(records, 1, "{hurt:?}");
    }
}

#[test]
fn the_longest_text_and_relay_fit() {
    let text = "x".repeat(MAX_TEXT);
    let bytes = [0xf5; MAX_RELAY];
    let mut buffer = [0; MAX_FRAME];
    assert!(encode(&Record::Panic { message: &text }, u64::MAX, &mut buffer).is_ok());
    let relay = Record::Relay {
        child: u16::MAX,
        channel: Channel::Console,
        bytes: &bytes,
    };
    let length = encode(&relay, u64::MAX, &mut buffer).expect("fits by definition of MAX_RELAY");
    assert_eq!(decode(&buffer[..length], 7).0.len(), 1);
}
