//! Number of virtual CPUs of a guest.

use crate::environment::EnvironmentId;

/// Largest number that trapline-vmm and the image support.
pub const MOST: u32 = trapline_abi::job::MOST_CPUS;

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
