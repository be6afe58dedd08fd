//! The interface's registers as KVM has them, and back.

use kvm_bindings::{kvm_dtable, kvm_regs, kvm_segment, kvm_sregs};
use trapline_interface::{General, Segment, System, Table};

pub(crate) fn to_regs(g: &General) -> kvm_regs {
    kvm_regs {
        rax: g.rax,
        rbx: g.rbx,
        rcx: g.rcx,
        rdx: g.rdx,
        rsi: g.rsi,
        rdi: g.rdi,
        rsp: g.rsp,
        rbp: g.rbp,
        r8: g.r8,
        r9: g.r9,
        r10: g.r10,
        r11: g.r11,
        r12: g.r12,
        r13: g.r13,
        r14: g.r14,
        r15: g.r15,
        rip: g.rip,
        rflags: g.rflags,
    }
}

pub(crate) fn from_regs(r: &kvm_regs) -> General {
    General {
        rax: r.rax,
        rbx: r.rbx,
        rcx: r.rcx,
        rdx: r.rdx,
        rsi: r.rsi,
        rdi: r.rdi,
        rsp: r.rsp,
        rbp: r.rbp,
        r8: r.r8,
        r9: r.r9,
        r10: r.r10,
        r11: r.r11,
        r12: r.r12,
        r13: r.r13,
        r14: r.r14,
        r15: r.r15,
        rip: r.rip,
        rflags: r.rflags,
    }
}

/// Overwrites in `sregs` what `system` holds, and nothing else.
pub(crate) fn put_system(system: &System, sregs: &mut kvm_sregs) {
    sregs.cs = to_segment(&system.cs);
    sregs.ds = to_segment(&system.ds);
    sregs.es = to_segment(&system.es);
    sregs.fs = to_segment(&system.fs);
    sregs.gs = to_segment(&system.gs);
    sregs.ss = to_segment(&system.ss);
    sregs.tr = to_segment(&system.tr);
    sregs.ldt = to_segment(&system.ldt);
    sregs.gdt = to_dtable(&system.gdt);
    sregs.idt = to_dtable(&system.idt);
    sregs.cr0 = system.cr0;
    sregs.cr3 = system.cr3;
    sregs.cr4 = system.cr4;
    sregs.efer = system.efer;
}

pub(crate) fn from_sregs(sregs: &kvm_sregs) -> System {
    System {
        cs: from_segment(&sregs.cs),
        ds: from_segment(&sregs.ds),
        es: from_segment(&sregs.es),
        fs: from_segment(&sregs.fs),
        gs: from_segment(&sregs.gs),
        ss: from_segment(&sregs.ss),
        tr: from_segment(&sregs.tr),
        ldt: from_segment(&sregs.ldt),
        gdt: from_dtable(&sregs.gdt),
        idt: from_dtable(&sregs.idt),
        cr0: sregs.cr0,
        cr3: sregs.cr3,
        cr4: sregs.cr4,
        efer: sregs.efer,
    }
}

fn to_segment(segment: &Segment) -> kvm_segment {
    let bits = |shift: u16, mask: u16| (segment.attributes >> shift & mask) as u8;
    let present = bits(7, 1);
    kvm_segment {
        base: segment.base,
        limit: segment.limit,
        selector: segment.selector,
        type_: bits(0, 15),
        s: bits(4, 1),
        dpl: bits(5, 3),
        present,
        avl: bits(8, 1),
        l: bits(9, 1),
        db: bits(10, 1),
        g: bits(11, 1),
        unusable: 1 - present,
        padding: 0,
    }
}

fn from_segment(segment: &kvm_segment) -> Segment {
    let bits = |value: u8, shift: u16| u16::from(value) << shift;
    Segment {
        selector: segment.selector,
        attributes: bits(segment.type_, 0)
            | bits(segment.s, 4)
            | bits(segment.dpl, 5)
            | bits(segment.present, 7)
            | bits(segment.avl, 8)
            | bits(segment.l, 9)
            | bits(segment.db, 10)
            | bits(segment.g, 11),
        limit: segment.limit,
        base: segment.base,
    }
}

fn to_dtable(table: &Table) -> kvm_dtable {
    kvm_dtable {
        base: table.base,
        limit: table.limit,
        ..Default::default()
    }
}

fn from_dtable(table: &kvm_dtable) -> Table {
    Table {
        base: table.base,
        limit: table.limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_survive_the_way_there_and_back() {
        let segment = |seed: u16| Segment {
            selector: seed,
            attributes: (seed * 0x111) & 0xfff | 0x80,
            limit: u32::from(seed) << 12,
            base: u64::from(seed) << 32,
        };
        let table = |seed: u64| Table {
            base: seed << 20,
            limit: seed as u16,
        };
        let system = System {
            cs: segment(1),
            ds: segment(2),
            es: segment(3),
            fs: segment(4),
            gs: segment(5),
            ss: segment(6),
            tr: segment(7),
            ldt: segment(8),
            gdt: table(9),
            idt: table(10),
            cr0: 11,
            cr3: 12,
            cr4: 13,
            efer: 14,
        };
        let mut sregs = kvm_sregs::default();
        put_system(&system, &mut sregs);
        assert_eq!(from_sregs(&sregs), system);
        let general = General {
            rax: 1,
            r15: 2,
            rip: 3,
            rflags: 4,
            ..General::default()
        };
        assert_eq!(from_regs(&to_regs(&general)), general);
    }
}
