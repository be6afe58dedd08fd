//! The kernel as the [`System`] that the workloads run on.

use crate::cpu::{in32, in8, mmio_read, mmio_write, out8};
use crate::hypercall::Gate;
use crate::interrupts::{self, can_halt, Apic, Timer};
use crate::populate::Window;
use crate::threads::{self, Peer};
use crate::xen::{self, Events, Xen};
use crate::{console, memory, ticks};
use core::cell::OnceCell;
use core::mem;
use trapline_abi::block::{Request, Transfer};
use trapline_abi::job::Wait;
use trapline_abi::platform::{
    EXITS_HIGH, EXITS_LOW, NO_DEVICE, SCRATCH, VIRTIO_DEVICE_FEATURES, VIRTIO_DEVICE_FEATURES_SEL,
    VIRTIO_MAGIC, VIRTIO_MMIO,
};
use trapline_abi::populate::Wish;
use trapline_abi::{Job, Op, Record};
use trapline_workloads::irq::{Source, Taken, Ticking};
use trapline_workloads::{Block, Machine, NoProcesses, Reason, System, Wake};

/// Both the system and its machine: in a unikernel there is no wall between
/// them.
pub struct Kernel {
    /// The machine offers Trapline's own ports.
    ports: bool,
    /// PIC and PIT raise no interrupts.
    legacy_stopped: bool,
    peer: Option<Peer>,
    apic: OnceCell<Result<Apic, Reason>>,
    timer: OnceCell<Result<Timer, Reason>>,
    gate: OnceCell<Result<Gate, Reason>>,
    /// Whose domain this is, as the command line says.
    xen: Result<Xen, Reason>,
    events: OnceCell<Result<Events, Reason>>,
    window: OnceCell<Result<Window, Reason>>,
}

impl Kernel {
    /// The kernel, for one job. What a job does not ask for is not set up.
    pub fn new(job: &Job) -> Self {
        threads::begin();
        Self {
            ports: job.ports,
            legacy_stopped: false,
            peer: None,
            apic: OnceCell::new(),
            timer: OnceCell::new(),
            gate: OnceCell::new(),
            xen: if job.in_xen() {
                Ok(Xen::here())
            } else {
                Err("this is no domain of Xen")
            },
            events: OnceCell::new(),
            window: OnceCell::new(),
        }
    }

    #[inline(always)]
    fn apic(&self) -> Result<&Apic, Reason> {
        borrow(self.apic.get_or_init(Apic::open))
    }

    fn timer(&self) -> Result<&Timer, Reason> {
        let apic = self.apic()?;
        borrow(self.timer.get_or_init(|| Timer::learn(apic)))
    }

    #[inline(always)]
    fn gate(&self) -> Result<Gate, Reason> {
        *self.gate.get_or_init(Gate::find)
    }

    /// The channel of events, with interrupts open, which the APIC's do.
    #[inline(always)]
    fn channel(&self) -> Result<&Events, Reason> {
        borrow(self.events.get_or_init(|| self.open_channel()))
    }

    #[inline(always)]
    fn window(&self) -> Result<&Window, Reason> {
        borrow(self.window.get_or_init(|| Window::open(self.ports)))
    }

    fn open_channel(&self) -> Result<Events, Reason> {
        let xen = self.xen?;
        self.apic()?;
        Events::open(xen)
    }
}

#[inline(always)]
fn borrow<T>(kept: &Result<T, Reason>) -> Result<&T, Reason> {
    kept.as_ref().map_err(|reason| *reason)
}

impl System for Kernel {
    type Machine = Kernel;
    type Processes = NoProcesses;

    fn say(&mut self, record: &Record<'_>) {
        console::say(record);
    }

    fn wait_for_go(&mut self) {
        console::wait_for_byte();
    }

    fn quiesce(&mut self) {
        if !mem::replace(&mut self.legacy_stopped, true) {
            interrupts::mask_pic();
            // trapline-vmm has none.
            if !self.ports {
                interrupts::stop_pit();
            }
        }
        self.timer.take();
        if let Some(Ok(apic)) = self.apic.take() {
            apic.close();
        }
    }

    fn exits(&mut self) -> Option<u64> {
        self.ports.then(|| {
            let low = in32(EXITS_LOW);
            u64::from(in32(EXITS_HIGH)) << 32 | u64::from(low)
        })
    }

    #[inline(always)]
    fn getpid(&mut self) -> u32 {
        threads::process()
    }

    fn start_peer(&mut self) -> Result<(), Reason> {
        self.peer = Some(Peer::start()?);
        Ok(())
    }

    #[inline(always)]
    fn yield_now(&mut self) {
        threads::yield_now();
    }

    fn peer_turns(&mut self) -> u64 {
        self.peer.as_ref().map_or(0, Peer::turns)
    }

    fn stop_peer(&mut self) {
        if let Some(peer) = self.peer.take() {
            peer.stop();
        }
    }

    #[inline(always)]
    fn allocate(&mut self, bytes: usize) -> Option<Block> {
        memory::allocate(bytes)
    }

    unsafe fn release(&mut self, block: Block) {
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { memory::release(block) }
    }

    fn sleep(&mut self, ticks: u64) -> Result<Wake, Reason> {
        can_halt(self.ports)?;
        let apic = self.apic()?;
        Ok(self.timer()?.sleep(apic, ticks))
    }

    fn can_tick(&mut self, source: Source, between: Wait) -> Result<(), Reason> {
        match source {
            Source::Own => {
                if between == Wait::Halt {
                    can_halt(self.ports)?;
                }
                self.timer().map(drop)
            }
            Source::Host => self.apic().and_then(|_| ticks::find_ticker(self.ports)),
        }
    }

    fn tick(&mut self, ticking: &Ticking, taken: &mut Taken<'_>) -> Result<(), Reason> {
        let apic = self.apic()?;
        match ticking.source {
            Source::Own => ticks::Own::open(apic, self.timer()?).tick(ticking, taken),
            Source::Host => ticks::tick_by_host(apic, ticking, taken),
        }
        Ok(())
    }

    #[inline(always)]
    fn attach(&mut self, wish: Wish) {
        if let Ok(window) = self.window() {
            window.ask(wish);
        }
    }

    fn attached(&mut self) -> Result<Block, Reason> {
        self.window()?.found()
    }

    unsafe fn detach(&mut self) -> Result<(), Reason> {
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { self.window()?.give_back() }
    }

    #[inline(always)]
    fn machine(&mut self) -> Result<&mut Kernel, Reason> {
        Ok(self)
    }

    fn open_disk(&mut self, _: &Job) -> Result<(), Reason> {
        Err(NO_DISK)
    }

    fn transfer(&mut self, _: &Transfer, _: &Job, _: &mut [Request]) -> Result<usize, Reason> {
        Err(NO_DISK)
    }

    fn processes(&mut self) -> Result<&mut NoProcesses, Reason> {
        Err("this needs an operating system: the image is one program without processes")
    }
}

impl Machine for Kernel {
    fn supports(&self, op: Op) -> Result<(), Reason> {
        match op {
            Op::PortOut | Op::PortIn => scratch_register(),
            Op::MmioRead => transport(),
            Op::MmioWrite => transport().and_then(|()| device()),
            Op::Hypercall => self.gate().map(drop),
            Op::SelfIpi => self.apic().map(drop),
            Op::PortEmulated => scratch_register().or_else(nobody),
            Op::XenHypercall => self.xen.map(drop),
            Op::EventChannel => self.channel().map(drop),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn port_out(&mut self, port: u16, value: u8) {
        out8(port, value);
    }

    #[inline(always)]
    fn port_in(&mut self, port: u16) -> u8 {
        in8(port)
    }

    #[inline(always)]
    fn mmio_read(&mut self, address: u64) -> u32 {
        // SAFETY: the workloads name only the transport that `supports` has
        // found, and its page is not given out as memory.
        unsafe { mmio_read(address) }
    }

    #[inline(always)]
    fn mmio_write(&mut self, address: u64, value: u32) {
        // SAFETY: as above.
        unsafe { mmio_write(address, value) }
    }

    #[inline(always)]
    fn hypercall(&mut self) -> i64 {
        self.gate().map_or(0, Gate::call)
    }

    #[inline(always)]
    fn self_ipi(&mut self) {
        if let Ok(apic) = self.apic() {
            apic.interrupt_self();
        }
    }

    fn self_ipis(&mut self) -> u64 {
        interrupts::ipis()
    }

    #[inline(always)]
    fn xen_version(&mut self) -> i64 {
        self.xen.map_or(0, Xen::version)
    }

    #[inline(always)]
    fn send_event(&mut self) {
        if let Ok(channel) = self.channel() {
            channel.send();
        }
    }

    fn events(&mut self) -> u64 {
        xen::taken()
    }
}

const NO_DISK: Reason = "the image has no driver for disks";

/// Whether the first serial port keeps what is written to its scratch register.
fn scratch_register() -> Result<(), Reason> {
    let keeps = |value| {
        out8(SCRATCH, value);
        in8(SCRATCH) == value
    };
    if keeps(0x55) && keeps(0xaa) {
        Ok(())
    } else {
        Err("the machine has no serial port with a scratch register at 0x3f8")
    }
}

/// Whether it reads at least what a port without a device does.
fn nobody(otherwise: Reason) -> Result<(), Reason> {
    match in8(SCRATCH) {
        NO_DEVICE => Ok(()),
        _ => Err(otherwise),
    }
}

fn transport() -> Result<(), Reason> {
    // SAFETY: the address is one of the platform's devices; boot.rs gives out
    // only what the memory map calls RAM.
    if unsafe { mmio_read(VIRTIO_MMIO) } == VIRTIO_MAGIC {
        Ok(())
    } else {
        Err("the machine has no virtio-mmio transport at 0xfeb00000")
    }
}

/// Whether the transport's device is a modern one: VIRTIO_F_VERSION_1 is bit 32.
fn device() -> Result<(), Reason> {
    // SAFETY: `transport` has found the registers.
    let features = unsafe {
        mmio_write(VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES_SEL, 1);
        mmio_read(VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES)
    };
    if features & 1 == 1 {
        Ok(())
    } else {
        Err("the first virtio-mmio transport has no modern device behind it")
    }
}
