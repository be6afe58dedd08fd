//! What `/dev/kvm` really is. A node of that name may be hardware
//! virtualization (VMX or SVM), or a kernel that emulates the guest's ring 0
//! instruction by instruction; the processor's flags and a counted loop tell.

use super::processor::Processor;
use super::Finding;
use std::io::ErrorKind;

/// What was found of `/dev/kvm`.
#[derive(Debug, PartialEq)]
pub struct Kvm {
    /// Whether it could be opened.
    pub device: Device,
    /// Which instructions the processor offers for it.
    pub extension: Option<Extension>,
    /// Whether this machine is itself virtual.
    pub nested: bool,
    /// Turns of a loop per second in the guest's ring 0, where it was timed.
    pub ring0_rate: Option<f64>,
}

/// Whether `/dev/kvm` could be opened.
#[derive(Debug, PartialEq)]
pub enum Device {
    /// There is none.
    Absent,
    /// This user may not.
    Denied,
    /// Something else keeps it shut.
    Broken(String),
    /// Yes.
    Open,
}

/// Virtualization extension of the processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extension {
    /// Intel's.
    Vmx,
    /// AMD's.
    Svm,
}

impl Extension {
    fn name(self) -> &'static str {
        match self {
            Self::Vmx => "VMX",
            Self::Svm => "SVM",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Self::Vmx => "kvm_intel",
            Self::Svm => "kvm_amd",
        }
    }
}

/// Looks at `/dev/kvm`; times ring 0 with our own VMM where that is there, by a
/// counter of `hertz`.
pub fn examine(processor: &Processor, hertz: f64) -> Kvm {
    let device = open_device();
    let ring0_rate = match device {
        Device::Open => super::ring0::measure(hertz),
        _ => None,
    };
    Kvm {
        device,
        extension: extension(processor),
        nested: processor.has("hypervisor"),
        ring0_rate,
    }
}

fn extension(processor: &Processor) -> Option<Extension> {
    if processor.has("vmx") {
        return Some(Extension::Vmx);
    }
    processor.has("svm").then_some(Extension::Svm)
}

fn open_device() -> Device {
    let mut options = std::fs::OpenOptions::new();
    match options.read(true).write(true).open("/dev/kvm") {
        Ok(_) => Device::Open,
        Err(error) if error.kind() == ErrorKind::NotFound => Device::Absent,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Device::Denied,
        Err(error) => Device::Broken(error.to_string()),
    }
}

/// Ring 0 that turns a loop more seldom per second than this is emulated: emulation
/// reaches less than a million, any processor of this century 500 million.
const EMULATED_BELOW: f64 = 20e6;

impl Kvm {
    /// What it is, in few words.
    pub fn describe(&self) -> String {
        let nested = if self.nested { ", nested" } else { "" };
        let what = match (&self.device, self.extension, self.emulated()) {
            (Device::Absent, ..) => return "no /dev/kvm".to_owned(),
            (Device::Denied | Device::Broken(_), ..) => {
                return "/dev/kvm cannot be opened".to_owned()
            }
            (_, _, Some(true)) => "KVM with ring 0 emulated",
            (_, Some(extension), _) => return format!("KVM on {}{nested}", extension.name()),
            (_, None, Some(false)) => "KVM on neither VMX nor SVM",
            (_, None, None) => "KVM with ring 0 probably emulated",
        };
        what.to_owned()
    }

    fn emulated(&self) -> Option<bool> {
        self.ring0_rate.map(|rate| rate < EMULATED_BELOW)
    }
}

/// What it is, and what keeps it from being used.
pub fn judge(kvm: &Kvm) -> Finding {
    match &kvm.device {
        Device::Absent => judge_absent(kvm),
        Device::Denied => {
            Finding::problem("kvm", "/dev/kvm is there, but this user may not open it")
                .mend("sudo usermod -aG kvm \"$USER\", then log in again")
        }
        Device::Broken(error) => {
            Finding::problem("kvm", format!("/dev/kvm cannot be opened: {error}"))
                .mend("sudo dmesg | grep -i kvm")
        }
        Device::Open => judge_open(kvm),
    }
}

fn judge_absent(kvm: &Kvm) -> Finding {
    match kvm.extension {
        Some(extension) => {
            let found = format!("the processor has {}, but there is no /dev/kvm", extension.name());
            Finding::problem("kvm", found).mend(format!("sudo modprobe {}", extension.module()))
        }
        None if kvm.nested => Finding::problem("kvm", "no /dev/kvm, and this virtual machine is offered neither VMX nor SVM")
            .mend("switch on nested virtualization for this machine at its host; until then: --env host,qemu-tcg,sim,sim/linux,sim/kvm,sim/qemu-kvm"),
        None => Finding::problem("kvm", "no /dev/kvm, and the processor shows neither VMX nor SVM")
            .mend("switch on virtualization (VT-x, SVM) in the firmware set-up"),
    }
}

fn judge_open(kvm: &Kvm) -> Finding {
    let timed = kvm.ring0_rate.map_or_else(
        || "ring 0 was not timed".to_owned(),
        |rate| format!("{} loop turns/s timed there", millions(rate)),
    );
    match (kvm.extension, kvm.emulated()) {
        (_, Some(true)) => Finding::note(
            "kvm",
            format!("ring 0 is emulated ({timed}): the image runs at ring 3 here, and exits cost more than with VMX or SVM"),
        )
        .mend("measure on a machine with VMX or SVM for figures of hardware virtualization"),
        (Some(extension), _) => {
            let layers = if kvm.nested { ", nested" } else { "" };
            Finding::ok("kvm", format!("{}{layers}: ring 0 runs natively ({timed})", extension.name()))
        }
        (None, Some(false)) => Finding::note("kvm", format!("neither VMX nor SVM is shown, but ring 0 runs natively ({timed})")),
        (None, None) => Finding::note("kvm", "neither VMX nor SVM is shown: ring 0 is probably emulated; it was not timed")
            .mend("make build, then again: trapline doctor"),
    }
}

fn millions(rate: f64) -> String {
    let millions = rate / 1e6;
    if millions < 10.0 {
        format!("{millions:.1} M")
    } else {
        format!("{millions:.0} M")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn kvm(device: Device, extension: Option<Extension>, ring0_rate: Option<f64>) -> Kvm {
        Kvm {
            device,
            extension,
            nested: true,
            ring0_rate,
        }
    }

    #[test]
    fn the_loop_decides_what_it_is() {
        let emulated = judge(&kvm(Device::Open, None, Some(1.4e6)));
        assert!(
            emulated
                .found
                .starts_with("ring 0 is emulated (1.4 M loop turns/s"),
            "{}",
            emulated.found
        );
        let hardware = judge(&kvm(Device::Open, Some(Extension::Svm), Some(2.9e9)));
        assert_eq!(hardware.verdict, Verdict::Ok);
        assert_eq!(
            hardware.found,
            "SVM, nested: ring 0 runs natively (2900 M loop turns/s timed there)"
        );
        let untimed = judge(&kvm(Device::Open, None, None));
        assert!(
            untimed.found.contains("probably emulated"),
            "{}",
            untimed.found
        );
    }

    #[test]
    fn few_words_tell_what_it_is() {
        let described = |device, extension, rate| kvm(device, extension, rate).describe();
        assert_eq!(described(Device::Absent, None, None), "no /dev/kvm");
        assert_eq!(
            described(Device::Open, None, Some(1e6)),
            "KVM with ring 0 emulated"
        );
        assert_eq!(
            described(Device::Open, Some(Extension::Vmx), Some(1e9)),
            "KVM on VMX, nested"
        );
    }

    #[test]
    fn what_is_missing_has_its_own_remedy() {
        let remedy = |kvm: &Kvm| judge(kvm).remedy.unwrap();
        assert_eq!(
            remedy(&kvm(Device::Absent, Some(Extension::Vmx), None)),
            "sudo modprobe kvm_intel"
        );
        assert!(remedy(&kvm(Device::Absent, None, None)).contains("nested virtualization"));
        assert!(remedy(&kvm(Device::Denied, None, None)).contains("usermod -aG kvm"));
        let broken = judge(&kvm(Device::Broken("busy".to_owned()), None, None));
        assert_eq!(broken.verdict, Verdict::Problem);
    }
}
