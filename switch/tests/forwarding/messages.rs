//! Front ends that send any messages.

use crate::common::{measure, wait_until, Switch};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use trapline_switch::driver::{memory_file, Random};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Requests of the protocol, and some beyond (vhost-user, "Front-end message types").
const REQUESTS: u32 = 48;

/// Flags of a message: the version, and the wish for an answer.
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;

const SET_OWNER: u32 = 3;
const SET_FEATURES: u32 = 2;
const SET_VRING_NUM: u32 = 8;
const SET_PROTOCOL_FEATURES: u32 = 16;
/// Multiple queues, answers, and regions of memory one by one.
const PROTOCOL: u64 = 1 << 15 | 1 << 3 | 1;
/// `VIRTIO_F_VERSION_1` and `VHOST_USER_F_PROTOCOL_FEATURES`.
const FEATURES: u64 = 1 << 32 | 1 << 30;

/// Returns a word of a message: mostly a small number or the size of the memory, sometimes anything.
fn word(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.number(),
        1 => MEMORY >> random.below(8),
        _ => random.below(17),
    }
}

/// Size of the memory that messages offer.
const MEMORY: u64 = 0x1_0000;

/// Descriptors that messages carry: memory, a device, and a socket.
struct Files([OwnedFd; 3]);

impl Files {
    fn new() -> Self {
        let (socket, _) = UnixStream::pair().unwrap();
        let null = File::options().write(true).open("/dev/null").unwrap();
        Self([
            memory_file(MEMORY).unwrap().into(),
            null.into(),
            socket.into(),
        ])
    }

    fn some(&self, count: u64) -> Vec<RawFd> {
        let all = self.0.iter().cycle();
        all.take(count as usize).map(AsRawFd::as_raw_fd).collect()
    }
}

fn message(request: u32, flags: u32, size: u32, body: &[u8]) -> Vec<u8> {
    let words = [request, flags, size].map(u32::to_le_bytes);
    [words.as_flattened(), body].concat()
}

/// Sends a message; the switch may have ended the connection.
fn send(socket: &UnixStream, bytes: &[u8], files: &[RawFd]) {
    let _gone = socket.send_with_fds(&[bytes], files);
}

fn number(socket: &UnixStream, request: u32, value: u64) {
    send(
        socket,
        &message(request, VERSION, 8, &value.to_le_bytes()),
        &[],
    );
}

/// Connects, and negotiates as front ends do.
fn connect(path: &Path, protocol: u64) -> UnixStream {
    let socket = UnixStream::connect(path).unwrap();
    socket
        .set_write_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    send(&socket, &message(SET_OWNER, VERSION, 0, &[]), &[]);
    number(&socket, SET_PROTOCOL_FEATURES, protocol);
    number(&socket, SET_FEATURES, FEATURES);
    socket
}

/// Waits until the switch has ended a connection or handled all of its messages.
fn finish(mut socket: UnixStream) {
    let _gone = socket.shutdown(std::net::Shutdown::Write);
    let _answers = io::copy(&mut socket.by_ref(), &mut io::sink());
}

/// Sends a sequence of random messages over a connection of its own.
fn send_sequence(path: &Path, random: &mut Random, files: &Files) {
    let socket = match random.below(8) {
        0 => UnixStream::connect(path).unwrap(),
        1 => connect(path, random.number()),
        _ => connect(path, PROTOCOL),
    };
    for _ in 0..random.below(16) {
        let request = match random.below(32) {
            0 => random.number() as u32,
            _ => random.below(REQUESTS.into()) as u32,
        };
        let flags = match random.below(16) {
            0 => random.number() as u32,
            even if even % 2 == 0 => VERSION,
            _ => VERSION | NEED_REPLY,
        };
        let words = match random.below(16) {
            0 => random.below(64),
            _ => random.below(9),
        };
        let body: Vec<u8> = (0..words)
            .flat_map(|_| word(random).to_le_bytes())
            .collect();
        let size = match random.below(16) {
            0 => random.number() as u32,
            1 => random.below(600) as u32,
            _ => body.len() as u32,
        };
        let count = if random.below(2) == 0 {
            0
        } else {
            random.below(10)
        };
        send(
            &socket,
            &message(request, flags, size, &body),
            &files.some(count),
        );
    }
    finish(socket);
}

/// Checks frames between two other ports for some seconds.
fn check_others(paths: [PathBuf; 2], seconds: &str) {
    let [a, b] = paths.each_ref().map(|path| path.to_str().unwrap());
    let result = measure(&[a, b, "--seconds", seconds]).unwrap();
    assert_eq!(result["flow"]["lost"], 0, "{result}");
    assert_eq!(result["flow"]["damaged"], 0, "{result}");
}

fn assert_runs(switch: &mut Switch) {
    let ended = switch.process.try_wait().unwrap();
    assert!(ended.is_none(), "the switch ended: {ended:?}");
    check_others(["a", "b"].map(|port| switch.path(port)), "0.1");
}

fn send_sequences(count: u64) {
    let mut switch = Switch::start(&["a", "b", "c"], &[]);
    let (path, files) = (switch.path("c"), Files::new());
    let mut random = Random(1);
    let others = ["a", "b"].map(|port| switch.path(port));
    let beside = std::thread::spawn(|| check_others(others, "1"));
    for _ in 0..count {
        send_sequence(&path, &mut random, &files);
    }
    beside.join().unwrap();
    assert_runs(&mut switch);
}

#[test]
fn random_messages_end_their_connection_at_most() {
    send_sequences(3000);
}

#[test]
#[ignore = "random messages in great numbers: make fuzz"]
fn a_million_sequences_of_random_messages_end_their_connection_at_most() {
    send_sequences(1_000_000);
}

/// Each request, with and without descriptors, from a front end that claims every feature, and from one that has negotiated.
#[test]
fn every_request_harms_its_port_at_most() {
    let mut switch = Switch::start(&["a", "b", "c"], &[]);
    let (path, files) = (switch.path("c"), Files::new());
    for protocol in [0, PROTOCOL, u64::MAX] {
        for request in 0..REQUESTS {
            for (size, count) in [(0, 0), (0, 1), (8, 0), (8, 1), (8, 2), (16, 1), (40, 1)] {
                let socket = connect(&path, protocol);
                let body = vec![0; size];
                let bytes = message(request, VERSION | NEED_REPLY, size as u32, &body);
                send(&socket, &bytes, &files.some(count));
                finish(socket);
            }
        }
        assert_runs(&mut switch);
    }
}

/// Starts a switch with this standard error, and lets a front end cause far more messages than a pipe holds.
fn complain(stderr: Stdio) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
    command.stderr(stderr);
    let process = Switch::spawn_with_errors(command, directory.path(), &["a", "b", "c"], &[]);
    let mut switch = Switch { process, directory };
    for _ in 0..3000 {
        let socket = connect(&switch.path("c"), PROTOCOL);
        // A queue without entries.
        number(&socket, SET_VRING_NUM, 0);
        finish(socket);
    }
    assert_runs(&mut switch);
}

#[test]
fn messages_that_cannot_be_written_are_lost() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    complain(full.into());
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    complain(writer.into());
    // A full pipe without a reader at work.
    let (_reader, mut writer) = io::pipe().unwrap();
    fill(&mut writer);
    complain(writer.into());
}

fn fill(pipe: &mut io::PipeWriter) {
    // SAFETY: a descriptor of this process.
    let room = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
    io::Write::write_all(pipe, &vec![b'x'; room as usize]).unwrap();
}

/// The messages of a port are few, however many it causes.
#[test]
fn messages_of_a_port_are_bounded() {
    let (mut reader, writer) = io::pipe().unwrap();
    complain(writer.into());
    let mut text = String::new();
    wait_until(|| reader.read_to_string(&mut text).is_ok());
    let lines = text.lines().filter(|line| line.contains("c: "));
    assert!((1..1000).contains(&lines.count()), "{text}");
}
