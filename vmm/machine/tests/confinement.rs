//! The process around a guest: privileges, root directory, descriptors, and files that are none.

use crate::common::{await_end, no_kvm, signal, skip, vmm, ImageFile, SPIN};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trapline_abi::platform::DEBUG_CONSOLE;
use trapline_monitor::boot::test_image::TestImage;

/// A guest that prints a byte and spins.
fn spinning() -> ImageFile {
    let [low, high] = DEBUG_CONSOLE.to_le_bytes();
    let print = [0x66, 0xba, low, high, 0xb0, b'\n', 0xee]; // mov dx, port; mov al, '\n'; out dx, al
    ImageFile::new(&TestImage::direct(&[&print[..], &SPIN].concat()).bytes())
}

/// Starts the VMM and waits for the guest's first byte.
fn start(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    let output = child.stdout.as_mut().unwrap();
    if output.read_exact(&mut byte).is_err() {
        panic!("{}", errors(&mut child));
    }
    child
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut text).unwrap();
    text
}

fn stop(mut child: Child) {
    signal(&child, libc::SIGTERM);
    await_end(&mut child);
}

/// Returns the fields `names` of `/proc/PID/task/*/status`, once for each thread.
fn statuses(child: &Child, names: &[&str]) -> Vec<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let status = |task: io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &&str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        names.iter().map(field).collect()
    };
    tasks.map(status).collect()
}

/// Runs `change` in the child between fork and exec.
fn in_child(command: &mut Command, change: impl Fn() -> libc::c_int + Send + Sync + 'static) {
    let change = move || match change() {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the tests pass single system calls, which are safe there.
    unsafe { command.pre_exec(change) };
}

fn is_root() -> bool {
    // SAFETY: takes no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip("--user and --chroot", "they need root");
    }
    root
}

#[test]
fn all_capabilities_are_dropped() {
    if no_kvm() {
        return;
    }
    let image = spinning();
    for words in [
        &[][..],
        &["--no-sandbox"],
        &["--ticker", "--serial", "buffered"],
    ] {
        let child = start(vmm(&image).args(words));
        let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs"];
        for values in statuses(&child, &sets) {
            let none = "0".repeat(16);
            assert_eq!(values, [&none[..], &none, &none, &none, "1"], "{words:?}");
        }
        stop(child);
    }
}

#[test]
fn root_changes_user_and_root_directory() {
    if no_kvm() || !is_root() {
        return;
    }
    let image = spinning();
    let jail = tempfile::tempdir().unwrap();
    let kernel = ImageFile::new(&TestImage::pvh(&SPIN).bytes());
    let socket = jail.path().join("socket");
    let mut linux = Command::new(env!("CARGO_BIN_EXE_trapline-vmm"));
    linux
        .args(["--cpus", "2", "--kernel"])
        .arg(&kernel.0)
        .arg("--api")
        .arg(&socket);
    for mut command in [vmm(&image), linux] {
        command
            .args(["--user", "1234:2345", "--chroot"])
            .arg(jail.path());
        let is_image = command.get_args().any(|word| word == "--image");
        let child = if is_image {
            start(&mut command)
        } else {
            start_linux(&mut command)
        };
        let names = ["Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd"];
        let threads = statuses(&child, &names);
        for values in threads {
            let none = "0".repeat(16);
            let wanted = [
                "1234 1234 1234 1234",
                "2345 2345 2345 2345",
                "",
                &none,
                &none,
                &none,
            ];
            assert_eq!(values, wanted);
        }
        let root = fs::read_link(format!("/proc/{}/root", child.id())).unwrap();
        assert_eq!(root, jail.path().canonicalize().unwrap());
        stop(child);
    }
}

/// Starts a VM with a kernel and waits until its vCPUs run, under their seccomp filter.
fn start_linux(command: &mut Command) -> Child {
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let runs = || {
        statuses(&child, &["Seccomp"])
            .iter()
            .filter(|mode| mode[0] == "2")
            .count()
            >= 3
    };
    while !runs() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the VM does not start"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn unprivileged_user_cannot_change_user_or_root() {
    if no_kvm() || !is_root() {
        return;
    }
    let image = spinning();
    for words in [
        ["--user", "1:1"],
        ["--chroot", "/tmp"],
        ["--chroot", "/nonexistent"],
    ] {
        let mut command = vmm(&image);
        // Keeps access to /dev/kvm, which root owns.
        in_child(&mut command, drop_privileges);
        let output = command.args(words).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        let wanted = match words[1] {
            "/nonexistent" => "No such file",
            _ => "start as root",
        };
        assert!(
            errors.contains(words[0]) && errors.contains(wanted),
            "{errors}"
        );
    }
}

/// Empties the capabilities of a child that stays user 0.
fn drop_privileges() -> libc::c_int {
    // Otherwise exec would give them back to user 0.
    const SECBIT_NOROOT: libc::c_ulong = 1;
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NOROOT, 0, 0, 0) };
    let header = [0x2008_0522_u32, 0];
    let sets = [[0_u32; 3]; 2];
    // SAFETY: the kernel reads both arrays.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const sets) as libc::c_int }
}

#[test]
fn inherited_descriptors_are_closed() {
    if no_kvm() {
        return;
    }
    let (image, file) = (spinning(), File::open("/dev/null").unwrap());
    let mut command = vmm(&image);
    for fd in [203, 207, 277] {
        let file = file.try_clone().unwrap();
        // SAFETY: takes numbers only.
        in_child(&mut command, move || unsafe {
            libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), fd)
        });
    }
    let child = start(command.args(["--events", "207"]));
    let target = |fd: i32| fs::read_link(format!("/proc/{}/fd/{fd}", child.id())).ok();
    assert_eq!(target(207), Some("/dev/null".into()));
    assert_eq!((target(203), target(277)), (None, None));
    stop(child);
}

#[test]
fn a_disk_can_be_named_by_its_descriptor() {
    if no_kvm() {
        return;
    }
    let image = spinning();
    let disk = tempfile::tempfile().unwrap();
    disk.set_len(1 << 20).unwrap();
    let mut command = vmm(&image);
    // SAFETY: takes numbers only.
    in_child(&mut command, move || unsafe {
        libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&disk), 203)
    });
    stop(start(command.args(["--disk", "/proc/self/fd/203"])));
    let output = vmm(&image)
        .args(["--disk", "/proc/self/fd/99"])
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("--disk: descriptor 99 is not open"),
        "{errors}"
    );
}

#[test]
fn disk_in_another_format_is_named_and_served() {
    if no_kvm() {
        return;
    }
    let image = spinning();
    let disk = ImageFile::new(&[&b"QFI\xfb"[..], &[0; 1020]].concat());
    let mut child = start(vmm(&image).arg("--disk").arg(&disk.0));
    signal(&child, libc::SIGTERM);
    await_end(&mut child);
    let path = disk.0.display();
    let wanted = format!(
        "trapline-vmm: disk {path}: qcow2 image is served as raw\n\
         help: qemu-img convert -O raw {path} {path}.raw\n\
         trapline-vmm: stopped by signal 15\n"
    );
    assert_eq!(errors(&mut child), wanted);
}

#[test]
fn closed_standard_descriptors_become_null() {
    if no_kvm() {
        return;
    }
    let image = spinning();
    let mut command = vmm(&image);
    command.args(["--seconds", "60"]).stdout(Stdio::null());
    for fd in [0, 1] {
        // SAFETY: takes a number.
        in_child(&mut command, move || unsafe { libc::close(fd) });
    }
    let child = command.spawn().unwrap();
    let target = |fd: i32| fs::read_link(format!("/proc/{}/fd/{fd}", child.id())).ok();
    let begun = Instant::now();
    while target(1) != Some("/dev/null".into()) {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(target(0), Some("/dev/null".into()));
    stop(child);
}

#[test]
fn closed_event_descriptor_is_an_error() {
    let image = spinning();
    let output = vmm(&image).args(["--events", "99"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("--events: descriptor 99 is not open"),
        "{errors}"
    );
}

/// None of them may block or be read without end.
#[test]
fn special_files_are_rejected_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let fifo = CString::new(at("fifo").as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a zero-terminated path and a mode.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    File::create(at("sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let kernel = ImageFile::new(&TestImage::pvh(&SPIN).bytes());
    for (path, cause) in [
        (at("fifo"), "it is not a regular file"),
        ("/dev/zero".into(), "it is not a regular file"),
        (at("sparse"), "its 1099511627776 bytes exceed the limit"),
    ] {
        let options: [&[&str]; 3] = [
            &["--image"],
            &["--kernel"],
            &["--kernel", kernel.0.to_str().unwrap(), "--initrd"],
        ];
        for words in options {
            let begun = Instant::now();
            let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-vmm"));
            let output = command.args(words).arg(&path).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(3), "{words:?}: {errors}");
            assert!(errors.contains(cause), "{words:?}: {errors}");
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }
}
