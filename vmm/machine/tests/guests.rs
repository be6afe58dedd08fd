//! Real guests on the real kernel: each way a machine can end, and each way a guest
//! can make trouble. Where there is no /dev/kvm the tests say so and pass.

use crate::common::{await_end, no_kvm, signal, vmm, ImageFile, SPIN};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use trapline_abi::platform::{COM1, DEBUG_CONSOLE, EXIT, EXIT_DONE, EXIT_PANIC, POPULATE};
use trapline_abi::populate::{MemoryRequest, Refusal, RELEASE};
use trapline_abi::record::{Counter, Record, Stage};
use trapline_abi::{Decoder, Item};
use trapline_interface::has_huge_pages;
use trapline_monitor::boot::test_image::TestImage;

struct Run {
    status: ExitStatus,
    output: Vec<u8>,
    errors: String,
}

fn run(test_image: &TestImage) -> Run {
    let image = ImageFile::new(&test_image.bytes());
    finish(&mut vmm(&image))
}

fn finish(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        status: output.status,
        output: output.stdout,
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

// Machine code that means the same in 32-bit and in 64-bit mode.

fn to_port(port: u16) -> Vec<u8> {
    [&[0x66, 0xba], &port.to_le_bytes()[..]].concat() // mov dx, port
}

fn say(text: &str) -> Vec<u8> {
    let mut code = to_port(DEBUG_CONSOLE);
    for byte in text.bytes() {
        code.extend([0xb0, byte, 0xee]); // mov al, byte; out dx, al
    }
    code
}

fn leave(value: u32) -> Vec<u8> {
    let mut code = to_port(EXIT);
    code.push(0xb8); // mov eax, value
    code.extend(value.to_le_bytes());
    code.push(0xef); // out dx, eax
    code
}

const FLOOD: [u8; 5] = [0xb0, b'x', 0xee, 0xeb, 0xfd]; // mov al, 'x'; out dx, al; jmp to the out
/// Executes memory that does not exist: KVM cannot fetch the instruction that it is to emulate.
const UNMAPPED: [u8; 7] = [0xb8, 0x00, 0x00, 0x00, 0xd0, 0xff, 0xe0]; // mov eax, 0xd0000000; jmp rax
const CRASH: [u8; 2] = [0x0f, 0x0b]; // ud2

#[test]
fn guest_runs_by_either_entry() {
    if no_kvm() {
        return;
    }
    let code = [say("hello\nworld"), leave(EXIT_DONE)].concat();
    for test_image in [TestImage::direct(&code), TestImage::pvh(&code)] {
        let run = run(&test_image);
        assert_eq!(run.output, b"hello\nworld", "{}", run.errors);
        assert_eq!(run.status.code(), Some(0));
        assert_eq!(run.errors, "");
    }
}

#[test]
fn stop_reasons_have_exit_statuses() {
    if no_kvm() {
        return;
    }
    for (code, status, output) in [
        (leave(EXIT_PANIC), 35, ""),
        (CRASH.to_vec(), 36, "triple fault"),
        (leave(0x1234), 37, "0x1234"),
        (UNMAPPED.to_vec(), 37, "cannot emulate"),
    ] {
        let run = run(&TestImage::direct(&[say("last words"), code].concat()));
        assert_eq!(run.status.code(), Some(status), "{}", run.errors);
        assert_eq!(run.output, b"last words");
        assert!(run.errors.contains(output), "{}", run.errors);
    }
}

/// Writes a word to [`POPULATE`] and crashes unless another is read from it then.
fn populate(word: u32, answer: u32) -> Vec<u8> {
    let mut code = to_port(POPULATE);
    code.push(0xb8); // mov eax, word
    code.extend(word.to_le_bytes());
    code.extend([0xef, 0xed, 0x3d]); // out dx, eax; in eax, dx; cmp eax, answer
    code.extend(answer.to_le_bytes());
    code.extend([0x74, 0x02]); // je past the crash
    code.extend(CRASH);
    code
}

/// Under the seccomp filter: what it does not allow would kill.
#[test]
fn memory_requests_are_granted_one_at_a_time() {
    if no_kvm() {
        return;
    }
    let mut code = populate(0x1234_5678, Refusal::Invalid.word());
    code.extend(populate(RELEASE, Refusal::WrongState.word()));
    for wish in MemoryRequest::ALL
        .into_iter()
        .filter(|wish| wish.order <= 9)
    {
        if wish.huge && !has_huge_pages() {
            code.extend(populate(wish.word(), Refusal::NoHugePages.word()));
            continue;
        }
        code.extend(populate(wish.word(), wish.word()));
        code.extend(populate(wish.word(), Refusal::WrongState.word()));
        code.extend(populate(RELEASE, 0));
    }
    code.extend(leave(EXIT_DONE));
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    for how in ["steps", "whole"] {
        let run = finish(vmm(&image).args(["--populate", how]));
        assert_eq!(run.status.code(), Some(0), "{how}: {}", run.errors);
    }
    let with_ticker = finish(vmm(&image).args(["--populate", "steps", "--ticker"]));
    assert_eq!(with_ticker.status.code(), Some(0), "{}", with_ticker.errors);
    let without = finish(&mut vmm(&image));
    assert_eq!(without.status.code(), Some(36), "{}", without.errors);
}

#[test]
fn guest_runs_in_every_kind_of_memory() {
    if no_kvm() {
        return;
    }
    let image =
        ImageFile::new(&TestImage::direct(&[say("hello"), leave(EXIT_DONE)].concat()).bytes());
    for pages in ["file", "4k", "2m"] {
        for prefault in ["no", "steps", "whole"] {
            let words = ["--pages", pages, "--prefault", prefault];
            let run = finish(vmm(&image).args(words));
            let output = if pages == "2m" && !has_huge_pages() {
                assert!(run.errors.contains("echo madvise"), "{}", run.errors);
                2
            } else {
                assert_eq!(run.output, b"hello", "{words:?}: {}", run.errors);
                0
            };
            assert_eq!(run.status.code(), Some(output), "{words:?}");
        }
    }
}

#[test]
fn errors_are_one_line() {
    let image = ImageFile::new(&TestImage::pvh(&SPIN).bytes());
    let script = ImageFile::new(b"#!/bin/sh\n");
    let missing = ImageFile(PathBuf::from("/nonexistent/image"));
    for (image, words, status, output) in [
        (&script, &[][..], 3, "not an ELF file"),
        (&missing, &[], 3, "/nonexistent/image"),
        (&image, &["--memory", "1M"], 2, "too few"),
        (&image, &["--memory", "9G"], 2, "too many"),
        (&image, &["--entry", "direct"], 3, "--entry pvh"),
        (&image, &["--cpus", "65"], 2, "--cpus"),
        (&image, &["--pages", "1g"], 2, "file, 4k or 2m"),
        (&image, &["--populate", "no"], 2, "steps or whole"),
        (&image, &["--bogus"], 2, "--bogus"),
    ] {
        let run = finish(vmm(image).args(words));
        assert_eq!(run.status.code(), Some(status), "{words:?}: {}", run.errors);
        assert!(run.errors.contains(output), "{words:?}: {}", run.errors);
        assert_eq!(run.errors.lines().count(), 1, "{}", run.errors);
        assert!(run.output.is_empty());
    }
}

/// Lets the child have `file` as descriptor 3.
fn as_events(command: &mut Command, file: &impl AsRawFd) {
    let fd = file.as_raw_fd();
    command.args(["--events", "3"]);
    // SAFETY: between fork and exec the child only calls `dup2`, which is safe there.
    unsafe {
        command.pre_exec(move || match libc::dup2(fd, 3) {
            3 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}

fn records(bytes: &[u8]) -> (Vec<Stage>, Vec<(Counter, u64)>) {
    let (mut stages, mut counts) = (Vec::new(), Vec::new());
    Decoder::new().feed(bytes, &mut |item| match item {
        Item::Record(Record::Stage { stage, .. }, _) => stages.push(stage),
        Item::Record(Record::Count { counter, value }, _) => counts.push((counter, value)),
        other => panic!("{other:?}"),
    });
    (stages, counts)
}

#[test]
fn signal_stops_a_spinning_guest_and_reports_counts() {
    if no_kvm() {
        return;
    }
    let code = [say("x\n"), SPIN.to_vec()].concat();
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    let (mut events, writer) = std::io::pipe().unwrap();
    let mut command = vmm(&image);
    as_events(command.stdout(Stdio::piped()), &writer);
    let mut child = command.spawn().unwrap();
    drop((command, writer));
    let mut line = [0; 2];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    assert!(
        status.contains("Seccomp:\t2\n"),
        "the sandbox is off: {status}"
    );
    signal(&child, libc::SIGTERM);
    assert_eq!(await_end(&mut child).code(), Some(128 + libc::SIGTERM));
    let mut bytes = Vec::new();
    events.read_to_end(&mut bytes).unwrap();
    let (stages, counts) = records(&bytes);
    let wanted = [
        Stage::VmmMain,
        Stage::VmCreated,
        Stage::VmmEntry,
        Stage::VmmExit,
    ];
    assert_eq!(stages, wanted);
    let count = |wanted| counts.iter().find(|(counter, _)| *counter == wanted);
    assert_eq!(count(Counter::PortExits), Some(&(Counter::PortExits, 2)));
    assert_eq!(count(Counter::UserExits), Some(&(Counter::UserExits, 3)));
    assert_eq!(count(Counter::Unclaimed), Some(&(Counter::Unclaimed, 0)));
    let own = count(Counter::OwnMemory).map_or(0, |(_, bytes)| *bytes);
    assert!(own > 0 && own < 64 << 20, "own memory {own}");
}

#[test]
fn a_guest_at_ring_3_cannot_halt_without_leaving() {
    if no_kvm() {
        return;
    }
    let image = ImageFile::new(&TestImage::direct(&SPIN).bytes());
    let run = finish(vmm(&image).args(["--ring", "3", "--halt-in-guest"]));
    assert_eq!(run.status.code(), Some(2), "{}", run.errors);
    assert!(run.errors.contains("halts by a port"), "{}", run.errors);
}

#[test]
fn time_limit_kills_the_guest() {
    if no_kvm() {
        return;
    }
    let image = ImageFile::new(&TestImage::direct(&SPIN).bytes());
    let begun = Instant::now();
    let run = finish(vmm(&image).args(["--seconds", "1"]));
    assert_eq!(run.status.signal(), Some(libc::SIGALRM), "{}", run.errors);
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn console_flood_uses_bounded_memory() {
    if no_kvm() {
        return;
    }
    let code = [to_port(DEBUG_CONSOLE), FLOOD.to_vec()].concat();
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    let mut child = vmm(&image).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut bytes = vec![0; 1 << 20];
    output.read_exact(&mut bytes[..100_000]).unwrap();
    thread::sleep(Duration::from_millis(200));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let resident = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kib: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 16_000, "{resident}");
    // It waits in write(2) now, with a full pipe; a signal must end it there too.
    signal(&child, libc::SIGTERM);
    assert_eq!(await_end(&mut child).code(), Some(128 + libc::SIGTERM));
    assert!(bytes[..100_000].iter().all(|byte| *byte == b'x'));
}

#[test]
fn closed_console_stops_the_vm() {
    if no_kvm() {
        return;
    }
    let code = [to_port(COM1), FLOOD.to_vec()].concat();
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    for mode in ["lines", "direct", "buffered"] {
        let mut command = vmm(&image);
        command.args(["--serial", mode]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let status = await_end(&mut child);
        assert_eq!((status.signal(), status.code()), (None, Some(5)), "{mode}");
        let mut errors = String::new();
        child.stderr.unwrap().read_to_string(&mut errors).unwrap();
        assert!(errors.contains("guest console closed"), "{mode}: {errors}");
    }
}

#[test]
fn guest_receives_input() {
    if no_kvm() {
        return;
    }
    let mut code = say("ready\n");
    code.extend(to_port(COM1 + 5));
    code.extend([0xec, 0xa8, 0x01, 0x74, 0xfb]); // in al, dx; test al, 1; jz back
    code.extend(to_port(COM1));
    code.push(0xec); // in al, dx
    code.extend(to_port(DEBUG_CONSOLE));
    code.push(0xee); // out dx, al
    code.extend(leave(EXIT_DONE));
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    let mut command = vmm(&image);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    output.read_exact(&mut ready).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"g").unwrap();
    assert_eq!(await_end(&mut child).code(), Some(0));
    let mut answer = Vec::new();
    output.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"g");
}

/// A small generator of numbers, the same each time.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Accesses to random ports, of random kinds, with random values.
fn pokes(state: &mut u64, count: usize) -> Vec<u8> {
    const KINDS: [&[u8]; 6] = [
        &[0xee],
        &[0x66, 0xef],
        &[0xef],
        &[0xec],
        &[0x66, 0xed],
        &[0xed],
    ];
    let mut code = Vec::new();
    while code.len() < count * 12 {
        let value = random(state);
        let port = match value % 3 {
            0 => COM1 + (value >> 8 & 7) as u16,
            1 => 0x500 + (value >> 8 & 0x1f) as u16,
            _ => (value >> 8) as u16,
        };
        // The exit port would end it, and idling would wait for an interrupt.
        if (EXIT - 3..EXIT + 4).contains(&port) || (0x515..0x51c).contains(&port) {
            continue;
        }
        code.extend(to_port(port));
        code.push(0xb8);
        code.extend((value >> 32).to_le_bytes()[..4].iter());
        code.extend(KINDS[(value >> 24) as usize % KINDS.len()]);
    }
    code
}

#[test]
fn hostile_accesses_are_harmless() {
    if no_kvm() {
        return;
    }
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..8 {
        let code = [pokes(&mut state, 250), say("\nalive\n"), leave(EXIT_DONE)].concat();
        assert!(code.len() <= 4096);
        let run = run(&TestImage::direct(&code));
        assert_eq!(run.status.code(), Some(0), "{}", run.errors);
        assert!(run.output.ends_with(b"\nalive\n"));
    }
}

#[test]
fn full_disk_does_not_stop_the_vm() {
    if no_kvm() {
        return;
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let code = [say("x\n"), leave(EXIT_DONE)].concat();
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    let run = finish(vmm(&image).stdout(full));
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(
        run.errors,
        "trapline-vmm: 2 bytes of console output dropped\n"
    );
}
