//! Scheduling of a guest's virtual CPUs: affinity, scheduler, share of a CPU, and effect of HLT.

use crate::environment::EnvironmentId;
use crate::features::Feature;
use crate::named::named;
use crate::sched::{Sched, Scheduler};
use std::collections::BTreeMap;

/// Scheduling of a guest's virtual CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// CPU affinity of the virtual CPU's thread.
    pub pin: Pin,
    /// Effect of HLT, on KVM.
    pub halt: Halt,
    /// Policy of the virtual CPU's thread, or scheduler of a Xen domain.
    pub sched: Sched,
    /// Limit of a Xen domain in percent of one CPU.
    pub cap: Option<u32>,
    /// Weight of a Xen domain under contention. The default is 256.
    pub weight: Option<u32>,
    /// Program that competes for the CPUs of the guest.
    pub competitor: Competitor,
}

/// CPU affinity of the virtual CPU's thread. Unless it is free, Trapline's own threads run on another CPU, if
/// there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pin {
    /// None.
    #[default]
    Free,
    /// A CPU without other threads of Trapline.
    Exclusive,
    /// One CPU, with all threads of its VMM and the loads.
    Shared,
}

named!(Pin { Free "free", Exclusive "exclusive", Shared "shared" });

/// Effect of HLT in a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Halt {
    /// HLT exits, and the CPU is free for other threads.
    #[default]
    Exits,
    /// KVM does not intercept HLT (`KVM_X86_DISABLE_EXITS_HLT`): the CPU halts in the guest, and is busy for
    /// other threads.
    InGuest,
}

named!(Halt { Exits "exits", InGuest "in-guest" });

/// Program that competes for the CPUs on which the guest may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Competitor {
    /// None.
    #[default]
    None,
    /// One on each CPU that computes with the policy SCHED_IDLE, that is, whenever no other thread runs there.
    SchedIdle,
}

named!(Competitor { None "none", SchedIdle "sched-idle" });

/// Name of the fact with the CPU time of the competitor.
pub const COMPETITOR: &str = "competitor";

/// Name of the fact with the energy of the processor packages during a boot.
pub const ENERGY: &str = "energy";

/// Names of the facts of Xen domains. The cap is in percent of one CPU.
const SCHEDULER: &str = "scheduler";
const CAP: &str = "scheduler-cap";
const WEIGHT: &str = "scheduler-weight";

/// Names of the facts of workload irq.
const PIN: &str = "irq-pin";
const SCHED: &str = "irq-sched";
/// Name of the fact in earlier stores.
const SCHED_BEFORE: &str = "irq-policy";
const HALT: &str = "irq-halt";

impl Scheduling {
    /// The environment's own scheduler, without affinity or cap, and with the default weight.
    pub const DEFAULT: Self = Self {
        pin: Pin::Free,
        halt: Halt::Exits,
        sched: Sched::Other,
        cap: None,
        weight: None,
        competitor: Competitor::None,
    };

    /// Returns why an environment does not support it, with the remedy: the options are those of `irq`.
    pub fn unsupported_reason(&self, environment: EnvironmentId) -> Option<String> {
        let halt = (self.halt != Halt::Exits).then_some(Feature::HaltInGuest);
        let sched = self.sched.unsupported_reason(environment);
        sched.or_else(|| halt?.unsupported_reason("--idle halt-in-guest", environment))
    }

    /// Returns the settings of a Xen domain as facts.
    pub fn facts(self) -> impl Iterator<Item = (String, String)> {
        let scheduler = self.sched.of_xen().map(|it| (SCHEDULER, it.name().into()));
        let cap = self.cap.map(|percent| (CAP, percent.to_string()));
        let weight = self.weight.map(|weight| (WEIGHT, weight.to_string()));
        let all = [scheduler, cap, weight].into_iter().flatten();
        all.map(|(name, value)| (name.to_owned(), value))
    }

    /// Returns the scheduling of a Xen domain with these facts.
    pub fn of_facts(facts: &BTreeMap<String, String>) -> Self {
        let number = |name| facts.get(name).and_then(|text: &String| text.parse().ok());
        let scheduler = facts
            .get(SCHEDULER)
            .and_then(|name| Scheduler::from_name(name));
        Self {
            sched: scheduler.map_or(Sched::Other, Sched::Xen),
            cap: number(CAP),
            weight: number(WEIGHT),
            ..Self::DEFAULT
        }
    }

    /// Returns the facts of a measurement of interrupts. `HALT` is younger, and present only if it is not the
    /// default.
    pub fn irq_facts(self) -> impl Iterator<Item = (&'static str, String)> {
        let is_default = self.halt == Halt::default();
        let halt = (!is_default).then(|| (HALT, self.halt.name().to_owned()));
        let always = [
            (PIN, self.pin.name().to_owned()),
            (SCHED, self.sched.to_string()),
        ];
        always.into_iter().chain(halt)
    }

    /// Returns the scheduling of a measurement of interrupts with these facts.
    pub fn of_irq_facts(facts: &BTreeMap<String, String>) -> Self {
        let text = |name| facts.get(name).map(String::as_str);
        let sched = text(SCHED).or_else(|| text(SCHED_BEFORE));
        Self {
            pin: text(PIN).and_then(Pin::from_name).unwrap_or_default(),
            halt: text(HALT).and_then(Halt::from_name).unwrap_or_default(),
            sched: sched.and_then(|it| it.parse().ok()).unwrap_or_default(),
            ..Self::DEFAULT
        }
    }
}

/// Formats the options of a command for Xen domains.
impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheduler = self.sched.of_xen();
        let scheduler = scheduler.map(|it| format!("--sched {}", it.name()));
        let cap = self.cap.map(|percent| format!("--cap {percent}"));
        let weight = self.weight.map(|weight| format!("--weight {weight}"));
        let words: Vec<_> = [scheduler, cap, weight].into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const CAPPED: Scheduling = Scheduling {
        sched: Sched::Xen(Scheduler::Credit2),
        cap: Some(25),
        ..Scheduling::DEFAULT
    };

    #[test]
    fn facts_are_parsed_as_they_are_formatted() {
        for scheduling in [CAPPED, Scheduling::DEFAULT] {
            let facts = scheduling.facts().collect();
            assert_eq!(Scheduling::of_facts(&facts), scheduling);
        }
        assert_eq!(Scheduling::DEFAULT.facts().count(), 0);
        let pinned = Scheduling {
            pin: Pin::Exclusive,
            halt: Halt::InGuest,
            sched: "deadline:3ms/10ms".parse().unwrap(),
            ..Scheduling::DEFAULT
        };
        let facts = pinned
            .irq_facts()
            .map(|(name, value)| (name.to_owned(), value));
        assert_eq!(Scheduling::of_irq_facts(&facts.collect()), pinned);
    }

    #[test]
    fn facts_of_older_stores_are_parsed() {
        let facts = [("irq-policy".to_owned(), "fifo:7".to_owned())];
        let scheduling = Scheduling::of_irq_facts(&facts.into());
        assert_eq!(scheduling.sched, Sched::Fifo(7));
        let none = Scheduling::of_irq_facts(&BTreeMap::new());
        assert_eq!(none, Scheduling::DEFAULT);
    }

    #[test]
    fn halt_in_guest_is_reported_where_it_is_not_supported() {
        let in_guest = Scheduling {
            halt: Halt::InGuest,
            ..Scheduling::DEFAULT
        };
        assert_eq!(in_guest.unsupported_reason(EnvironmentId::SIM_KVM), None);
        let reasons = [EnvironmentId::HOST, EnvironmentId::SIM_XEN_PVH]
            .map(|id| in_guest.unsupported_reason(id).unwrap());
        expect![[r#"
            --idle halt-in-guest is not supported by host, as nothing is virtualized there: leave it out, or choose from kvm, qemu-kvm, sim/kvm, sim/qemu-kvm, sim/qemu-kvm-pc, sim/kvm/kvm, sim/kvm/kvm/kvm, sim-vmx/kvm, sim-vmx/qemu-kvm with --env
            --idle halt-in-guest is not supported by sim/xen-pvh, as KVM does not run its guest: leave it out, or choose from kvm, qemu-kvm, sim/kvm, sim/qemu-kvm, sim/qemu-kvm-pc, sim/kvm/kvm, sim/kvm/kvm/kvm, sim-vmx/kvm, sim-vmx/qemu-kvm with --env"#]].assert_eq(&reasons.join("\n"));
        let mut all = EnvironmentId::all();
        assert!(all.all(|id| Scheduling::DEFAULT.unsupported_reason(id).is_none()));
    }
}
