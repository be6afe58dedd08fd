//! A KVM vCPU.
//!
//! After KVM_RUN the kernel describes the exit in the shared page `struct kvm_run`
//! (Documentation/virt/kvm/api.rst section 5). Single port and memory accesses are read from there; all other
//! exits are handled in [`rare`].

mod rare;
pub(crate) mod user_apic;

use self::rare::Pending;
use crate::kick::KvmKick;
use crate::memory::Shared;
use crate::registers::{from_regs, from_sregs, put_system, to_regs};
use crate::stats::ExitCount;
use crate::tsc;
use kvm_bindings::{
    kvm_mp_state, kvm_run, KVM_EXIT_IO, KVM_EXIT_IO_OUT, KVM_EXIT_MMIO, KVM_MP_STATE_HALTED,
    KVM_MP_STATE_RUNNABLE,
};
use kvm_ioctls::VcpuFd;
use std::arch::asm;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::Arc;
use trapline_interface::{
    Activity, BootState, Entry, Error, Exit, IoAddr, Kicker, RegSet, Result, System, Vcpu,
    VcpuState, VcpuStats,
};

/// `_IO(KVMIO, 0x80)`.
const KVM_RUN: usize = 0xae80;

/// A vCPU of a [`crate::KvmVm`].
pub struct KvmVcpu {
    // Declared in this order: the vCPU drops before the VM's memory.
    fd: Arc<VcpuFd>,
    _machine: Arc<Shared>,
    page: NonNull<kvm_run>,
    raw: RawFd,
    pending: Pending,
    /// Destination of the next answer, in the shared page.
    answer: NonNull<u8>,
    /// Results of the cold functions.
    rare_exit: Exit,
    refusal: Option<Box<Error>>,
    string_elements: u64,
    exits: Option<ExitCount>,
    tsc_offset: Option<i64>,
}

// SAFETY: the pointers lead into the vCPU's page, which it has mapped and which has no other user than kickers, whose
// flag is atomic. KVM lets another thread run the vCPU (Linux, Documentation/virt/kvm/api.rst, 1).
unsafe impl Send for KvmVcpu {}

type Run = std::result::Result<Exit, Box<Error>>;

impl KvmVcpu {
    pub(crate) fn new(
        mut fd: VcpuFd,
        machine: Arc<Shared>,
        boot: Option<&BootState>,
    ) -> Result<Self> {
        let page = NonNull::from(fd.get_kvm_run());
        let tsc_offset = tsc::align(fd.as_raw_fd());
        if let Some(boot) = boot {
            set_system(&fd, &boot.system)?;
            fd.set_regs(&to_regs(&boot.general))
                .map_err(Error::refused("set the virtual CPU's registers"))?;
        }
        Ok(Self {
            raw: fd.as_raw_fd(),
            fd: Arc::new(fd),
            _machine: machine,
            page,
            pending: boot.map_or(Pending::Nothing, |_| Pending::Start),
            // Where an answer to nothing does no harm.
            answer: mmio_data(page),
            rare_exit: Exit::Started,
            refusal: None,
            string_elements: 0,
            exits: None,
            tsc_offset,
        })
    }

    /// Returns the flag `immediate_exit`.
    fn flag(&self) -> NonNull<AtomicU8> {
        // SAFETY: a field of the page, which is mapped; its address is not null. Nothing is read or written here.
        unsafe { NonNull::new_unchecked(&raw mut (*self.page.as_ptr()).immediate_exit).cast() }
    }

    fn kick(&self) -> KvmKick {
        KvmKick::new(Arc::clone(&self.fd), self.flag())
    }

    /// Enters the guest `times` times and ignores the exits: the lower bound for any VMM, for benchmarks.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn run_blindly(&mut self, times: u64) -> io::Result<()> {
        self.pending = Pending::Nothing;
        for _ in 0..times {
            let status = enter(self.raw);
            if status < 0 {
                return Err(io::Error::from_raw_os_error(-status as i32));
            }
        }
        Ok(())
    }

    /// Enters the guest and decodes the exit.
    #[inline(always)]
    fn enter_and_read(&mut self) -> Run {
        let status = enter(self.raw);
        if status < 0 {
            self.interrupted(-status as i32);
            return self.rare_result();
        }
        // SAFETY: the page is mapped as long as `fd` lives, and the kernel writes
        // to it only while the vCPU runs, which takes `&mut self` as well.
        let run = unsafe { self.page.as_ref() };
        match run.exit_reason {
            KVM_EXIT_IO => {
                // SAFETY: this exit reason says that the union holds `io`.
                let io = unsafe { run.__bindgen_anon_1.io };
                if io.count != 1 {
                    self.begin_string();
                    return self.rare_result();
                }
                let at = IoAddr::Port(io.port);
                let data = self.shared(io.data_offset as usize);
                if u32::from(io.direction) == KVM_EXIT_IO_OUT {
                    // SAFETY: the kernel has put `size` bytes there, in the page for
                    // port accesses.
                    let data = unsafe { read_sized(data, io.size) };
                    return Ok(Exit::Write {
                        at,
                        size: io.size,
                        data,
                    });
                }
                self.answer = data;
                Ok(Exit::Read { at, size: io.size })
            }
            KVM_EXIT_MMIO => {
                // SAFETY: this exit reason says that the union holds `mmio`.
                let mmio = unsafe { &run.__bindgen_anon_1.mmio };
                let (at, size) = (IoAddr::Mmio(mmio.phys_addr), mmio.len as u8);
                if mmio.is_write != 0 {
                    // SAFETY: the kernel has put `size` bytes there, at most 8.
                    let data = unsafe { read_sized(mmio_data(self.page), size) };
                    return Ok(Exit::Write { at, size, data });
                }
                self.answer = mmio_data(self.page);
                Ok(Exit::Read { at, size })
            }
            reason => {
                self.rare(reason);
                self.rare_result()
            }
        }
    }

    /// Returns the result of a cold function. A direct result would be passed through memory on the fast path,
    /// too.
    #[inline(always)]
    fn rare_result(&mut self) -> Run {
        match self.refusal.take() {
            None => Ok(self.rare_exit),
            Some(refusal) => Err(refusal),
        }
    }

    /// Returns the address at `offset` in the shared pages.
    #[inline(always)]
    fn shared(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: the kernel's own offsets lie within the pages that it shares,
        // and all of them are mapped in one piece.
        unsafe { self.page.cast::<u8>().add(offset) }
    }
}

/// Reads `size` bytes (1, 2, 4 or else 8), zero-extended. Branches instead of a mask: the device's own test of
/// the size then folds into them.
///
/// # Safety
/// `size` bytes must be readable.
#[inline(always)]
unsafe fn read_sized(data: NonNull<u8>, size: u8) -> u64 {
    // SAFETY: the caller's promise; nothing is assumed of the alignment.
    unsafe {
        match size {
            1 => data.read().into(),
            2 => data.cast::<u16>().read_unaligned().into(),
            4 => data.cast::<u32>().read_unaligned().into(),
            _ => data.cast::<u64>().read_unaligned(),
        }
    }
}

/// Returns the address of `kvm_run.mmio.data`.
#[inline(always)]
fn mmio_data(page: NonNull<kvm_run>) -> NonNull<u8> {
    // SAFETY: the offset is that of a field, and the structure is mapped.
    unsafe {
        page.cast::<u8>()
            .add(offset_of!(kvm_run, __bindgen_anon_1.mmio.data))
    }
}

/// Calls KVM_RUN directly, without the C library's errno. Negative results are negated error codes.
#[inline(always)]
fn enter(vcpu: RawFd) -> isize {
    let status;
    // SAFETY: the request takes no pointer. The guest writes to its own memory and to the shared page, to which
    // no reference exists; the assembly clobbers memory.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_ioctl as isize => status,
            in("rdi") vcpu as isize,
            in("rsi") KVM_RUN,
            in("rdx") 0usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    status
}

fn set_system(fd: &VcpuFd, system: &System) -> Result<()> {
    let mut sregs = fd
        .get_sregs()
        .map_err(Error::refused("read the virtual CPU's segments"))?;
    put_system(system, &mut sregs);
    fd.set_sregs(&sregs)
        .map_err(Error::refused("set the virtual CPU's segments"))
}

impl Vcpu for KvmVcpu {
    #[inline(always)]
    fn run(&mut self, entry: Entry) -> Run {
        if let Entry::Answer(value) = entry {
            // SAFETY: this points at the data of the last read, within the shared
            // pages, and eight bytes there are ours to write: the kernel takes as
            // many as the access has, later elements of a string are still to be
            // answered, and behind the page for port accesses comes one more.
            unsafe { self.answer.cast::<u64>().write_unaligned(value) };
        }
        if !matches!(self.pending, Pending::Nothing) && self.run_pending() {
            return self.rare_result();
        }
        self.enter_and_read()
    }

    fn state(&mut self, which: RegSet) -> Result<VcpuState> {
        let mut state = VcpuState::default();
        if which.contains(RegSet::GENERAL) {
            let regs = self.fd.get_regs();
            let regs = regs.map_err(Error::refused("read the virtual CPU's registers"))?;
            state.general = Some(from_regs(&regs));
        }
        if which.contains(RegSet::SYSTEM) {
            let sregs = self.fd.get_sregs();
            let sregs = sregs.map_err(Error::refused("read the virtual CPU's segments"))?;
            state.system = Some(from_sregs(&sregs));
        }
        if which.contains(RegSet::ACTIVITY) {
            let activity = self.fd.get_mp_state();
            let activity = activity.map_err(Error::refused("ask whether the CPU halts"))?;
            state.activity = Some(match activity.mp_state {
                KVM_MP_STATE_HALTED => Activity::Halted,
                _ => Activity::Running,
            });
        }
        Ok(state)
    }

    fn set_state(&mut self, changed: &VcpuState) -> Result<()> {
        if let Some(activity) = changed.activity {
            let mp_state = match activity {
                Activity::Running => KVM_MP_STATE_RUNNABLE,
                Activity::Halted => KVM_MP_STATE_HALTED,
            };
            self.fd
                .set_mp_state(kvm_mp_state { mp_state })
                .map_err(Error::refused("halt the virtual CPU"))?;
        }
        if let Some(system) = &changed.system {
            set_system(&self.fd, system)?;
        }
        if let Some(general) = &changed.general {
            self.fd
                .set_regs(&to_regs(general))
                .map_err(Error::refused("set the virtual CPU's registers"))?;
        }
        Ok(())
    }

    fn kicker(&self) -> Kicker {
        Kicker::new(self.kick())
    }

    fn stats(&mut self) -> VcpuStats {
        if self.exits.is_none() {
            self.exits = ExitCount::open(self.raw);
        }
        VcpuStats {
            kernel_exits: self.exits.as_ref().and_then(ExitCount::read),
            string_elements: self.string_elements,
        }
    }

    fn tsc_offset(&self) -> Option<i64> {
        self.tsc_offset
    }
}
