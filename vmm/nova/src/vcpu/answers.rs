//! Answers to `cpuid`, `rdmsr` and `wrmsr`, which other kernels give themselves.

use super::pc::add_features;
use super::{NovaVcpu, Technology, APIC_BASE, APIC_ENABLED};
use crate::utcb::Parts;
use core::arch::x86_64::__cpuid_count;
use trapline_emulation::GuestRegisters;

/// Features of leaf 1 that a guest does not have: MONITOR, VMX, SMX, x2APIC, TSC deadline, XSAVE and OSXSAVE, AVX, F16C
/// (AMD APM volume 3, appendix E; Intel SDM volume 2, CPUID).
const HIDDEN_1: u32 =
    1 << 3 | 1 << 5 | 1 << 6 | 1 << 21 | 1 << 24 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 29;
/// FMA needs XSAVE, too.
const FMA: u32 = 1 << 12;
/// A hypervisor is present.
const HYPERVISOR: u32 = 1 << 31;
/// Feature SVM of leaf 0x80000001.
const SVM: u32 = 1 << 2;
/// Leaves of XSAVE, of extended features with AVX2, and of SVM.
const EXTENDED_FEATURES: u32 = 7;
const XSAVE_LEAF: u32 = 0xd;
const SVM_LEAF: u32 = 0x8000_000a;
/// First leaf of hypervisors.
const HYPERVISOR_LEAF: u32 = 0x4000_0000;
const SIGNATURE: [u32; 3] = [
    u32::from_le_bytes(*b"Trap"),
    u32::from_le_bytes(*b"line"),
    u32::from_le_bytes(*b"NOVA"),
];

/// Numbers of MSRs (AMD APM volume 2, appendix A).
const EFER: u32 = 0xc000_0080;
const STAR: u32 = 0xc000_0081;
const SFMASK: u32 = 0xc000_0084;
const FS_BASE: u32 = 0xc000_0100;
const GS_BASE: u32 = 0xc000_0101;
const KERNEL_GS_BASE: u32 = 0xc000_0102;

impl<T: Technology> NovaVcpu<T> {
    pub(super) fn cpuid(&mut self) {
        let (leaf, subleaf) = (self.utcb.rax as u32, self.utcb.rcx as u32);
        let mut answer = __cpuid_count(leaf, subleaf);
        match leaf {
            1 => answer.ecx = answer.ecx & !(HIDDEN_1 | FMA) | HYPERVISOR,
            EXTENDED_FEATURES if self.pc.is_some() => {}
            EXTENDED_FEATURES | XSAVE_LEAF | SVM_LEAF => {
                (answer.eax, answer.ebx, answer.ecx, answer.edx) = (0, 0, 0, 0);
            }
            0x8000_0001 => answer.ecx &= !SVM,
            HYPERVISOR_LEAF => {
                answer.eax = HYPERVISOR_LEAF;
                [answer.ebx, answer.ecx, answer.edx] = SIGNATURE;
            }
            _ => {}
        }
        if self.pc.is_some() {
            add_features(leaf, subleaf, &mut answer);
        }
        self.utcb.rax = answer.eax.into();
        self.utcb.rbx = answer.ebx.into();
        self.utcb.rcx = answer.ecx.into();
        self.utcb.rdx = answer.edx.into();
        self.changed = self.changed.with(Parts::ACDB);
        self.skip(2);
    }

    /// Answers `rdmsr` or `wrmsr`. An MSR that is not listed causes a general protection fault.
    pub(super) fn msr(&mut self) {
        let is_write = T::is_msr_write(self.utcb);
        let number = self.utcb.rcx as u32;
        if !is_write && number == APIC_BASE && self.pc.is_none() {
            self.answer_read(APIC_ENABLED);
            return;
        }
        let written = self.utcb.rdx << 32 | self.utcb.rax & 0xffff_ffff;
        let Some((value, part)) = self.place(number) else {
            return self.pc_msr(number, is_write.then_some(written));
        };
        if is_write {
            *value = match number {
                EFER => written | T::EFER,
                _ => written,
            };
            self.changed = self.changed.with(part);
            self.skip(2);
        } else {
            let value = match number {
                EFER => *value & !T::EFER,
                _ => *value,
            };
            self.answer_read(value);
        }
    }

    /// Returns the place of an MSR in the message, and its part.
    fn place(&mut self, number: u32) -> Option<(&mut u64, Parts)> {
        let utcb = &mut *self.utcb;
        Some(match number {
            EFER => (&mut utcb.efer, Parts::EFER),
            STAR..=SFMASK => {
                let index = (number - STAR) as usize;
                (&mut utcb.syscall[index], Parts::SYSCALL)
            }
            KERNEL_GS_BASE => (&mut utcb.syscall[4], Parts::SYSCALL),
            FS_BASE | GS_BASE => (utcb.segment_base(number == GS_BASE), Parts::FS_GS),
            _ => return None,
        })
    }

    pub(super) fn answer_read(&mut self, value: u64) {
        self.utcb.set(0, 4, value);
        self.utcb.set(2, 4, value >> 32);
        self.changed = self.changed.with(Parts::ACDB);
        self.skip(2);
    }
}
