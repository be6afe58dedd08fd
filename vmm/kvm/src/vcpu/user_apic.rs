//! A vCPU whose local APIC is in the VMM: KVM has no interrupt controllers (Documentation/virt/kvm/api.rst, KVM_INTERRUPT).
//!
//! Accesses to the APIC's page and `hlt` exit. The VMM injects interrupts, and asks for an exit when the guest accepts
//! them. The timer is one of the host.

use super::{KvmVcpu, Run};
use crate::kick::KvmKick;
use kvm_bindings::{kvm_interrupt, kvm_run, KVM_EXIT_IRQ_WINDOW_OPEN, KVM_EXIT_SET_TPR};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use trapline_emulation::apic::{Apic, RequestBits, SharedRequests};
use trapline_interface::timer::{monotonic_ns, Expire, Timer};
use trapline_interface::{
    Activity, Entry, Error, Exit, IoAddr, IrqLine, Kick, Kicker, RegSet, Result, Stop, Vcpu,
    VcpuState, VcpuStats,
};

/// `_IOW(KVMIO, 0x86, struct kvm_interrupt)`.
const KVM_INTERRUPT: libc::c_ulong = 0x4004_ae86;

/// Page of the local APIC (Intel SDM volume 3, 11.4.1).
const PAGE: Range<u64> = 0xfee0_0000..0xfee0_1000;
/// MSR with its address: enabled, on the boot CPU.
const BASE: u64 = 0xfee0_0900;

/// Requests of interrupts and kicks from any thread.
#[derive(Default)]
pub(crate) struct Lines {
    requested: RequestBits,
    is_kicked: AtomicBool,
    /// There is a line, which may end a halt.
    is_connected: AtomicBool,
    vcpu: OnceLock<KvmKick>,
}

impl Lines {
    /// Returns the line of a vector.
    pub fn line(self: &Arc<Self>, vector: u8) -> IrqLine {
        let lines = Arc::clone(self);
        lines.is_connected.store(true, Ordering::SeqCst);
        IrqLine::new(move || {
            lines.requested.request(vector);
            lines.mark();
            lines.interrupt();
            Ok(())
        })
    }

    /// Makes the vCPU's current or next run end.
    fn mark(&self) {
        if let Some(vcpu) = self.vcpu.get() {
            vcpu.mark();
        }
    }

    fn interrupt(&self) {
        if let Some(vcpu) = self.vcpu.get() {
            vcpu.interrupt();
        }
    }
}

/// The timer interrupts the thread of the vCPU itself.
impl Expire for Lines {
    fn expired(&self) {
        self.mark();
    }
}

struct UserApicKick(Arc<Lines>);

impl Kick for UserApicKick {
    fn mark(&self) {
        self.0.is_kicked.store(true, Ordering::SeqCst);
        self.0.mark();
    }

    fn interrupt(&self) {
        self.0.interrupt();
    }
}

impl AsRef<RequestBits> for Lines {
    fn as_ref(&self) -> &RequestBits {
        &self.requested
    }
}

/// A vCPU of a [`crate::KvmUserApicVm`]. The thread that creates it runs it.
pub struct UserApicVcpu {
    vcpu: KvmVcpu,
    /// `None` in a VM without interrupts.
    local: Option<Local>,
}

/// The APIC, and what it needs.
struct Local {
    lines: Arc<Lines>,
    apic: Apic<SharedRequests<Arc<Lines>>>,
    timer: Timer,
    is_halted: bool,
    /// An interrupt may be pending.
    has_work: bool,
}

impl UserApicVcpu {
    pub(crate) fn new(vcpu: KvmVcpu, lines: Option<&Arc<Lines>>) -> Result<Self> {
        let local = lines.map(|lines| Local::new(&vcpu, lines)).transpose()?;
        Ok(Self { vcpu, local })
    }
}

impl Local {
    fn new(vcpu: &KvmVcpu, lines: &Arc<Lines>) -> Result<Self> {
        let failed = Error::refused("set the address of the interrupt controller");
        let placed = vcpu.fd.get_sregs().and_then(|mut sregs| {
            sregs.apic_base = BASE;
            vcpu.fd.set_sregs(&sregs)
        });
        placed.map_err(failed)?;
        let _only = lines.vcpu.set(vcpu.kick());
        let timer = Timer::new(libc::SIGRTMIN() + 1, lines);
        Ok(Self {
            lines: Arc::clone(lines),
            apic: Apic::new(SharedRequests(Arc::clone(lines))),
            timer: timer.map_err(Error::refused("create a timer"))?,
            is_halted: false,
            has_work: false,
        })
    }

    /// Waits while the guest halts, and injects the pending interrupt of the highest priority or asks for an exit at which
    /// that is possible. Returns an exit for a kick, or if nothing can end the halt.
    fn deliver(&mut self, vcpu: &mut KvmVcpu) -> Result<Option<Exit>> {
        let vector = loop {
            self.apic.expire(monotonic_ns());
            let (vector, deadline) = (self.apic.pending(), self.apic.deadline());
            self.timer.set(deadline);
            if vector.is_some() || !self.is_halted {
                break vector;
            }
            if deadline.is_none() && !self.lines.is_connected.load(Ordering::SeqCst) {
                return Ok(Some(Exit::Halted));
            }
            vcpu.wait_for_kick();
            if self.lines.is_kicked.swap(false, Ordering::SeqCst) {
                return Ok(Some(Exit::Kicked));
            }
        };
        let is_ready = vcpu.page_mut().ready_for_interrupt_injection != 0;
        if let Some(vector) = vector.filter(|_| is_ready) {
            self.apic.accept(vector);
            self.is_halted = false;
            vcpu.inject(vector)?;
        }
        // The next one, too, waits for an exit at which the guest accepts it.
        vcpu.page_mut().request_interrupt_window = self.apic.pending().is_some().into();
        self.has_work = false;
        Ok(None)
    }

    /// Handles an exit of the APIC or its interrupts: the next entry, or the exit for the caller.
    fn handle(&mut self, exit: Exit) -> std::result::Result<Entry, Exit> {
        match exit {
            Exit::Read {
                at: IoAddr::Mmio(at),
                ..
            } if PAGE.contains(&at) => {
                let value = self.apic.read(at - PAGE.start, monotonic_ns());
                return Ok(Entry::Answer(value.into()));
            }
            Exit::Write {
                at: IoAddr::Mmio(at),
                data,
                ..
            } if PAGE.contains(&at) => {
                self.apic
                    .write(at - PAGE.start, data as u32, monotonic_ns());
            }
            Exit::Halted => self.is_halted = true,
            Exit::Kicked if self.lines.is_kicked.swap(false, Ordering::SeqCst) => {
                self.has_work = true;
                return Err(Exit::Kicked);
            }
            Exit::Kicked
            | Exit::Stopped(Stop::Unknown(KVM_EXIT_IRQ_WINDOW_OPEN | KVM_EXIT_SET_TPR)) => {}
            other => return Err(other),
        }
        self.has_work = true;
        Ok(Entry::Resume)
    }
}

impl Vcpu for UserApicVcpu {
    fn run(&mut self, mut entry: Entry) -> Run {
        let Self { vcpu, local } = self;
        let Some(local) = local else {
            return vcpu.run(entry);
        };
        loop {
            if local.has_work {
                if let Some(exit) = local.deliver(vcpu)? {
                    return Ok(exit);
                }
            }
            let exit = vcpu.run(entry)?;
            match local.handle(exit) {
                Ok(next) => entry = next,
                Err(exit) => return Ok(exit),
            }
        }
    }

    fn state(&mut self, which: RegSet) -> Result<VcpuState> {
        let mut state = self.vcpu.state(which)?;
        if let (Some(activity), Some(local)) = (&mut state.activity, &self.local) {
            *activity = if local.is_halted {
                Activity::Halted
            } else {
                Activity::Running
            };
        }
        Ok(state)
    }

    fn set_state(&mut self, changed: &VcpuState) -> Result<()> {
        let mut changed = *changed;
        if let Some(local) = &mut self.local {
            if let Some(activity) = changed.activity.take() {
                local.is_halted = activity == Activity::Halted;
                local.has_work = true;
            }
        }
        self.vcpu.set_state(&changed)
    }

    fn kicker(&self) -> Kicker {
        match &self.local {
            Some(local) => Kicker::new(UserApicKick(Arc::clone(&local.lines))),
            None => self.vcpu.kicker(),
        }
    }

    fn stats(&mut self) -> VcpuStats {
        self.vcpu.stats()
    }

    fn tsc_offset(&self) -> Option<i64> {
        self.vcpu.tsc_offset()
    }
}

impl KvmVcpu {
    fn page_mut(&mut self) -> &mut kvm_run {
        // SAFETY: the page is mapped as long as the vCPU lives, and the kernel writes to it only while the vCPU runs. Other
        // threads write one field, which is accessed by pointers only.
        unsafe { self.page.as_mut() }
    }

    fn inject(&self, vector: u8) -> Result<()> {
        let interrupt = kvm_interrupt { irq: vector.into() };
        // SAFETY: the request reads the structure, which lives during the call.
        let status = unsafe { libc::ioctl(self.raw, KVM_INTERRUPT as _, &raw const interrupt) };
        match status {
            0 => Ok(()),
            _ => Err(Error::refused("inject an interrupt")(
                std::io::Error::last_os_error(),
            )),
        }
    }

    /// Waits until a kick has set `immediate_exit`, and clears it. Its first four bytes have this flag and that of
    /// [`UserApicVcpu::deliver`], which does not change meanwhile.
    fn wait_for_kick(&self) {
        let word: NonNull<AtomicU32> = self.page.cast();
        // SAFETY: the page is mapped and aligned; other threads write a byte of this word, atomically.
        let (word, flag) = unsafe { (word.as_ref(), self.flag().as_ref()) };
        while flag.swap(0, Ordering::SeqCst) == 0 {
            let seen = word.load(Ordering::SeqCst) & !0xff00;
            let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: the word is mapped. The signal of a kick ends the wait.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wait, seen, forever) };
        }
    }
}
