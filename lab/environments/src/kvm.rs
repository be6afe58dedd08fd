//! Capabilities of /dev/kvm on this host.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use trapline_host::Error;
use trapline_model::Halt;

const DEVICE: &str = "/dev/kvm";

/// `KVM_GET_API_VERSION` (Linux `include/uapi/linux/kvm.h`), and its result.
const GET_API_VERSION: libc::c_ulong = 0xae00;
const API_VERSION: libc::c_int = 12;

/// Checks that guests can run.
///
/// # Errors
/// The device does not exist, cannot be opened, or has another version.
pub fn check() -> Result<(), Error> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    let device = device.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::missing(
            "there is no /dev/kvm",
            "sudo modprobe kvm_amd || sudo modprobe kvm_intel (in a virtual machine, its host has to \
             allow nesting)",
        ),
        ErrorKind::PermissionDenied => Error::missing(
            "this user may not open /dev/kvm",
            "sudo usermod -aG kvm $USER, then log in again",
        ),
        _ => Error::unavailable(format!("{DEVICE} cannot be opened: {error}")),
    })?;
    // SAFETY: this request takes no argument and only returns a number.
    match unsafe { libc::ioctl(device.as_raw_fd(), GET_API_VERSION, 0) } {
        API_VERSION => Ok(()),
        other => Err(Error::unavailable(format!(
            "{DEVICE} has API version {other}, not {API_VERSION}"
        ))),
    }
}

/// Checks that guests support a way to halt.
///
/// # Errors
/// They do not on this host.
pub fn check_halt(halt: Halt) -> Result<(), Error> {
    let reason = match (halt, Hardware::of_host().ring()) {
        (Halt::Exits, _) => return Ok(()),
        (Halt::InGuest, 3) => {
            "KVM emulates ring 0 on this host, so the image runs at ring 3 and halts by a port write"
        }
        (Halt::InGuest, _) if !can_disable_halt_exits() => {
            "KVM of this kernel cannot disable exits on HLT (KVM_CAP_X86_DISABLE_EXITS)"
        }
        (Halt::InGuest, _) => return Ok(()),
    };
    Err(Error::missing(
        reason,
        "leave --idle halt-in-guest out, or measure sim/kvm",
    ))
}

/// Checks that KVM can run Linux guests.
///
/// # Errors
/// /dev/kvm is unusable, or emulates ring 0.
pub fn ready_for_linux() -> Result<(), Error> {
    check()?;
    native_ring0("boot it on a host with VMX or SVM")
}

/// Checks that KVM executes ring 0 at full speed.
///
/// # Errors
/// It emulates ring 0.
pub fn check_ring0() -> Result<(), Error> {
    native_ring0("measure sim/kvm/linux, or qemu-tcg/linux")
}

fn native_ring0(remedy: &str) -> Result<(), Error> {
    match Hardware::of_host() {
        Hardware::None => Err(Error::missing(
            "KVM emulates ring 0 on this host, slowly and incompletely, so Linux does not boot in a guest",
            remedy,
        )),
        _ => Ok(()),
    }
}

/// `KVM_CHECK_EXTENSION`, `KVM_CAP_X86_DISABLE_EXITS` and its bit for HLT (same file).
const CHECK_EXTENSION: libc::c_ulong = 0xae03;
const DISABLE_EXITS: libc::c_ulong = 143;
const DISABLE_HALTS: libc::c_int = 1 << 1;

fn can_disable_halt_exits() -> bool {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    device.is_ok_and(|device| {
        // SAFETY: this request takes a number and returns one.
        let bits = unsafe { libc::ioctl(device.as_raw_fd(), CHECK_EXTENSION, DISABLE_EXITS) };
        bits > 0 && bits & DISABLE_HALTS != 0
    })
}

/// Hardware virtualization of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// Intel VMX.
    Vmx,
    /// AMD SVM.
    Svm,
    /// None: /dev/kvm, if it exists, emulates ring 0.
    None,
}

impl Hardware {
    /// Returns that of this host.
    pub fn of_host() -> Self {
        Self::in_cpuinfo(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }

    fn in_cpuinfo(text: &str) -> Self {
        let flags = text.lines().find_map(|line| line.strip_prefix("flags"));
        let has = |flag: &str| {
            flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|word| word == flag))
        };
        match (has("vmx"), has("svm")) {
            (true, _) => Self::Vmx,
            (_, true) => Self::Svm,
            _ => Self::None,
        }
    }

    /// Returns the ring in which the image runs in QEMU on KVM.
    pub fn ring(self) -> u8 {
        match self {
            Self::None => 3,
            _ => 0,
        }
    }

    /// Describes it for the facts.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Vmx => "VMX",
            Self::Svm => "SVM",
            Self::None => "neither VMX nor SVM: KVM emulates ring 0, the image runs at ring 3",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_found_by_whole_flags() {
        let cpuinfo = |flags: &str| format!("processor : 0\nflags\t\t: fpu {flags} sse\n");
        assert_eq!(Hardware::in_cpuinfo(&cpuinfo("vmx")), Hardware::Vmx);
        assert_eq!(Hardware::in_cpuinfo(&cpuinfo("svm")), Hardware::Svm);
        assert_eq!(
            Hardware::in_cpuinfo(&cpuinfo("svm_lock vmx2")),
            Hardware::None
        );
        assert_eq!(Hardware::in_cpuinfo(""), Hardware::None);
        assert_eq!((Hardware::Svm.ring(), Hardware::None.ring()), (0, 3));
    }

    #[test]
    fn emulated_ring_0_is_rejected_for_linux_guests() {
        let error = check_ring0().err().map(|error| error.to_string());
        assert_eq!(error.is_some(), Hardware::of_host() == Hardware::None);
        assert!(error.is_none_or(|error| error.contains("sim/kvm/linux")));
    }

    #[test]
    fn emulated_ring_0_is_rejected_for_halt_in_guest() {
        assert!(check_halt(Halt::Exits).is_ok());
        let result = check_halt(Halt::InGuest).map_err(|error| error.to_string());
        if Hardware::of_host() == Hardware::None {
            let reason = result.unwrap_err();
            assert!(
                reason.contains("leave --idle halt-in-guest out"),
                "{reason}"
            );
        }
    }
}
