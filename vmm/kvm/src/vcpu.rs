//! A KVM vCPU: the way into the guest and back.
//!
//! After KVM_RUN the kernel has left what happened in a page that it shares with
//! us (`struct kvm_run`, Documentation/virt/kvm/api.rst section 5). The common
//! exits, a single port or memory access, are read straight from there; everything
//! else is in [`rare`].

mod rare;

use self::rare::Pending;
use crate::kick::KvmKick;
use crate::registers::{from_regs, from_sregs, put_system, to_regs};
use crate::stats::ExitCount;
use crate::tsc;
use crate::vm::Shared;
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
use std::sync::Arc;
use trapline_interface::{
    Activity, BootState, Entry, Error, Exit, IoAddr, Kicker, RegSet, Result, System, Tally, Vcpu,
    VcpuState,
};

/// `_IO(KVMIO, 0x80)`.
const KVM_RUN: usize = 0xae80;

/// A vCPU of a [`crate::KvmVm`].
pub struct KvmVcpu {
    // In this order: the vCPU goes before its machine's memory.
    fd: Arc<VcpuFd>,
    _machine: Arc<Shared>,
    page: NonNull<kvm_run>,
    raw: RawFd,
    pending: Pending,
    /// Where the kernel looks for the answer to the last `Read`.
    answer: NonNull<u8>,
    /// What a cold function found, and why the kernel refuses to go on.
    late: Exit,
    refusal: Option<Box<Error>>,
    bundled: u64,
    exits: Option<ExitCount>,
    tsc_offset: Option<i64>,
}

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
            late: Exit::Started,
            refusal: None,
            bundled: 0,
            exits: None,
            tsc_offset,
        })
    }

    /// Enters the guest `times` times and does not look why it came back: what
    /// any VMM must pay. A benchmark's floor, of no other use.
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

    /// Enters the guest and reads what happened.
    #[inline(always)]
    fn enter_and_read(&mut self) -> Run {
        let status = enter(self.raw);
        if status < 0 {
            self.interrupted(-status as i32);
            return self.late();
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
                    return self.late();
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
                self.late()
            }
        }
    }

    /// What one of the cold functions has left. They hand nothing back directly:
    /// a result that they write would have to be in memory for all others, too.
    #[inline(always)]
    fn late(&mut self) -> Run {
        match self.refusal.take() {
            None => Ok(self.late),
            Some(refusal) => Err(refusal),
        }
    }

    /// `offset` bytes into the pages that the kernel shares.
    #[inline(always)]
    fn shared(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: the kernel's own offsets lie within the pages that it shares,
        // and all of them are mapped in one piece.
        unsafe { self.page.cast::<u8>().add(offset) }
    }
}

/// The `size` bytes at `data`, zero-extended; 1, 2, 4 or else 8. Branches, not a
/// mask: who then asks for the size again has had the answer.
///
/// # Safety
/// As many bytes must be there.
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

/// Where the kernel and we exchange the data of a memory access.
#[inline(always)]
fn mmio_data(page: NonNull<kvm_run>) -> NonNull<u8> {
    // SAFETY: the offset is that of a field, and the structure is mapped.
    unsafe {
        page.cast::<u8>()
            .add(offset_of!(kvm_run, __bindgen_anon_1.mmio.data))
    }
}

/// KVM_RUN, as the bare system call: nothing else belongs on the exit path, not
/// even the C library's errno. Negative results are negated error codes.
#[inline(always)]
fn enter(vcpu: RawFd) -> isize {
    let status;
    // SAFETY: the request takes no pointer. What the guest does meanwhile it does to
    // its own memory and to the page that the kernel shares, which nobody else
    // holds a reference into; the assembly counts as touching all memory.
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
            return self.late();
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
        // SAFETY: a pointer to a field of the page, which is mapped; nothing is
        // read or written here.
        let flag = unsafe { &raw mut (*self.page.as_ptr()).immediate_exit };
        // SAFETY: a field's address within a mapping is not null.
        let flag = unsafe { NonNull::new_unchecked(flag) };
        Kicker::new(KvmKick::new(Arc::clone(&self.fd), flag))
    }

    fn tally(&mut self) -> Tally {
        if self.exits.is_none() {
            self.exits = ExitCount::open(self.raw);
        }
        Tally {
            kernel: self.exits.as_ref().and_then(ExitCount::read),
            bundled: self.bundled,
        }
    }

    fn tsc_offset(&self) -> Option<i64> {
        self.tsc_offset
    }
}
