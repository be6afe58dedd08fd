//! Checks of `/dev/kvm`: hardware virtualization (VMX or SVM), or a kernel that emulates the guest's
//! ring 0. The processor's flags and the speed of a loop distinguish them.

use super::processor::Processor;
use super::Finding;
use std::io::ErrorKind;

/// State of `/dev/kvm`.
#[derive(Debug, PartialEq)]
pub struct Kvm {
    /// Result of opening it.
    pub device: Device,
    /// Virtualization extension of the processor.
    pub extension: Option<Extension>,
    /// This host is a virtual machine.
    pub nested: bool,
    /// Iterations of a loop per second in the guest's ring 0, if measured.
    pub ring0_rate: Option<f64>,
}

/// Result of opening `/dev/kvm`.
#[derive(Debug, PartialEq)]
pub enum Device {
    /// It does not exist.
    Absent,
    /// Permission denied.
    Denied,
    /// Another error.
    Broken(String),
    /// Opened.
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

/// Opens `/dev/kvm` and measures ring 0, with a counter of `hertz`.
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

/// Limit of loop iterations per second below which ring 0 is emulated: emulation reaches less than a
/// million, hardware more than 500 million.
const EMULATED_BELOW: f64 = 20e6;

impl Kvm {
    /// Returns a short description.
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

/// Checks whether KVM can be used.
pub fn judge(kvm: &Kvm) -> Finding {
    match &kvm.device {
        Device::Absent => judge_absent(kvm),
        Device::Denied => Finding::problem("kvm", "cannot open /dev/kvm: permission denied")
            .remedy("sudo usermod -aG kvm \"$USER\", then log in again"),
        Device::Broken(error) => Finding::problem("kvm", format!("cannot open /dev/kvm: {error}"))
            .remedy("sudo dmesg | grep -i kvm"),
        Device::Open => judge_open(kvm),
    }
}

fn judge_absent(kvm: &Kvm) -> Finding {
    match kvm.extension {
        Some(extension) => {
            let found = format!("the processor has {}, but there is no /dev/kvm", extension.name());
            Finding::problem("kvm", found).remedy(format!("sudo modprobe {}", extension.module()))
        }
        None if kvm.nested => Finding::problem("kvm", "no /dev/kvm: this virtual machine has neither VMX nor SVM")
            .remedy("enable nested virtualization for this machine on its host; until then: --env host,qemu-tcg,sim,sim/linux,sim/kvm,sim/qemu-kvm"),
        None => Finding::problem("kvm", "no /dev/kvm: the processor has neither VMX nor SVM enabled")
            .remedy("enable virtualization (VT-x, SVM) in the firmware"),
    }
}

fn judge_open(kvm: &Kvm) -> Finding {
    let timed = kvm.ring0_rate.map_or_else(
        || "ring 0 was not measured".to_owned(),
        |rate| format!("{} loop iterations/s", millions(rate)),
    );
    match (kvm.extension, kvm.emulated()) {
        (_, Some(true)) => Finding::note(
            "kvm",
            format!("ring 0 is emulated ({timed}): the image runs at ring 3, and exits cost more than with VMX or SVM"),
        )
        .remedy("measure on a machine with VMX or SVM for figures of hardware virtualization"),
        (Some(extension), _) => {
            let layers = if kvm.nested { ", nested" } else { "" };
            Finding::ok("kvm", format!("{}{layers}: ring 0 runs natively ({timed})", extension.name()))
        }
        (None, Some(false)) => Finding::note("kvm", format!("no VMX or SVM flag, but ring 0 runs natively ({timed})")),
        (None, None) => Finding::note("kvm", "no VMX or SVM flag: ring 0 is probably emulated; it was not measured")
            .remedy("make build, then run trapline doctor again"),
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
    use expect_test::expect;

    fn kvm(device: Device, extension: Option<Extension>, ring0_rate: Option<f64>) -> Kvm {
        Kvm {
            device,
            extension,
            nested: true,
            ring0_rate,
        }
    }

    #[test]
    fn the_loop_rate_decides() {
        let cases = [
            (None, Some(1.4e6)),
            (Some(Extension::Svm), Some(2.9e9)),
            (None, None),
        ];
        let found = cases.map(|(extension, rate)| {
            let finding = judge(&kvm(Device::Open, extension, rate));
            format!("{:?}: {}\n", finding.verdict, finding.found)
        });
        expect![[r#"
            Note: ring 0 is emulated (1.4 M loop iterations/s): the image runs at ring 3, and exits cost more than with VMX or SVM
            Ok: SVM, nested: ring 0 runs natively (2900 M loop iterations/s)
            Note: no VMX or SVM flag: ring 0 is probably emulated; it was not measured
        "#]].assert_eq(&found.concat());
    }

    #[test]
    fn descriptions_are_short() {
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
    fn each_problem_has_its_remedy() {
        let cases = [
            (Device::Absent, Some(Extension::Vmx)),
            (Device::Absent, None),
            (Device::Denied, None),
        ];
        let remedies =
            cases.map(|(device, extension)| judge(&kvm(device, extension, None)).remedy.unwrap());
        expect![[r#"
            sudo modprobe kvm_intel
            enable nested virtualization for this machine on its host; until then: --env host,qemu-tcg,sim,sim/linux,sim/kvm,sim/qemu-kvm
            sudo usermod -aG kvm "$USER", then log in again"#]].assert_eq(&remedies.join("\n"));
        let broken = judge(&kvm(Device::Broken("busy".to_owned()), None, None));
        assert_eq!(broken.verdict, Verdict::Problem);
    }
}
