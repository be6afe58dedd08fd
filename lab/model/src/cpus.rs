//! How many virtual CPUs a guest gets, where it can have several.

use crate::identity::EnvironmentId;
use crate::sharing::names_of;

/// As many as a machine of ours has at the most.
pub const MOST: u32 = 8;

/// A number of virtual CPUs, as people type it.
pub fn from_text(text: &str) -> Option<u32> {
    let number = text.parse().ok();
    number.filter(|number| (1..=MOST).contains(number))
}

/// Whether what is measured there can have several: the image runs on one, a simulated
/// machine has one, and so has user-mode Linux. The bare row has those of its host.
fn can_have_several(environment: EnvironmentId) -> bool {
    use EnvironmentId::{Host, Uml};
    environment == Host || environment.is_linux_guest() && environment != Uml
}

/// Why the guest of an environment cannot have so many, and what to do about that.
pub fn misfit(environment: EnvironmentId, cpus: u32) -> Option<String> {
    (cpus > 1 && !can_have_several(environment)).then(|| {
        format!(
            "what is measured in {environment} has one CPU: leave --cpus {cpus} out, or choose \
             from {} with --env",
            names_of(can_have_several)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_for_the_host_and_for_linux_guests() {
        let all = EnvironmentId::ALL.into_iter();
        assert!(all.clone().all(|id| misfit(id, 1).is_none()));
        assert_eq!(
            names_of(|id| misfit(id, 2).is_none()),
            "host, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, sim/kvm/linux, sim/qemu-kvm/linux"
        );
        let told = misfit(EnvironmentId::Uml, 2).unwrap();
        assert!(
            told.starts_with("what is measured in uml has one CPU"),
            "{told}"
        );
        assert!(told.contains("leave --cpus 2 out"), "{told}");
    }
}
