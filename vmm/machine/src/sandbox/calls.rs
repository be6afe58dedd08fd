//! System calls allowed for each role, in ascending order, and argument restrictions.

pub const VCPU: [libc::c_long; 10] = [
    libc::SYS_read,  // console input
    libc::SYS_write, // console, events, messages
    libc::SYS_poll,  // input, output
    libc::SYS_brk,   // small allocations, for messages
    libc::SYS_rt_sigreturn,
    libc::SYS_ioctl,   // the vCPU and its VM
    libc::SYS_pread64, // exit counts
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // CPU time
    libc::SYS_exit_group,
];

/// Calls for locks shared with other threads.
const LOCKS: [libc::c_long; 1] = [libc::SYS_futex];

/// Calls for memory hotplug.
const MEMORY: [libc::c_long; 4] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_sched_yield, // between population steps
    libc::SYS_madvise,     // page size, population
];

/// Calls of a local APIC in this VMM: halts, and the guest's timer.
const TIMER: [libc::c_long; 2] = [libc::SYS_futex, libc::SYS_timer_settime];

pub const VCPU_WITH_TIMER: [libc::c_long; 12] = union(&VCPU, &TIMER);
pub const VCPU_WITH_HELPERS: [libc::c_long; 11] = union(&VCPU, &LOCKS);
pub const VCPU_WITH_MEMORY: [libc::c_long; 14] = union(&VCPU, &MEMORY);
pub const VCPU_WITH_BOTH: [libc::c_long; 15] = union(&VCPU_WITH_MEMORY, &LOCKS);

/// Calls that control the process of a guest.
const TRACER: [libc::c_long; 6] = [
    libc::SYS_pwrite64, // copies of its registers
    libc::SYS_wait4,
    libc::SYS_ptrace,        // of a child: no request attaches to other processes
    libc::SYS_futex,         // halts, commands of the timer device
    libc::SYS_timer_settime, // the guest's timer
    libc::SYS_tgkill,        // interrupts
];

pub const PROCESS: [libc::c_long; 16] = union(&VCPU, &TRACER);

/// Returns all elements of two ascending lists without common elements, in ascending order.
const fn union<const N: usize>(a: &[libc::c_long], b: &[libc::c_long]) -> [libc::c_long; N] {
    assert!(N == a.len() + b.len());
    let mut all = [0; N];
    let (mut i, mut j) = (0, 0);
    while i + j < N {
        if j == b.len() || (i < a.len() && a[i] < b[j]) {
            all[i + j] = a[i];
            i += 1;
        } else {
            all[i + j] = b[j];
            j += 1;
        }
    }
    all
}

/// A restricted call: its number, and pairs of an argument and its allowed values.
pub type Limit = (libc::c_long, &'static [(u32, &'static [libc::c_int])]);

/// New memory is private and not executable; new sockets are Unix streams; the only signal is the kick signal; traced
/// processes are children.
pub const LIMITS: [Limit; 6] = [
    (
        libc::SYS_mmap,
        &[
            (2, &[libc::PROT_READ | libc::PROT_WRITE]),
            (
                3,
                &[libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE],
            ),
        ],
    ),
    (
        libc::SYS_madvise,
        &[(
            2,
            &[
                libc::MADV_HUGEPAGE,
                libc::MADV_NOHUGEPAGE,
                libc::MADV_POPULATE_WRITE,
            ],
        )],
    ),
    (libc::SYS_tgkill, &[(2, &[RECALL])]),
    (
        libc::SYS_ptrace,
        &[(
            0,
            &[
                libc::PTRACE_CONT as libc::c_int,
                libc::PTRACE_GETREGS as libc::c_int,
                libc::PTRACE_SETREGS as libc::c_int,
                libc::PTRACE_SYSEMU as libc::c_int,
                libc::PTRACE_SYSEMU_SINGLESTEP as libc::c_int,
                libc::PTRACE_GETSIGINFO as libc::c_int,
            ],
        )],
    ),
    (
        libc::SYS_socket,
        &[
            (0, &[libc::AF_UNIX]),
            (
                1,
                &[
                    libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                    libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
                ],
            ),
            (2, &[0]),
        ],
    ),
    (libc::SYS_fcntl, &[(1, &[libc::F_GETFD])]),
];

/// `SIGRTMIN` of the C library, which reserves the first two real-time signals.
const RECALL: libc::c_int = 34;

pub const TICKER: [libc::c_long; 9] = [
    libc::SYS_write, // messages
    libc::SYS_poll,  // messages
    libc::SYS_ioctl, // interrupts of KVM
    libc::SYS_futex, // commands
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // without vDSO
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
    libc::SYS_tgkill, // interrupts of a process
];

pub const CONSOLE_WRITER: [libc::c_long; 7] = [
    libc::SYS_write,
    libc::SYS_poll,  // output
    libc::SYS_futex, // bytes to write
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // without vDSO
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
];

pub const DISK_RING: [libc::c_long; 8] = [
    libc::SYS_write, // interrupts, messages
    libc::SYS_poll,  // messages
    libc::SYS_brk,   // small allocations
    libc::SYS_futex, // locks shared with vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // without vDSO
    libc::SYS_exit_group,
    libc::SYS_io_uring_enter, // restricted operations
];

pub const DISK_POOL: [libc::c_long; 8] = [
    libc::SYS_read, // doorbells
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
];

/// Calls for the interrupt of an image's device, which is no eventfd: that of KVM, and of a process.
const LOCAL_INTERRUPT: [libc::c_long; 2] = [libc::SYS_ioctl, libc::SYS_tgkill];

pub const IMAGE_DISK_RING: [libc::c_long; 10] = union(&DISK_RING, &LOCAL_INTERRUPT);
pub const IMAGE_DISK_POOL: [libc::c_long; 10] = union(&DISK_POOL, &LOCAL_INTERRUPT);

/// Calls of the entropy device.
const RANDOM: [libc::c_long; 1] = [libc::SYS_getrandom];

pub const IMAGE_ENTROPY: [libc::c_long; 11] = union(&IMAGE_DISK_POOL, &RANDOM);

pub const DISK_WORKER: [libc::c_long; 11] = [
    libc::SYS_write, // the disk's doorbell, messages
    libc::SYS_poll,  // messages
    libc::SYS_brk,
    libc::SYS_fdatasync,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
    libc::SYS_fallocate,
    libc::SYS_preadv,
    libc::SYS_pwritev2,
];

pub const CONTROL: [libc::c_long; 15] = [
    libc::SYS_read,  // input, doorbells, commands
    libc::SYS_write, // console, doorbells, interrupts, answers, messages
    libc::SYS_close, // closed clients
    libc::SYS_poll,
    libc::SYS_brk,          // small allocations
    libc::SYS_rt_sigaction, // at the first kick
    libc::SYS_getpid,
    libc::SYS_fcntl, // debug builds check a descriptor before closing it
    libc::SYS_futex, // locks shared with vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // threads' times
    libc::SYS_exit_group,
    libc::SYS_tgkill, // kicks
    libc::SYS_accept4,
    libc::SYS_getrandom,
];

pub const NET: [libc::c_long; 10] = [
    libc::SYS_read,  // doorbells
    libc::SYS_write, // interrupts, messages
    libc::SYS_poll,
    libc::SYS_brk,    // small allocations
    libc::SYS_readv,  // frames
    libc::SYS_writev, // frames
    libc::SYS_futex,  // locks shared with vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // without vDSO
    libc::SYS_exit_group,
];

pub const IMAGE_NET: [libc::c_long; 12] = union(&NET, &LOCAL_INTERRUPT);

pub const NET_KERNEL: [libc::c_long; 10] = [
    libc::SYS_read,  // doorbells, requests for interrupts
    libc::SYS_write, // interrupts, notifications, messages
    libc::SYS_poll,
    libc::SYS_brk,   // small allocations
    libc::SYS_ioctl, // queues of the kernel, offloads of the tap, interrupts of KVM
    libc::SYS_futex, // locks shared with vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // without vDSO
    libc::SYS_exit_group,
    libc::SYS_tgkill, // interrupts of a process
];

pub const NET_EXTERNAL: [libc::c_long; 15] = [
    libc::SYS_read,  // doorbells, requests for interrupts
    libc::SYS_write, // interrupts, notifications, messages
    libc::SYS_close, // lost connections
    libc::SYS_poll,
    libc::SYS_brk,     // small allocations
    libc::SYS_socket,  // connections after a loss
    libc::SYS_connect, // connections after a loss
    libc::SYS_sendmsg, // requests
    libc::SYS_recvmsg, // answers
    libc::SYS_setsockopt,
    libc::SYS_fcntl, // debug builds check a descriptor before closing it
    libc::SYS_futex, // locks shared with vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // without vDSO
    libc::SYS_exit_group,
];

pub const IMAGE_NET_EXTERNAL: [libc::c_long; 17] = union(&NET_EXTERNAL, &LOCAL_INTERRUPT);

pub const VSOCK_IN: [libc::c_long; 14] = [
    libc::SYS_read,  // doorbells
    libc::SYS_write, // interrupts, messages
    libc::SYS_close, // connections
    libc::SYS_poll,
    libc::SYS_brk,      // small allocations
    libc::SYS_sendto,   // data
    libc::SYS_recvfrom, // data
    libc::SYS_shutdown, // half-closed connections
    libc::SYS_fcntl,    // debug builds check a descriptor before closing it
    libc::SYS_futex,    // locks shared with vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // without vDSO
    libc::SYS_exit_group,
    libc::SYS_accept4, // connections from the host
];

/// Calls for connections from the guest.
const CONNECT: [libc::c_long; 2] = [libc::SYS_socket, libc::SYS_connect];

pub const VSOCK: [libc::c_long; 16] = union(&VSOCK_IN, &CONNECT);
