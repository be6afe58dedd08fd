//! Rare exits: string accesses, kicks, shutdown.
//!
//! These functions leave their result in `rare_exit` or `refusal`, see [`KvmVcpu::rare_result`].

use super::KvmVcpu;
use kvm_bindings::{
    kvm_run, KVM_EXIT_FAIL_ENTRY, KVM_EXIT_HLT, KVM_EXIT_HYPERCALL, KVM_EXIT_INTERNAL_ERROR,
    KVM_EXIT_IO_OUT, KVM_EXIT_SHUTDOWN, KVM_EXIT_SYSTEM_EVENT, KVM_INTERNAL_ERROR_EMULATION,
};
use std::io;
use std::mem::offset_of;
use std::ptr::NonNull;
use trapline_interface::{Error, Exit, IoAddr, Stop};

/// Work before the next guest entry.
#[derive(Clone, Copy)]
pub(super) enum Pending {
    Nothing,
    /// The first exit.
    Start,
    /// Remaining elements of a string access.
    String(Elements),
}

/// A string access: several elements in one KVM exit.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    port: u16,
    size: u8,
    write: bool,
    /// Index of the last reported element.
    index: usize,
    count: usize,
    /// Offset of the first element in the shared pages.
    offset: usize,
}

impl KvmVcpu {
    /// Handles pending work; returns false if the guest is to be entered.
    #[cold]
    #[inline(never)]
    pub(super) fn run_pending(&mut self) -> bool {
        match self.pending {
            Pending::Nothing => return false,
            Pending::Start => {
                self.pending = Pending::Nothing;
                self.rare_exit = Exit::Started;
            }
            Pending::String(mut elements) => {
                elements.index += 1;
                if elements.index == elements.count {
                    self.pending = Pending::Nothing;
                    return false;
                }
                self.string_elements += 1;
                self.show_element(elements);
            }
        }
        true
    }

    #[cold]
    #[inline(never)]
    pub(super) fn begin_string(&mut self) {
        // SAFETY: the caller has seen the exit reason that says so, and the kernel
        // writes to the page only while the vCPU runs.
        let io = unsafe { self.page.as_ref().__bindgen_anon_1.io };
        self.show_element(Elements {
            port: io.port,
            size: io.size,
            write: u32::from(io.direction) == KVM_EXIT_IO_OUT,
            index: 0,
            count: io.count as usize,
            offset: io.data_offset as usize,
        });
    }

    fn show_element(&mut self, elements: Elements) {
        let (at, size) = (IoAddr::Port(elements.port), elements.size);
        let data = self.shared(elements.offset + elements.index * usize::from(size));
        self.rare_exit = if elements.write {
            // SAFETY: the kernel has put `count` elements of `size` bytes there,
            // and the index is below the count.
            let data = unsafe { super::read_sized(data, size) };
            Exit::Write { at, size, data }
        } else {
            self.answer = data;
            Exit::Read { at, size }
        };
        self.pending = Pending::String(elements);
    }

    /// Handles a failed KVM_RUN: a kick, an error, or the start of this vCPU by another one (EAGAIN,
    /// `kvm_arch_vcpu_ioctl_run`).
    #[cold]
    #[inline(never)]
    pub(super) fn interrupted(&mut self, code: i32) {
        if code == libc::EAGAIN {
            self.rare_exit = Exit::Started;
            return;
        }
        if code != libc::EINTR {
            let source = io::Error::from_raw_os_error(code);
            let refusal = Error::refused("run the virtual CPU")(source);
            self.refusal = Some(Box::new(refusal));
            return;
        }
        // SAFETY: the page is mapped as long as `fd` lives; a kick from another
        // thread may write the same byte at the same time, hence volatile. A kick
        // that comes before this counts as this one.
        unsafe { (&raw mut (*self.page.as_ptr()).immediate_exit).write_volatile(0) };
        self.rare_exit = Exit::Kicked;
    }

    #[cold]
    #[inline(never)]
    pub(super) fn rare(&mut self, reason: u32) {
        // SAFETY: the page is mapped as long as `fd` lives, and the kernel writes
        // to it only while the vCPU runs.
        let union = unsafe { &self.page.as_ref().__bindgen_anon_1 };
        self.rare_exit = match reason {
            KVM_EXIT_HLT => Exit::Halted,
            KVM_EXIT_SHUTDOWN => Exit::Stopped(Stop::TripleFault),
            KVM_EXIT_SYSTEM_EVENT => Exit::Stopped(Stop::Shutdown),
            KVM_EXIT_HYPERCALL => {
                // SAFETY: this exit reason says that the union holds `hypercall`.
                let call = unsafe { union.hypercall };
                let [a, b, c, d, ..] = call.args;
                self.answer = self.hypercall_result();
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
                Exit::Stopped(match unsafe { union.internal.suberror } {
                    KVM_INTERNAL_ERROR_EMULATION => Stop::Emulation,
                    other => Stop::Internal(other),
                })
            }
            other => Exit::Stopped(Stop::Unknown(other)),
        };
    }

    fn hypercall_result(&self) -> NonNull<u8> {
        self.shared(offset_of!(kvm_run, __bindgen_anon_1.hypercall.ret))
    }
}
