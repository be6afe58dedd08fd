//! The system calls that each kind of thread may make, in ascending order, and of some
//! what they may be asked.

pub const VCPU: [libc::c_long; 10] = [
    libc::SYS_read,  // console input
    libc::SYS_write, // console, events, messages
    libc::SYS_poll,  // whether there is input, or room for output
    libc::SYS_brk,   // small allocations, for messages
    libc::SYS_rt_sigreturn,
    libc::SYS_ioctl,   // the vCPU and its machine
    libc::SYS_pread64, // the kernel's counts
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // CPU time
    libc::SYS_exit_group,
];

pub const VCPU_WITH_HELPERS: [libc::c_long; 11] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_brk,
    libc::SYS_rt_sigreturn,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_futex, // words with the others
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
];

pub const VCPU_WITH_MEMORY: [libc::c_long; 14] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_mmap, // regions
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_rt_sigreturn,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_sched_yield, // between two steps
    libc::SYS_madvise,     // pages, and populating them
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
];

pub const VCPU_WITH_BOTH: [libc::c_long; 15] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_rt_sigreturn,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_sched_yield,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
];

/// System calls of which not every form is allowed: their number, and pairs of an
/// argument, and the values that it may have.
pub type Limit = (libc::c_long, &'static [(u32, &'static [libc::c_int])]);

/// New memory is nobody else's, and none of it can be executed; new sockets are streams on this
/// host; the only signal is one that recalls a vCPU.
pub const LIMITS: [Limit; 5] = [
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
        libc::SYS_socket,
        &[
            (0, &[libc::AF_UNIX]),
            (
                1,
                &[libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC],
            ),
            (2, &[0]),
        ],
    ),
    (libc::SYS_fcntl, &[(1, &[libc::F_GETFD])]),
];

/// `SIGRTMIN` as the C library counts, which keeps the first two for itself.
const RECALL: libc::c_int = 34;

pub const TICKER: [libc::c_long; 7] = [
    libc::SYS_write, // messages
    libc::SYS_ioctl, // interrupts
    libc::SYS_futex, // orders
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // where it takes a system call
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
];

pub const SERIAL_LINE: [libc::c_long; 7] = [
    libc::SYS_write,
    libc::SYS_poll,  // whether there is room
    libc::SYS_futex, // bytes to send
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // where it takes a system call
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
];

pub const DISK_RING: [libc::c_long; 7] = [
    libc::SYS_write, // interrupts, messages
    libc::SYS_brk,   // small allocations
    libc::SYS_futex, // words with the vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // where it takes a system call
    libc::SYS_exit_group,
    libc::SYS_io_uring_enter, // what the ring is restricted to
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

pub const DISK_WORKER: [libc::c_long; 10] = [
    libc::SYS_write, // its disk's doorbell, messages
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
    libc::SYS_read,  // what is typed, doorbells, commands
    libc::SYS_write, // console, doorbells, interrupts, answers, messages
    libc::SYS_close, // who has gone
    libc::SYS_poll,
    libc::SYS_brk,          // small allocations
    libc::SYS_rt_sigaction, // the first time that a vCPU is recalled
    libc::SYS_getpid,
    libc::SYS_fcntl, // a debug build looks whether what it closes is open
    libc::SYS_futex, // words with the vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // threads' times
    libc::SYS_exit_group,
    libc::SYS_tgkill, // recalling vCPUs
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
    libc::SYS_futex,  // words with the vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // where it takes a system call
    libc::SYS_exit_group,
];

pub const VSOCK: [libc::c_long; 16] = [
    libc::SYS_read,  // doorbells
    libc::SYS_write, // interrupts, messages
    libc::SYS_close, // connections
    libc::SYS_poll,
    libc::SYS_brk,      // small allocations
    libc::SYS_socket,   // what the guest connects to
    libc::SYS_connect,  // the same
    libc::SYS_sendto,   // bytes
    libc::SYS_recvfrom, // bytes
    libc::SYS_shutdown, // half of a connection
    libc::SYS_fcntl,    // whether it is open, before each close in a build for tests
    libc::SYS_futex,    // words with the vCPUs
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // where it takes a system call
    libc::SYS_exit_group,
    libc::SYS_accept4, // what connects to the guest
];

pub const VSOCK_IN: [libc::c_long; 14] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_poll,
    libc::SYS_brk,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
    libc::SYS_accept4,
];
