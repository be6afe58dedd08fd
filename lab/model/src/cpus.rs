//! Number of virtual CPUs of a guest, and their CPUs.

use crate::environment::EnvironmentId;
use crate::named::named;

/// Largest number that trapline-vmm and the image support.
pub const MOST: u32 = trapline_abi::job::MOST_CPUS;

/// CPUs of the virtual CPUs. All other threads of a VMM run on CPU 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Virtual CPU i on CPU i: the first shares its CPU with the VMM.
    Same,
    /// Virtual CPU i on CPU i + 1.
    Disjoint,
}

named!(Place { Same "same", Disjoint "disjoint" });

impl Place {
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Same => 's',
            Self::Disjoint => 'd',
        }
    }
}

/// Parses a number of virtual CPUs.
pub fn from_text(text: &str) -> Option<u32> {
    let number = text.parse().ok();
    number.filter(|number| (1..=MOST).contains(number))
}

/// Returns why the guest of an environment does not support this number of CPUs, with the remedy.
pub fn unsupported_reason(environment: EnvironmentId, cpus: u32) -> Option<String> {
    (cpus > 1 && !environment.supports_several_cpus()).then(|| {
        format!(
            "--cpus {cpus} is not supported by {environment}: leave it out, or choose from {} with \
             --env",
            EnvironmentId::names_of(EnvironmentId::supports_several_cpus)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn several_are_for_the_host_and_for_linux_guests() {
        let all = EnvironmentId::all();
        assert!(all.clone().all(|id| unsupported_reason(id, 1).is_none()));
        assert_eq!(
            EnvironmentId::names_of(|id| unsupported_reason(id, 2).is_none()),
            "host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, sim/kvm/linux, sim/qemu-kvm/linux"
        );
        let reason = unsupported_reason(EnvironmentId::UML, 2).unwrap();
        expect!["--cpus 2 is not supported by uml: leave it out, or choose from host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, sim/kvm/linux, sim/qemu-kvm/linux with --env"].assert_eq(&reason);
    }
}
