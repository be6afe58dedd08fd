//! Damaged inputs in great numbers: files of images and kernels, and what a guest does to virtio devices.

use super::{images, kernels};
use fastrand::Rng;
use std::fs;
use std::path::Path;
use trapline_monitor::boot::test_image::TestImage;
use trapline_monitor::virtio::exercise::TARGETS;

/// Inputs of each parser.
const INPUTS: usize = 10_000_000;

/// Most bytes that are changed in one input.
const MOST_CHANGES: usize = 8;

/// Replaces the content of `bytes` with one of `valid` in which up to [`MOST_CHANGES`] bytes are changed. One of eight is cut, too.
fn damage(bytes: &mut Vec<u8>, valid: &[Vec<u8>], random: &mut Rng) {
    bytes.clear();
    bytes.extend(&valid[random.usize(..valid.len())]);
    if random.u8(..8) == 0 {
        bytes.truncate(random.usize(..=bytes.len()));
    }
    for _ in 0..random.usize(..=MOST_CHANGES) {
        if let Some(byte) = random.choice(bytes.iter_mut()) {
            *byte = random.u8(..);
        }
    }
}

fn parse_damaged(valid: &[Vec<u8>], parse: impl Fn(&[u8])) {
    let mut random = Rng::with_seed(1);
    let mut bytes = Vec::new();
    for _ in 0..INPUTS {
        damage(&mut bytes, valid, &mut random);
        parse(&bytes);
    }
}

#[test]
#[ignore = "long: make fuzz"]
fn no_damaged_image_makes_the_loader_panic() {
    let valid = [TestImage::direct(&[0xf4]), TestImage::pvh(&[0xf4; 64])];
    parse_damaged(&valid.map(|image| image.bytes()), images::try_image);
}

#[test]
#[ignore = "long: make fuzz"]
fn no_damaged_kernel_makes_the_loader_panic() {
    let header = kernels::compressed()[kernels::HEADER].to_vec();
    parse_damaged(&[header], kernels::try_header);
}

#[test]
#[ignore = "long: make fuzz"]
fn no_damaged_requests_make_a_device_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for (name, exercise) in TARGETS {
        let files = fs::read_dir(corpus.join(name)).unwrap();
        let valid = files.map(|file| fs::read(file.unwrap().path()).unwrap());
        parse_damaged(&valid.collect::<Vec<_>>(), exercise);
    }
}
