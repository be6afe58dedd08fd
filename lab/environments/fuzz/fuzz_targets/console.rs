//! Any console at all: no panic, nothing grows without bound, and every operation
//! that was asked for comes to something.
//!
//! A checksum cannot be guessed, so pieces of the input become frames with a right
//! one: what such a frame holds is as hostile as the rest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trapline_abi::frame::{crc32, MAX_BODY, SYNC};
use trapline_abi::Job;
use trapline_environments::transcript::{Blind, Transcript, MOST_BYTES};

fuzz_target!(|input: &[u8]| {
    let asked = "trapline.run=basic,exits,stream";
    let job = Job::parse([asked]).expect("a valid job");
    let mut transcript = Transcript::new(&job);
    let mut rest = input;
    let mut clock = 0;
    while let [how, length, tail @ ..] = rest {
        let (piece, others) = tail.split_at(tail.len().min(usize::from(*length)));
        clock += u64::from(*length);
        match how % 4 {
            0 => transcript.console(piece, Some(clock), &mut Blind),
            1 => transcript.events(&framed(piece)),
            _ => transcript.console(&framed(piece), Some(clock), &mut Blind),
        }
        rest = others;
    }
    let _ = (transcript.last_words(), transcript.doing(), transcript.flooded());
    let account = transcript.finish("the guest was never there");
    assert_eq!(account.operations.len(), job.run.len());
    assert!(account.log.len() as u64 <= MOST_BYTES);
});

/// A frame of which the first byte of `piece` is the kind and the rest the body.
fn framed(piece: &[u8]) -> Vec<u8> {
    let (kind, body) = piece.split_first().unwrap_or((&0, &[]));
    let body = &body[..body.len().min(MAX_BODY)];
    let mut frame = SYNC.to_vec();
    frame.push(*kind);
    frame.extend((body.len() as u16).to_le_bytes());
    frame.extend(body);
    let checksum = crc32(&frame[2..]);
    frame.extend(checksum.to_le_bytes());
    frame
}
