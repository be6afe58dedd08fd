//! Guests that are processes, in the program: how they end, and that they end with it.

use crate::common::{await_end, signal, vmm, ImageFile, SPIN, SPIN_POLLS};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};
use trapline_abi::platform::{DEBUG_CONSOLE, EXIT, EXIT_DONE};
use trapline_monitor::boot::test_image::TestImage;

fn to_port(port: u16) -> Vec<u8> {
    [&[0x66, 0xba], &port.to_le_bytes()[..]].concat() // mov dx, port
}

fn say(text: &str) -> Vec<u8> {
    let out = text.bytes().flat_map(|byte| [0xb0, byte, 0xee]); // mov al, byte; out dx, al
    to_port(DEBUG_CONSOLE).into_iter().chain(out).collect()
}

/// Writes a character, then `value` to the exit port.
fn say_and_leave(value: u32) -> Vec<u8> {
    let set = [&[0xb8], &value.to_le_bytes()[..]].concat(); // mov eax, value
    [say("x"), to_port(EXIT), set, vec![0xef]].concat() // out dx, eax
}

fn process(image: &ImageFile) -> Command {
    let mut command = vmm(image);
    command.args(["--backend", "process"]);
    command
}

/// Mechanisms with a tracer, and without one.
const GUESTS: [&[&str]; 4] = [
    &["--crossing", "ptrace"],
    &["--crossing", "trap"],
    &["--spaces", "4"],
    &["--spaces", "4", "--switch", "vmm"],
];

fn run(code: &[u8]) -> Output {
    let image = ImageFile::new(&TestImage::direct(code).bytes());
    process(&image).output().unwrap()
}

#[test]
fn guest_writes_and_ends() {
    let output = run(&say_and_leave(EXIT_DONE));
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(0), &b"x"[..]),
        "{output:?}"
    );
}

#[test]
fn exception_without_a_handler_is_reported() {
    let output = run(&[0x0f, 0x0b]); // ud2
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(36), "{errors}");
    assert!(errors.contains("triple fault"), "{errors}");
}

/// Calls that start programs, open files and kill, then the end.
#[test]
fn system_calls_of_the_guest_do_nothing() {
    let mut code = Vec::new();
    for number in [
        libc::SYS_execve,
        libc::SYS_open,
        libc::SYS_kill,
        libc::SYS_exit_group,
    ] {
        code.push(0xb8); // mov eax, number
        code.extend((number as u32).to_le_bytes());
        code.extend([0x31, 0xff, 0xbe, 9, 0, 0, 0, 0x0f, 0x05]); // xor edi, edi; mov esi, 9; syscall
    }
    code.extend(say_and_leave(EXIT_DONE));
    let output = run(&code);
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(0), &b"x"[..]),
        "{output:?}"
    );
}

#[test]
fn options_of_kvm_are_rejected() {
    let image = ImageFile::new(&TestImage::direct(&SPIN).bytes());
    for words in [
        &["--ring", "0"][..],
        &["--pages", "4k"],
        &["--populate", "steps"],
    ] {
        let output = process(&image).args(words).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("requires --backend kvm"), "{errors}");
    }
}

/// Starts a guest that spins. Returns the program and the guest's processes.
fn spinning(image: &ImageFile, words: &[&str]) -> (Child, Vec<u32>) {
    let mut command = process(image);
    let child = command.args(words).spawn().unwrap();
    let count = if words.contains(&"--spaces") { 4 } else { 1 };
    let guest = await_guest(child.id(), count);
    (child, guest)
}

fn await_guest(vmm: u32, count: usize) -> Vec<u32> {
    let begun = Instant::now();
    loop {
        let children = fs::read_to_string(format!("/proc/{vmm}/task/{vmm}/children"));
        let children = children.unwrap_or_default();
        let guest: Vec<_> = children.split_whitespace().flat_map(str::parse).collect();
        if guest.len() == count {
            return guest;
        }
        assert!(
            begun.elapsed() < SPIN_POLLS,
            "{count} processes of a guest: {guest:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

fn await_death(process: u32) {
    let begun = Instant::now();
    while Path::new(&format!("/proc/{process}")).exists() {
        assert!(begun.elapsed() < SPIN_POLLS, "the guest's process survives");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn guest_ends_with_a_killed_vmm() {
    for words in GUESTS {
        let image = ImageFile::new(&TestImage::direct(&SPIN).bytes());
        let (mut child, guest) = spinning(&image, words);
        child.kill().unwrap();
        await_end(&mut child);
        guest.into_iter().for_each(await_death);
    }
}

/// Waits until a process handles SIGTERM (proc_pid_status(5), SigCgt).
fn await_handler(child: &Child) {
    let deadline = Instant::now() + SPIN_POLLS;
    let handles = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.split("SigCgt:").nth(1).unwrap().split_whitespace();
        let caught = u64::from_str_radix(caught.take(1).next().unwrap(), 16).unwrap();
        caught & 1 << (libc::SIGTERM - 1) != 0
    };
    while !handles() {
        assert!(Instant::now() < deadline, "SIGTERM has no handler");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn signal_stops_a_spinning_guest() {
    for words in GUESTS {
        let image = ImageFile::new(&TestImage::direct(&SPIN).bytes());
        let (mut child, guest) = spinning(&image, words);
        await_handler(&child);
        signal(&child, libc::SIGTERM);
        assert_eq!(await_end(&mut child).code(), Some(128 + libc::SIGTERM));
        guest.into_iter().for_each(await_death);
    }
}

/// An image waits for its reader: records are not lost.
#[test]
fn late_reader_receives_all_output() {
    const LENGTH: u32 = 200_000;
    let burst = [
        &to_port(DEBUG_CONSOLE)[..],
        &[0xb9],
        &LENGTH.to_le_bytes(),                       // mov ecx, LENGTH
        &[0xb0, b'x', 0xee, 0xff, 0xc9, 0x75, 0xfb], // mov al, 'x'; out dx, al; dec ecx; jnz to the out
    ]
    .concat();
    let code = [burst, say_and_leave(EXIT_DONE)].concat();
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut child = process(&image).stdout(writer).spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), LENGTH as usize + 1);
    assert_eq!(await_end(&mut child).code(), Some(0));
}

/// The last line has no end, so that it is written when the VM ends.
#[test]
fn signal_stops_a_guest_whose_output_is_not_read() {
    let code = [&say("half a line")[..], &SPIN].concat();
    let image = ImageFile::new(&TestImage::direct(&code).bytes());
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: takes numbers only.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'x'; size as usize]).unwrap();
    let mut child = process(&image).stdout(writer).spawn().unwrap();
    await_guest(child.id(), 1);
    await_handler(&child);
    // The guest runs, and its output waits.
    thread::sleep(Duration::from_millis(500));
    signal(&child, libc::SIGTERM);
    assert_eq!(await_end(&mut child).code(), Some(128 + libc::SIGTERM));
}

#[test]
fn killed_guest_is_reported() {
    for words in GUESTS {
        let image = ImageFile::new(&TestImage::direct(&SPIN).bytes());
        let (mut child, guest) = spinning(&image, words);
        thread::sleep(Duration::from_millis(300));
        // The last one does not run if there are several.
        let killed = guest.last().map_or(0, |process| *process as i32);
        // SAFETY: takes numbers only; the process is the child of a child that has not ended.
        unsafe { libc::kill(killed, libc::SIGKILL) };
        assert_eq!(await_end(&mut child).code(), Some(5));
    }
}
