use super::*;
use crate::workload::Workload;
use std::collections::BTreeSet;
use std::format;
use std::vec::Vec;

const SOME: OpSet = OpSet::of(&[Op::PortOut, Op::Getpid, Op::SmpShared]);

/// Set with two numbers that no operation has.
const UNKNOWN: OpSet = OpSet::from_words([1, 0, 0, 3 << 62]);

#[test]
fn operators_are_those_of_sets() {
    let ops = [
        Op::Getpid,
        Op::Fork,
        Op::Read4k1,
        Op::SmpPairs,
        Op::SmpShared,
    ];
    let subsets = (0..1 << ops.len()).map(|chosen: u32| {
        let members = (0..ops.len()).filter(|index| chosen & 1 << index != 0);
        members.map(|index| ops[index]).collect::<BTreeSet<_>>()
    });
    let subsets: Vec<BTreeSet<Op>> = subsets.collect();
    let set = |ops: &BTreeSet<Op>| ops.iter().copied().collect::<OpSet>();
    for one in &subsets {
        for other in &subsets {
            let (a, b) = (set(one), set(other));
            assert_eq!(a | b, set(&(one | other)));
            assert_eq!(a & b, set(&(one & other)));
            assert_eq!(a - b, set(&(one - other)));
            assert_eq!(a.intersects(b), !one.is_disjoint(other));
            assert_eq!(a.is_subset(b), one.is_subset(other));
            assert_eq!(a == b, one == other);
        }
        assert_eq!(set(one).len(), one.len());
        assert_eq!(set(one).is_empty(), one.is_empty());
        assert!(Op::ALL
            .iter()
            .all(|op| set(one).contains(*op) == one.contains(op)));
    }
}

#[test]
fn single_operations_are_operands() {
    assert_eq!(Op::PortOut | Op::Getpid | Op::SmpShared, SOME);
    assert_eq!(SOME - Op::PortOut, Op::SmpShared | OpSet::from(Op::Getpid));
    assert_eq!(SOME | Op::PortOut, SOME);
    let mut set = OpSet::EMPTY;
    set |= Op::Fork;
    set |= SOME;
    set -= Op::Getpid;
    assert_eq!(set, Op::Fork | Op::PortOut | Op::SmpShared);
}

#[test]
fn members_are_in_display_order_and_all_are_known() {
    assert_eq!(
        SOME.iter().collect::<Vec<_>>(),
        [Op::Getpid, Op::PortOut, Op::SmpShared]
    );
    assert_eq!(OpSet::ALL.iter().collect::<Vec<_>>(), Op::ALL);
    assert_eq!(OpSet::ALL.len(), Op::ALL.len());
    assert_eq!(
        Workload::ALL
            .into_iter()
            .map(Workload::set)
            .collect::<OpSet>(),
        OpSet::ALL
    );
    assert_eq!(OpSet::default(), OpSet::EMPTY);
}

#[test]
fn numbers_of_unknown_operations_are_kept() {
    assert_eq!(UNKNOWN.words(), [1, 0, 0, 3 << 62]);
    assert_eq!(UNKNOWN.len(), 3);
    assert_eq!(UNKNOWN.iter().collect::<Vec<_>>(), [Op::Getpid]);
    assert!(!UNKNOWN.is_subset(OpSet::ALL));
    assert_eq!(format!("{UNKNOWN:?}"), "{Getpid, 254, 255}");
    assert_eq!(format!("{SOME:?}"), "{Getpid, PortOut, SmpShared}");
    assert_eq!(format!("{:?}", OpSet::EMPTY), "{}");
}
