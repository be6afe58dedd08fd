//! CPU features and model-specific registers of a machine with an I/O APIC: what Linux uses, as KVM offers it.
//!
//! Features with state beyond that of SSE are missing, because the simulated machine does not intercept `xsetbv`.

use super::{now, NovaVcpu, Technology, APIC_BASE, APIC_ENABLED, GENERAL_PROTECTION};
use crate::utcb::Parts;
use crate::{pvclock, rtc, timer};
use core::arch::x86_64::CpuidResult;

/// Bits of leaf 1, ECX: x2APIC, and the timer's TSC deadline.
const X2APIC: u32 = 1 << 21;
const DEADLINE: u32 = 1 << 24;
/// Leaf 1, EDX: machine check and memory type registers.
const MACHINE_CHECK_AND_TYPES: u32 = 1 << 7 | 1 << 12 | 1 << 14;
/// Leaf 7: FSGSBASE, SMEP, ERMS, INVPCID, RDSEED, ADX, SMAP, CLFLUSHOPT, CLWB; UMIP, RDPID; FSRM.
const EXTENDED_EBX: u32 =
    1 << 0 | 1 << 7 | 1 << 9 | 1 << 10 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 23 | 1 << 24;
const EXTENDED_ECX: u32 = 1 << 2 | 1 << 22;
const EXTENDED_EDX: u32 = 1 << 4;
/// Leaf 6, EAX: the timer runs always.
const ALWAYS_RUNNING_TIMER: u32 = 1 << 2;

/// First leaf of KVM's interface, and its leaf with features.
const KVM: u32 = 0x4000_0100;
const KVM_FEATURES: u32 = KVM + 1;
const KVM_SIGNATURE: [u32; 3] = [
    u32::from_le_bytes(*b"KVMK"),
    u32::from_le_bytes(*b"VMKV"),
    u32::from_le_bytes(*b"M\0\0\0"),
];
/// No delays after port accesses, the clock by the registers below, and it is stable.
const KVM_FEATURES_EAX: u32 = 1 << 1 | 1 << 3 | 1 << 24;

/// Registers with an effect (AMD APM volume 2, appendix A; Intel SDM volume 4).
const TSC: u32 = 0x10;
const SYSENTER: u32 = 0x174;
const SYSENTER_LAST: u32 = 0x176;
const TSC_DEADLINE: u32 = 0x6e0;
const APIC: u32 = 0x800;
const APIC_LAST: u32 = 0x8ff;
const KVM_WALL_CLOCK: u32 = 0x4b56_4d00;
const KVM_CLOCK: u32 = 0x4b56_4d01;
const TSC_AUX: u32 = 0xc000_0103;

/// Registers that keep their value without an effect, with the value after a reset.
const KEPT: [(u32, u64); 6] = [
    // Revision of the microcode, as KVM reports it.
    (0x8b, 0x0100_0065),
    // Attributes of pages.
    (0x277, 0x0007_0406_0007_0406),
    // SYSCFG, HWCR, and pending interrupts of C1E.
    (0xc001_0010, 0),
    (0xc001_0015, 0),
    (0xc001_0055, 0),
    // DE_CFG: `lfence` serializes.
    (0xc001_1029, 2),
];

/// State of the machine.
pub(super) struct Pc {
    /// Time of the reset.
    start: u64,
    apic_base: u64,
    sysenter: [u64; 3],
    tsc_aux: u64,
    kept: [u64; KEPT.len()],
}

impl Pc {
    pub fn new(start: u64) -> Self {
        Self {
            start,
            apic_base: APIC_ENABLED,
            sysenter: [0; 3],
            tsc_aux: 0,
            kept: KEPT.map(|(_, value)| value),
        }
    }
}

/// Changes the answer to a leaf that differs from the image's.
pub(super) fn add_features(leaf: u32, subleaf: u32, answer: &mut CpuidResult) {
    match (leaf, subleaf) {
        (1, _) => {
            answer.ecx |= X2APIC | DEADLINE;
            answer.edx &= !MACHINE_CHECK_AND_TYPES;
        }
        (6, _) => answer.eax |= ALWAYS_RUNNING_TIMER,
        (7, 0) => {
            answer.ebx &= EXTENDED_EBX;
            answer.ecx &= EXTENDED_ECX;
            answer.edx &= EXTENDED_EDX;
            answer.eax = 0;
        }
        (KVM, _) => {
            answer.eax = KVM_FEATURES;
            [answer.ebx, answer.ecx, answer.edx] = KVM_SIGNATURE;
        }
        (KVM_FEATURES, _) => {
            (answer.eax, answer.ebx, answer.ecx, answer.edx) = (KVM_FEATURES_EAX, 0, 0, 0);
        }
        // Control of speculation.
        (0x8000_0008, _) => answer.ebx = 0,
        _ => {}
    }
}

impl<T: Technology> NovaVcpu<T> {
    /// Answers an access to a register that the image does not use. One that is not listed causes a general
    /// protection fault.
    #[cold]
    pub(super) fn pc_msr(&mut self, number: u32, written: Option<u64>) {
        let answer = match written {
            Some(value) => self.write_pc_msr(number, value).map(|()| None),
            None => self.read_pc_msr(number).map(Some),
        };
        match answer {
            Some(Some(value)) => self.answer_read(value),
            Some(None) => self.skip(2),
            None => self.inject(GENERAL_PROTECTION, 0),
        }
    }

    fn read_pc_msr(&mut self, number: u32) -> Option<u64> {
        let (pc, apic) = (self.pc.as_mut()?, &mut self.controllers.as_mut()?.local);
        Some(match number {
            TSC => now(),
            APIC_BASE => pc.apic_base,
            SYSENTER..=SYSENTER_LAST => pc.sysenter[(number - SYSENTER) as usize],
            TSC_DEADLINE => apic.deadline().unwrap_or(0),
            APIC..=APIC_LAST => apic.read_msr(number, now())?,
            TSC_AUX => pc.tsc_aux,
            _ => pc.kept[kept(number)?],
        })
    }

    fn write_pc_msr(&mut self, number: u32, value: u64) -> Option<()> {
        let (pc, apic) = (self.pc.as_mut()?, &mut self.controllers.as_mut()?.local);
        match number {
            APIC_BASE => pc.apic_base = value,
            SYSENTER..=SYSENTER_LAST => {
                pc.sysenter[(number - SYSENTER) as usize] = value;
                self.utcb.sysenter = pc.sysenter;
                self.changed = self.changed.with(Parts::SYSENTER);
            }
            TSC_DEADLINE => {
                apic.set_deadline(value);
                timer::set(apic.deadline());
                self.has_work = true;
            }
            APIC..=APIC_LAST => {
                apic.write_msr(number, value, now())?;
                timer::set(apic.deadline());
                self.has_work = true;
            }
            KVM_WALL_CLOCK => {
                let seconds = rtc::seconds();
                self.memory.write(value, &pvclock::wall_clock(seconds))?;
            }
            KVM_CLOCK => return self.start_clock(value),
            TSC_AUX => {
                pc.tsc_aux = value;
                self.utcb.tsc_aux = value;
                self.changed = self.changed.with(Parts::TSC_AUX);
            }
            _ => pc.kept[kept(number)?] = value,
        }
        Some(())
    }

    /// Writes the clock to the address in `value` if its lowest bit enables it.
    fn start_clock(&mut self, value: u64) -> Option<()> {
        let start = self.pc.as_ref()?.start;
        match value & 1 {
            0 => Some(()),
            _ => self.memory.write(value & !1, &pvclock::clock(start)),
        }
    }
}

fn kept(number: u32) -> Option<usize> {
    KEPT.iter().position(|(kept, _)| *kept == number)
}
