use super::*;
use crate::threads;
use std::process::Command;
use std::time::Duration;

/// Evaluates the program for one call.
fn verdict(filter: &Filter, architecture: u32, number: u32, arguments: [u32; 6]) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let step = filter.steps[..filter.length][at];
        at += 1;
        let jump = |holds| usize::from(if holds { step.jt } else { step.jf });
        match step.code {
            LOAD if step.k == NUMBER => loaded = number,
            LOAD if step.k == ARCHITECTURE => loaded = architecture,
            LOAD => loaded = arguments[((step.k - ARGUMENTS) / ARGUMENT) as usize],
            IF_EQUAL => at += jump(loaded == step.k),
            IF_NOT_BELOW => at += jump(loaded >= step.k),
            _ => return step.k,
        }
    }
}

fn allows(role: Role, number: libc::c_long, arguments: [u32; 6]) -> bool {
    let result = verdict(filter_of(role), X86_64, number as u32, arguments);
    result == libc::SECCOMP_RET_ALLOW
}

/// Arguments that are allowed wherever any are limited.
const FITTING: [u32; 6] = {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    [0, 4096, access as u32, kind as u32, u32::MAX, 0]
};

const UNIX_STREAM: [u32; 3] = {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    [libc::AF_UNIX as u32, kind as u32, 0]
};

fn fitting(number: u32) -> [u32; 6] {
    let mut arguments = FITTING;
    match libc::c_long::from(number) {
        libc::SYS_madvise => arguments[2] = libc::MADV_HUGEPAGE as u32,
        libc::SYS_tgkill => arguments[2] = libc::SIGRTMIN() as u32,
        libc::SYS_ptrace => arguments[0] = libc::PTRACE_SYSEMU,
        libc::SYS_fcntl => arguments[1] = libc::F_GETFD as u32,
        libc::SYS_socket => arguments[..3].copy_from_slice(&UNIX_STREAM),
        _ => {}
    }
    arguments
}

/// Each role and its calls.
const LISTS: [(Role, &[libc::c_long]); 22] = [
    (Role::Vcpu, &VCPU),
    (Role::VcpuWithTimer, &VCPU_WITH_TIMER),
    (Role::VcpuWithHelpers, &VCPU_WITH_HELPERS),
    (Role::VcpuWithMemory, &VCPU_WITH_MEMORY),
    (Role::VcpuWithBoth, &VCPU_WITH_BOTH),
    (Role::Process, &PROCESS),
    (Role::Ticker, &TICKER),
    (Role::ConsoleWriter, &CONSOLE_WRITER),
    (Role::Control, &CONTROL),
    (Role::DiskRing, &DISK_RING),
    (Role::DiskPool, &DISK_POOL),
    (Role::ImageDiskRing, &IMAGE_DISK_RING),
    (Role::ImageDiskPool, &IMAGE_DISK_POOL),
    (Role::ImageEntropy, &IMAGE_ENTROPY),
    (Role::DiskWorker, &DISK_WORKER),
    (Role::Net, &NET),
    (Role::ImageNet, &IMAGE_NET),
    (Role::NetKernel, &NET_KERNEL),
    (Role::NetExternal, &NET_EXTERNAL),
    (Role::ImageNetExternal, &IMAGE_NET_EXTERNAL),
    (Role::Vsock, &VSOCK),
    (Role::VsockIn, &VSOCK_IN),
];

#[test]
fn filters_allow_exactly_their_list() {
    let edges = [u32::MAX, 1 << 30, 1 << 31, (1 << 30) + 16];
    for (role, list) in LISTS {
        for number in (0..2000).chain(edges) {
            let allowed = allows(role, number.into(), fitting(number));
            let listed = list.contains(&number.into());
            assert_eq!(allowed, listed, "{role:?}: system call {number}");
            let elsewhere = verdict(filter_of(role), 0x4000_0003, number, FITTING);
            assert_ne!(elsewhere, libc::SECCOMP_RET_ALLOW);
        }
    }
}

/// Selects the role of a process of [`returning_thread_ends_the_process_with_its_message`].
const RETURNING: &str = "TRAPLINE_TEST_RETURNING";

/// What a thread owns: its drop makes a call that no filter allows.
struct Owned;

impl Drop for Owned {
    fn drop(&mut self) {
        let _killed = std::fs::read_dir("/");
    }
}

#[test]
fn returning_thread_ends_the_process_with_its_message() {
    const NAME: &str = "sandbox::tests::returning_thread_ends_the_process_with_its_message";
    if let Ok(number) = std::env::var(RETURNING) {
        let (role, _) = LISTS[number.parse::<usize>().unwrap()];
        let owned = Owned;
        let work = move || {
            let _owned = &owned;
            Failure::ConsoleClosed
        };
        threads::spawn("returning", role, true, work).unwrap();
        std::thread::sleep(Duration::from_secs(60));
    }
    for (number, (role, _)) in LISTS.iter().enumerate() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
        let output = command.env(RETURNING, number.to_string()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(5),
            "{role:?}: {} {errors}",
            output.status
        );
        assert_eq!(errors, "trapline-vmm: guest console closed\n", "{role:?}");
    }
}

#[test]
fn only_the_kick_signal_is_allowed() {
    for signal in 0..65 {
        let arguments = [0, 0, signal, 0, 0, 0];
        let allowed = allows(Role::Control, libc::SYS_tgkill, arguments);
        assert_eq!(allowed, signal == libc::SIGRTMIN() as u32, "{signal}");
    }
}

#[test]
fn helpers_add_only_futex() {
    let added = VCPU_WITH_HELPERS.iter().filter(|call| !VCPU.contains(call));
    assert_eq!(added.collect::<Vec<_>>(), [&libc::SYS_futex]);
    assert_eq!(VCPU.len() + 1, VCPU_WITH_HELPERS.len());
    let both = VCPU_WITH_BOTH.iter();
    let added = both.filter(|call| !VCPU_WITH_MEMORY.contains(call));
    assert_eq!(added.collect::<Vec<_>>(), [&libc::SYS_futex]);
}

#[test]
fn memory_calls_are_restricted_by_argument() {
    let role = Role::VcpuWithMemory;
    let with = |argument: usize, value: libc::c_int| {
        let mut arguments = FITTING;
        arguments[argument] = value as u32;
        arguments
    };
    assert!(allows(role, libc::SYS_mmap, FITTING));
    for arguments in [
        with(2, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
        with(2, libc::PROT_READ | libc::PROT_EXEC),
        with(3, libc::MAP_SHARED),
        with(3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED),
    ] {
        assert!(!allows(role, libc::SYS_mmap, arguments), "{arguments:?}");
    }
    let advised = |advice| allows(role, libc::SYS_madvise, with(2, advice));
    for advice in 0..128 {
        let pages = [
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_POPULATE_WRITE,
        ];
        assert_eq!(advised(advice), pages.contains(&advice), "{advice}");
    }
}

#[test]
fn sockets_are_unix_streams() {
    let allowed = |role, socket: [u32; 3]| {
        let mut arguments = FITTING;
        arguments[..3].copy_from_slice(&socket);
        allows(role, libc::SYS_socket, arguments)
    };
    let [family, kind, _] = UNIX_STREAM;
    assert!(allowed(Role::Vsock, UNIX_STREAM));
    assert!(!allowed(Role::VsockIn, UNIX_STREAM));
    for (family, kind, protocol) in [
        (libc::AF_INET as u32, kind, 0),
        (libc::AF_NETLINK as u32, kind, 0),
        (family, libc::SOCK_DGRAM as u32, 0),
        (family, kind, 1),
    ] {
        assert!(!allowed(Role::Vsock, [family, kind, protocol]));
    }
}
