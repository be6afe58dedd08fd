//! Who stands in a row or a column, and what people call it.
//!
//! Everything on the page that names a contender asks here, so that what tells one from
//! another is decided in one place.

use trapline_model::EnvironmentId;
use trapline_stats::Cell;

/// What tells one row from another.
pub type Row = EnvironmentId;

/// The row of a cell.
pub fn row(cell: &Cell) -> Row {
    cell.environment
}

/// Its name, as people type it.
pub fn name(row: Row) -> &'static str {
    row.name()
}

/// Who runs the guest, in the words of a sentence, where a hypervisor that uses the
/// processor's or the kernel's help runs it. These are what is compared with each other.
pub fn hypervisor(row: Row) -> Option<&'static str> {
    use EnvironmentId as E;
    Some(match row {
        E::Kvm | E::SimKvm | E::SimVmxKvm => "trapline-vmm",
        E::QemuKvm | E::SimQemuKvm | E::SimVmxQemuKvm => "QEMU",
        E::Custom | E::SimCustom => "the VMM of your choice",
        E::SimXenPvh | E::SimVmxXenPvh => "Xen (PVH)",
        E::SimXenHvm => "Xen (HVM)",
        _ => return None,
    })
}

/// The layers that a row runs in, outside in; the innermost runs the workloads.
pub fn layers(row: Row) -> &'static [&'static str] {
    use EnvironmentId as E;
    const HOST: &str = "this host: Linux";
    const SIM: &str = "simulated machine, AMD: QEMU counts instructions";
    const VMX: &str = "simulated machine, Intel: Bochs counts instructions";
    const OURS: &str = "trapline-vmm";
    const QEMU: &str = "QEMU microvm";
    const TCG: &str = "QEMU microvm, translating";
    const CUSTOM: &str = "a VMM of your choice";
    const IMAGE: &str = "image";
    const AGENT: &str = "agent";
    const PVH: &str = "PVH domain";
    match row {
        E::Host => &[HOST, AGENT],
        E::Kvm => &[HOST, "KVM", OURS, IMAGE],
        E::QemuKvm => &[HOST, "KVM", QEMU, IMAGE],
        E::QemuTcg => &[HOST, TCG, IMAGE],
        E::Custom => &[HOST, CUSTOM, IMAGE],
        E::KvmLinux => &[HOST, "KVM", OURS, "Linux", AGENT],
        E::QemuKvmLinux => &[HOST, "KVM", QEMU, "Linux", AGENT],
        E::QemuTcgLinux => &[HOST, TCG, "Linux", AGENT],
        E::Uml => &[HOST, "user-mode Linux", AGENT],
        E::Sim => &[HOST, SIM, IMAGE],
        E::SimLinux => &[HOST, SIM, "Linux", AGENT],
        E::SimKvm => &[HOST, SIM, "Linux", "KVM", OURS, IMAGE],
        E::SimQemuKvm => &[HOST, SIM, "Linux", "KVM", QEMU, IMAGE],
        E::SimKvmLinux => &[HOST, SIM, "Linux", "KVM", OURS, "Linux", AGENT],
        E::SimQemuKvmLinux => &[HOST, SIM, "Linux", "KVM", QEMU, "Linux", AGENT],
        E::SimXenPvh => &[HOST, SIM, "Xen", PVH, IMAGE],
        E::SimXenHvm => &[HOST, SIM, "Xen", "HVM domain, devices by QEMU", IMAGE],
        E::SimXenDom0 => &[HOST, SIM, "Xen", "first domain", IMAGE],
        E::SimCustom => &[HOST, SIM, "Linux", "KVM", CUSTOM, IMAGE],
        E::SimVmx => &[HOST, VMX, IMAGE],
        E::SimVmxLinux => &[HOST, VMX, "Linux", AGENT],
        E::SimVmxKvm => &[HOST, VMX, "Linux", "KVM", OURS, IMAGE],
        E::SimVmxQemuKvm => &[HOST, VMX, "Linux", "KVM", QEMU, IMAGE],
        E::SimVmxXenPvh => &[HOST, VMX, "Xen", PVH, IMAGE],
    }
}

/// Those of one clock, in the order in which they are shown. A colour of the page belongs
/// to a place in it.
#[derive(Clone, Debug, Default)]
pub struct Cast(Vec<Row>);

/// Colours that the style sheet has for rows that are not bare.
const TONES: usize = 8;

impl Cast {
    pub fn new(rows: Vec<Row>) -> Self {
        Self(rows)
    }

    pub fn rows(&self) -> &[Row] {
        &self.0
    }

    /// The class of its colour: bare is always the same.
    pub fn tone(&self, row: Row) -> String {
        let others = self.0.iter().filter(|known| !known.is_bare());
        let place = others.enumerate().find(|(_, known)| **known == row);
        place.map_or("t0".to_owned(), |(place, _)| {
            format!("t{}", place % TONES + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_begins_with_the_host_and_no_two_are_alike() {
        let mut stacks: Vec<_> = EnvironmentId::ALL.map(layers).to_vec();
        assert!(stacks.iter().all(|stack| stack[0] == "this host: Linux"));
        stacks.sort();
        stacks.dedup();
        assert_eq!(stacks.len(), EnvironmentId::ALL.len());
    }

    #[test]
    fn bare_rows_have_a_colour_of_their_own() {
        let cast = Cast::new(vec![Row::Host, Row::Kvm, Row::QemuKvm]);
        let tones: Vec<_> = cast.rows().iter().map(|row| cast.tone(*row)).collect();
        assert_eq!(tones, ["t0", "t1", "t2"]);
    }
}
