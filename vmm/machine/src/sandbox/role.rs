//! Roles of threads.

/// Role of a thread, which selects its filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Only thread; runs the vCPU.
    Vcpu,
    /// Runs a vCPU, with helper threads.
    VcpuWithHelpers,
    /// Only thread; runs a vCPU with the local APIC in this VMM.
    VcpuWithTimer,
    /// Only thread; runs the vCPU and provides memory.
    VcpuWithMemory,
    /// Runs a vCPU and provides memory, with helper threads.
    VcpuWithBoth,
    /// Runs the vCPU of a guest that is a process.
    Process,
    /// The timer device.
    Ticker,
    /// Writer of queued console output.
    ConsoleWriter,
    /// Console, entropy and control socket.
    Control,
    /// A disk with io_uring.
    DiskRing,
    /// A disk whose workers make the system calls.
    DiskPool,
    /// The disk of an image, with io_uring.
    ImageDiskRing,
    /// The disk of an image, whose workers make the system calls.
    ImageDiskPool,
    /// The entropy device of an image.
    ImageEntropy,
    /// Worker of a disk.
    DiskWorker,
    /// A network card.
    Net,
    /// The network card of an image.
    ImageNet,
    /// A network card whose queues the kernel serves.
    NetKernel,
    /// A network card whose queues another process serves.
    NetExternal,
    /// The same of an image.
    ImageNetExternal,
    /// Vsock with connections in both directions.
    Vsock,
    /// Vsock with connections from the host only.
    VsockIn,
}
