//! What /dev/kvm of this host is.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use trapline_host::Error;
use trapline_model::Halt;

/// The device.
const DEVICE: &str = "/dev/kvm";

/// `KVM_GET_API_VERSION` (Linux `include/uapi/linux/kvm.h`), and its only answer.
const GET_API_VERSION: libc::c_ulong = 0xae00;
const API_VERSION: libc::c_int = 12;

/// Whether guests can be run.
///
/// # Errors
/// Why not, with what mends it.
pub fn check() -> Result<(), Error> {
    let missing = |reason: &str| Err(Error::unavailable(reason.to_owned()));
    let device = match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => device,
        Err(error) if error.kind() == ErrorKind::NotFound => return missing(ABSENT),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return missing(FORBIDDEN),
        Err(error) => return missing(&format!("{DEVICE} cannot be opened: {error}")),
    };
    // SAFETY: this request takes no argument and only returns a number.
    match unsafe { libc::ioctl(device.as_raw_fd(), GET_API_VERSION, 0) } {
        API_VERSION => Ok(()),
        other => missing(&format!(
            "{DEVICE} speaks version {other}, not {API_VERSION}"
        )),
    }
}

/// Whether guests of this host can halt so.
///
/// # Errors
/// Why not, with what is to be done.
pub fn check_halt(halt: Halt) -> Result<(), Error> {
    let missing = |reason: &str| Err(Error::unavailable(reason.to_owned()));
    match (halt, Hardware::of_this_host().ring()) {
        (Halt::Exits, _) => Ok(()),
        (Halt::InGuest, 3) => missing(HALTS_BY_PORT),
        (Halt::InGuest, _) if !leaves_halts() => missing(KEEPS_HALTS),
        (Halt::InGuest, _) => Ok(()),
    }
}

/// Whether this host's KVM runs a Linux.
///
/// # Errors
/// There is none, or it emulates ring 0.
pub fn ready_for_linux() -> Result<(), Error> {
    check().and_then(|()| check_ring0())
}

/// Whether the kernel of a guest runs as fast as its programs.
///
/// # Errors
/// It does not.
pub fn check_ring0() -> Result<(), Error> {
    match Hardware::of_this_host() {
        Hardware::None => Err(Error::unavailable(EMULATED.to_owned())),
        _ => Ok(()),
    }
}

/// `KVM_CHECK_EXTENSION`, `KVM_CAP_X86_DISABLE_EXITS` and its bit for halts (the same file).
const CHECK_EXTENSION: libc::c_ulong = 0xae03;
const DISABLE_EXITS: libc::c_ulong = 143;
const DISABLE_HALTS: libc::c_int = 1 << 1;

fn leaves_halts() -> bool {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    device.is_ok_and(|device| {
        // SAFETY: this request takes a number and returns one.
        let bits = unsafe { libc::ioctl(device.as_raw_fd(), CHECK_EXTENSION, DISABLE_EXITS) };
        bits > 0 && bits & DISABLE_HALTS != 0
    })
}

const HALTS_BY_PORT: &str = "KVM emulates ring 0 here, so that the image runs at ring 3 and halts \
                             by a port: leave --idle halt-in-guest out, or measure sim/kvm";
const KEEPS_HALTS: &str = "this kernel's KVM leaves no halts to guests \
                             (KVM_CAP_X86_DISABLE_EXITS): leave --idle halt-in-guest out, or \
                             measure sim/kvm";
const EMULATED: &str = "KVM emulates ring 0 here, at a million instructions a second and not \
                        all of them, so that no Linux starts in a guest: measure \
                        sim/kvm/linux, or qemu-tcg/linux";
const ABSENT: &str = "there is no /dev/kvm: sudo modprobe kvm_amd || sudo modprobe kvm_intel \
                      (in a virtual machine, its host has to allow nesting)";
const FORBIDDEN: &str = "/dev/kvm may not be used by this user: sudo usermod -aG kvm $USER, \
                         then log in again";

/// What the processor offers for virtualization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// Intel's.
    Vmx,
    /// AMD's.
    Svm,
    /// None: a /dev/kvm that is there all the same emulates ring 0.
    None,
}

impl Hardware {
    /// That of this host.
    pub fn of_this_host() -> Self {
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

    /// The ring for an image that QEMU starts at ring 0.
    pub fn ring(self) -> u8 {
        match self {
            Self::None => 3,
            _ => 0,
        }
    }

    /// What it is, for the facts.
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
    fn hardware_is_told_by_whole_flags() {
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
    fn where_ring_0_is_emulated_no_linux_starts_in_a_guest() {
        let told = check_ring0().map_err(|error| error.to_string());
        assert_eq!(told.is_err(), Hardware::of_this_host() == Hardware::None);
        assert!(told.err().is_none_or(|why| why.contains("sim/kvm/linux")));
    }

    #[test]
    fn where_ring_0_is_emulated_there_is_no_halt_in_the_guest() {
        assert!(check_halt(Halt::Exits).is_ok());
        let told = check_halt(Halt::InGuest).map_err(|error| error.to_string());
        if Hardware::of_this_host() == Hardware::None {
            let reason = told.unwrap_err();
            assert!(
                reason.contains("leave --idle halt-in-guest out"),
                "{reason}"
            );
        }
    }
}
