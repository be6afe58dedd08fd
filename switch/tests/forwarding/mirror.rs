//! Copies of frames in a file.

use crate::common::{measure, next, send, wait_until, Switch, SPLIT};
use std::path::Path;
use std::process::Command;

/// A frame of a file of format pcap: its time in nanoseconds since 1970, and its bytes.
type Copy = (u64, Vec<u8>);

fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * index..][..4].try_into().unwrap())
}

/// Parses a file, which may end within a frame.
fn parse(file: &Path) -> Vec<Copy> {
    let bytes = std::fs::read(file).unwrap();
    let (header, mut rest) = bytes.split_at(24);
    let wanted = [0xa1b2_3c4d, 0x4_0002, 0, 0, 65_535, 1];
    assert_eq!([0, 1, 2, 3, 4, 5].map(|index| word(header, index)), wanted);
    let mut copies = Vec::new();
    while rest.len() >= 16 {
        let [seconds, nanoseconds, kept, length] = [0, 1, 2, 3].map(|index| word(rest, index));
        assert_eq!(kept, length);
        let Some(frame) = rest.get(16..16 + kept as usize) else {
            break;
        };
        let time = u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds);
        copies.push((time, frame.to_vec()));
        rest = &rest[16 + kept as usize..];
    }
    copies
}

fn mirrored(switch: &Switch, name: &str) -> u64 {
    let mirror = &switch.state()["mirror"];
    mirror["dropped"][name]
        .as_u64()
        .or(mirror[name].as_u64())
        .unwrap()
}

#[test]
fn frames_of_a_port_are_copied_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.pcap");
    let option = format!("a={}", file.display());
    let switch = Switch::start(&["a", "b", "c"], &["--mirror", &option]);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|port| switch.peer(port, SPLIT));
    send(&mut a, 2, 1, 60);
    next(&mut b);
    send(&mut b, 1, 2, 1514);
    next(&mut a);
    // These two pass no mirrored port.
    next(&mut c);
    send(&mut c, 2, 3, 77);
    next(&mut b);
    send(&mut b, 3, 2, 78);
    next(&mut c);
    send(&mut a, 2, 1, 79);
    next(&mut b);
    wait_until(|| mirrored(&switch, "written") == 3);
    let copies = parse(&file);
    let lengths: Vec<usize> = copies.iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lengths, [60, 1514, 79]);
    assert!(copies.is_sorted_by_key(|(time, _)| *time));
    let mut wanted = [0; 1514];
    trapline_switch::driver::traffic::fill(&mut wanted, 1, 2, 7);
    assert_eq!(copies[1].1, wanted);
}

#[test]
fn full_file_and_blocked_fifo_drop_copies_and_stop_no_frame() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap()
        .success());
    let file = directory.path().join("file");
    for (path, reason) in [(&fifo, "too-slow"), (&file, "no-space")] {
        let option = format!("a={}", path.display());
        let options = ["--mirror", &option, "--mirror-limit", "1"];
        let switch = Switch::start(&["a", "b"], &options);
        let ports = [switch.path("a"), switch.path("b")];
        let ports = ports.each_ref().map(|port| port.to_str().unwrap());
        let words = ["--size", "1500", "--seconds", "3"];
        let flow = measure(&[&ports[..], &words].concat()).unwrap()["flow"].clone();
        assert_eq!(flow["damaged"], 0, "{flow}");
        // More than the file and the FIFO hold.
        assert!(flow["received"].as_u64() > Some(2_000), "{flow}");
        wait_until(|| mirrored(&switch, reason) > 0);
    }
    let length = file.metadata().unwrap().len();
    assert!(length <= 1 << 20, "{length}");
    parse(&file);
}

#[test]
fn invalid_mirrors_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("a");
    for (option, expected) in [
        (
            "b=/dev/null",
            "no such port\nhelp: write PORT=FILE; ports are a\n",
        ),
        ("a", "no such port\nhelp: "),
        (
            "a=/nonexistent/file",
            "No such file or directory (os error 2)\nhelp: ",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
        command
            .arg("--listen")
            .arg(&socket)
            .args(["--mirror", option]);
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let expected = format!("trapline-switch: --mirror {option}: {expected}");
        assert!(error.starts_with(&expected), "{error}");
    }
}
