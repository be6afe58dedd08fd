//! Conversion between the interface's registers and KVM's.

use kvm_bindings::{kvm_dtable, kvm_regs, kvm_segment, kvm_sregs};
use trapline_interface::{General, Segment, System, Table};

/// Builds a structure from fields of the same names.
macro_rules! copy_fields {
    ($from:expr => $to:ident { $($field:ident),* }) => {
        $to { $($field: $from.$field),* }
    };
}

#[rustfmt::skip]
macro_rules! copy_general {
    ($from:expr => $to:ident) => {
        copy_fields!($from => $to {
            rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags
        })
    };
}

pub(crate) fn to_regs(general: &General) -> kvm_regs {
    copy_general!(general => kvm_regs)
}

pub(crate) fn from_regs(regs: &kvm_regs) -> General {
    copy_general!(regs => General)
}

/// Applies a macro to segments, tables and control registers.
macro_rules! with_system_fields {
    ($apply:ident) => {
        $apply!(
            [cs, ds, es, fs, gs, ss, tr, ldt],
            [gdt, idt],
            [cr0, cr2, cr3, cr4, efer]
        )
    };
}

/// Writes `system` into `sregs` and leaves the other fields.
pub(crate) fn put_system(system: &System, sregs: &mut kvm_sregs) {
    macro_rules! put {
        ([$($segment:ident),*], [$($table:ident),*], [$($number:ident),*]) => {
            $(sregs.$segment = to_segment(&system.$segment);)*
            $(sregs.$table = to_dtable(&system.$table);)*
            $(sregs.$number = system.$number;)*
        };
    }
    with_system_fields!(put);
}

pub(crate) fn from_sregs(sregs: &kvm_sregs) -> System {
    macro_rules! get {
        ([$($segment:ident),*], [$($table:ident),*], [$($number:ident),*]) => {
            System {
                $($segment: from_segment(&sregs.$segment),)*
                $($table: from_dtable(&sregs.$table),)*
                $($number: sregs.$number,)*
            }
        };
    }
    with_system_fields!(get)
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
    fn registers_round_trip() {
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
            cr2: 12,
            cr3: 13,
            cr4: 14,
            efer: 15,
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
