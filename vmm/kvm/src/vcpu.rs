//! A KVM vCPU: the way into the guest and back.
//!
//! After KVM_RUN the kernel has left what happened in a page that it shares with
//! us (`struct kvm_run`, Documentation/virt/kvm/api.rst section 5). The common
//! exits, a single port or memory access, are read straight from there; everything
//! else is cold.

use crate::kick::KvmKick;
use crate::registers::{from_regs, from_sregs, put_system, to_regs};
use crate::stats::ExitCount;
use crate::tsc;
use crate::vm::Shared;
use kvm_bindings::{
    kvm_mp_state, kvm_run, KVM_EXIT_FAIL_ENTRY, KVM_EXIT_HLT, KVM_EXIT_HYPERCALL,
    KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_IO, KVM_EXIT_IO_OUT, KVM_EXIT_MMIO, KVM_EXIT_SHUTDOWN,
    KVM_EXIT_SYSTEM_EVENT, KVM_MP_STATE_HALTED, KVM_MP_STATE_RUNNABLE,
};
use kvm_ioctls::VcpuFd;
use std::arch::asm;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use trapline_interface::{
    Activity, BootState, Entry, Error, Exit, IoAddr, Kicker, RegSet, Result, Stop, System, Tally,
    Vcpu, VcpuState,
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
    bundled: u64,
    exits: Option<ExitCount>,
    tsc_offset: Option<i64>,
}

/// What has to come before the guest is entered again.
#[derive(Clone, Copy)]
enum Pending {
    Nothing,
    /// The first exit.
    Start,
    /// The rest of a string access.
    String(Elements),
}

/// A port access by a string instruction: several elements in one exit.
#[derive(Clone, Copy)]
struct Elements {
    port: u16,
    size: u8,
    write: bool,
    /// Of the element whose exit came last.
    index: usize,
    count: usize,
    /// Offset of the first element in the shared pages.
    offset: usize,
}

impl KvmVcpu {
    pub(crate) fn new(mut fd: VcpuFd, machine: Arc<Shared>, boot: &BootState) -> Result<Self> {
        let page = NonNull::from(fd.get_kvm_run());
        let tsc_offset = tsc::align(fd.as_raw_fd());
        set_system(&fd, &boot.system)?;
        fd.set_regs(&to_regs(&boot.general))
            .map_err(Error::refused("set the virtual CPU's registers"))?;
        Ok(Self {
            raw: fd.as_raw_fd(),
            fd: Arc::new(fd),
            _machine: machine,
            page,
            pending: Pending::Start,
            // Where an answer to nothing does no harm.
            answer: mmio_data(page),
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
    fn enter_and_read(&mut self) -> Result<Exit> {
        let status = enter(self.raw);
        if status < 0 {
            return self.interrupted(-status as i32);
        }
        // SAFETY: the page is mapped as long as `fd` lives, and the kernel writes
        // to it only while the vCPU runs, which takes `&mut self` as well.
        let run = unsafe { self.page.as_ref() };
        match run.exit_reason {
            KVM_EXIT_IO => {
                // SAFETY: this exit reason says that the union holds `io`.
                let io = unsafe { run.__bindgen_anon_1.io };
                if io.count != 1 {
                    return Ok(self.begin_string());
                }
                let at = IoAddr::Port(io.port);
                let data = self.shared(io.data_offset as usize);
                if u32::from(io.direction) == KVM_EXIT_IO_OUT {
                    // SAFETY: the kernel has put the data there, in the page for
                    // port accesses; four bytes are within it.
                    let word = unsafe { data.cast::<u32>().read_unaligned() };
                    let data = u64::from(word) & mask(io.size);
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
                    let data = u64::from_le_bytes(mmio.data) & mask(size);
                    return Ok(Exit::Write { at, size, data });
                }
                self.answer = mmio_data(self.page);
                Ok(Exit::Read { at, size })
            }
            reason => Ok(self.rare(reason)),
        }
    }

    /// `offset` bytes into the pages that the kernel shares.
    #[inline(always)]
    fn shared(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: the kernel's own offsets lie within the pages that it shares,
        // and all of them are mapped in one piece.
        unsafe { self.page.cast::<u8>().add(offset) }
    }

    /// What stands between this entry and the guest.
    #[cold]
    #[inline(never)]
    fn run_pending(&mut self, entry: Entry) -> Result<Exit> {
        match self.pending {
            Pending::Start => {
                self.pending = Pending::Nothing;
                return Ok(Exit::Started);
            }
            Pending::String(mut elements) => {
                if let Entry::Answer(value) = entry {
                    self.put_element(&elements, value);
                }
                elements.index += 1;
                if elements.index < elements.count {
                    self.pending = Pending::String(elements);
                    self.bundled += 1;
                    return Ok(self.element(&elements));
                }
                self.pending = Pending::Nothing;
            }
            Pending::Nothing => {}
        }
        self.enter_and_read()
    }

    #[cold]
    #[inline(never)]
    fn begin_string(&mut self) -> Exit {
        // SAFETY: the caller has seen the exit reason that says so, and that the
        // page is not being written to.
        let io = unsafe { self.page.as_ref().__bindgen_anon_1.io };
        let elements = Elements {
            port: io.port,
            size: io.size,
            write: u32::from(io.direction) == KVM_EXIT_IO_OUT,
            index: 0,
            count: io.count as usize,
            offset: io.data_offset as usize,
        };
        self.pending = Pending::String(elements);
        self.element(&elements)
    }

    fn element(&self, elements: &Elements) -> Exit {
        let at = IoAddr::Port(elements.port);
        let size = elements.size;
        if !elements.write {
            return Exit::Read { at, size };
        }
        let mut data = [0; 8];
        // SAFETY: the kernel has put `count` elements of `size` bytes there, at
        // most 4 each, and the index is below the count.
        unsafe {
            ptr::copy_nonoverlapping(
                self.element_address(elements).as_ptr(),
                data.as_mut_ptr(),
                size.into(),
            );
        }
        let data = u64::from_le_bytes(data);
        Exit::Write { at, size, data }
    }

    fn put_element(&self, elements: &Elements, value: u64) {
        // SAFETY: the kernel expects `count` elements of `size` bytes there, at
        // most 4 each, and the index is below the count.
        unsafe {
            ptr::copy_nonoverlapping(
                value.to_le_bytes().as_ptr(),
                self.element_address(elements).as_ptr(),
                elements.size.into(),
            );
        }
    }

    fn element_address(&self, elements: &Elements) -> NonNull<u8> {
        self.shared(elements.offset + elements.index * usize::from(elements.size))
    }

    /// A kick, or the end of this vCPU.
    #[cold]
    #[inline(never)]
    fn interrupted(&mut self, code: i32) -> Result<Exit> {
        match code {
            libc::EINTR => {
                // SAFETY: as in `enter_and_read`; a kick from another thread may
                // write the same byte at the same time, hence volatile. A kick that
                // comes before this counts as this one.
                unsafe { (&raw mut (*self.page.as_ptr()).immediate_exit).write_volatile(0) };
                Ok(Exit::Kicked)
            }
            libc::EAGAIN => self.enter_and_read(),
            _ => Err(Error::refused("run the virtual CPU")(
                io::Error::from_raw_os_error(code),
            )),
        }
    }

    #[cold]
    #[inline(never)]
    fn rare(&mut self, reason: u32) -> Exit {
        // SAFETY: as in `enter_and_read`.
        let union = unsafe { &self.page.as_ref().__bindgen_anon_1 };
        match reason {
            KVM_EXIT_HLT => Exit::Halted,
            KVM_EXIT_SHUTDOWN => Exit::Stopped(Stop::TripleFault),
            KVM_EXIT_SYSTEM_EVENT => Exit::Stopped(Stop::Shutdown),
            KVM_EXIT_HYPERCALL => {
                // SAFETY: this exit reason says that the union holds `hypercall`.
                let call = unsafe { union.hypercall };
                let [a, b, c, d, ..] = call.args;
                self.answer = self.shared(offset_of!(kvm_run, __bindgen_anon_1.hypercall.ret));
                Exit::Hypercall {
                    number: call.nr,
                    args: [a, b, c, d],
                }
            }
            KVM_EXIT_FAIL_ENTRY => {
                // SAFETY: this exit reason says that the union holds `fail_entry`.
                let failure = unsafe { union.fail_entry };
                Exit::Stopped(Stop::EntryFailed(failure.hardware_entry_failure_reason))
            }
            KVM_EXIT_INTERNAL_ERROR => {
                // SAFETY: this exit reason says that the union holds `internal`.
                Exit::Stopped(Stop::Internal(unsafe { union.internal.suberror }))
            }
            other => Exit::Stopped(Stop::Unknown(other)),
        }
    }
}

/// The bits of an access of `size` bytes.
#[inline(always)]
fn mask(size: u8) -> u64 {
    u64::MAX >> ((64 - 8 * u32::from(size)) & 63)
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
    fn run(&mut self, entry: Entry) -> Result<Exit> {
        if !matches!(self.pending, Pending::Nothing) {
            return self.run_pending(entry);
        }
        if let Entry::Answer(value) = entry {
            // SAFETY: the last exit was a read of a single element, so this points
            // at its data in the shared pages, with eight bytes of them behind it;
            // the kernel takes as many as the access has.
            unsafe { self.answer.cast::<u64>().write_unaligned(value) };
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
