use super::*;
use std::collections::BTreeSet;
use std::format;
use std::vec::Vec;

#[test]
fn every_row_of_the_table_is_consistent() {
    let mut paths = BTreeSet::new();
    for op in Op::ALL {
        let path = format!("{}/{}", op.workload().name(), op.name());
        assert_eq!(Op::from_number(op.number()), Some(op));
        assert_eq!(Op::from_path(&path), Some(op));
        assert!(OpSet::from(op).contains(op), "{path} is not in a set");
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(op.name().chars().all(is_plain), "{path}");
        assert!((10..=120).contains(&op.description().len()), "{path}");
        assert!(!op.description().ends_with('.'), "{path}");
        assert!(paths.insert(path), "two operations have one name");
    }
    assert_eq!(Op::from_path("exits/port-oot"), None);
    assert_eq!(Op::from_number(254), None);
}

#[test]
fn rows_are_sorted_by_workload() {
    let by_workload = Workload::ALL.into_iter().flat_map(Workload::operations);
    assert_eq!(by_workload.collect::<Vec<_>>(), Op::ALL);
}

#[test]
fn workloads_that_need_one_capability_need_it_for_all_operations() {
    assert_eq!(Need::Processes.operations(), Workload::System.set());
    assert_eq!(Need::Hotplug.operations(), Workload::Populate.set());
    assert_eq!(Need::Disk.operations(), Workload::Block.set());
    assert_eq!(Need::Files.operations(), Workload::Files.set());
    assert_eq!(Need::Network.operations(), Workload::Net.set());
    let cpus = Workload::Ipc.set() | Workload::Smp.set();
    assert_eq!(Need::SecondCpu.operations(), cpus);
    let boot = Need::Launch.operations() | Need::VirtualMachine.operations();
    assert_eq!(boot, Workload::Boot.set());
}

#[test]
fn only_bandwidth_improves_upwards() {
    for op in Op::ALL {
        let is_stream = matches!(
            op,
            Op::SmpTriad
                | Op::TcpSend
                | Op::TcpReceive
                | Op::SendFile
                | Op::VsockSend
                | Op::VsockReceive
                | Op::Read1mWarm
                | Op::Read1mCold
                | Op::ReadLarge
                | Op::WriteLarge
        );
        let is_rate = op.workload() == Workload::Stream || is_stream;
        assert_eq!(op.unit() == Unit::Rate, is_rate, "{op:?}");
        assert_eq!(op.direction() == Direction::More, is_rate, "{op:?}");
    }
}

#[test]
fn a_wake_up_is_a_lateness_and_an_exit_is_work() {
    for op in [Op::TimerWake, Op::OwnTimer, Op::Read4k1, Op::BootSample] {
        assert!(op.is_lateness(), "{op:?}");
    }
    for op in [Op::PortOut, Op::Yield, Op::Attach0, Op::Copy] {
        assert!(!op.is_lateness(), "{op:?}");
    }
}
