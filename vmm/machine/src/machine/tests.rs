//! The run loop on the fake hypervisor.

use super::*;
use crate::console::Console;
use std::fs::File;
use std::io::{pipe, Read};
use std::os::fd::AsRawFd;
use trapline_abi::platform::{
    DEBUG_CONSOLE, EXIT, EXITS_LOW, EXIT_DONE, IDLE, SERIAL_SCRATCH, VIRTIO_MAGIC, VIRTIO_MMIO,
};
use trapline_interface::fake::{Fake, FakeVcpu, Script, Step};
use trapline_interface::{
    Activity, BootState, Controllers, Exit, Hypervisor, IoAddr, RegSet, Stop, VcpuId, Vm, VmSpec,
};
use trapline_monitor::ExitCounts;

const COUNT: u64 = 0x100;

fn write(port: u16, size: u8, data: u64) -> Step {
    let at = IoAddr::Port(port);
    Step::new(Exit::Write { at, size, data })
}

fn read(port: u16, size: u8) -> Step {
    let at = IoAddr::Port(port);
    Step::new(Exit::Read { at, size })
}

/// Creates a VM that replays `script`, with its console on `output`.
fn machine(mut script: Script, output: &impl AsRawFd) -> Machine<FakeVcpu> {
    script.insert(0, Step::new(Exit::Started));
    let vm = Fake::replaying([script])
        .create_vm(&VmSpec::with(Controllers::Local))
        .unwrap();
    let vcpu = vm
        .create_vcpu(VcpuId(0), Some(&BootState::default()))
        .unwrap();
    let memory = Arc::new(Region::new(4096).unwrap());
    memory.write(COUNT, &7u32.to_le_bytes()).unwrap();
    let input = std::mem::ManuallyDrop::new(File::open("/dev/null").unwrap());
    let console = Console::new(output.as_raw_fd(), input.as_raw_fd(), vcpu.kicker());
    Machine::new(vcpu, Host::new(console), memory, Some(Gpa(COUNT)))
}

fn run_script(script: Script) -> (StopReason, ExitCounts, Vec<u8>) {
    let (mut reader, writer) = pipe().unwrap();
    let mut machine = machine(script, &writer);
    let mut started = false;
    let reason = machine.run(|| started = true).unwrap();
    assert!(started);
    drop(writer);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    (reason, machine.exits.counts(), said)
}

#[test]
fn devices_answer_and_exits_are_counted() {
    let at = IoAddr::Mmio(VIRTIO_MMIO);
    let (ending, totals, said) = run_script(vec![
        write(DEBUG_CONSOLE, 1, b'o'.into()),
        write(DEBUG_CONSOLE, 1, b'k'.into()),
        write(SERIAL_SCRATCH, 1, 0x5a),
        read(SERIAL_SCRATCH, 1),
        Step::new(Exit::Read { at, size: 4 }).answered(0x5a),
        read(0x9999, 2).answered(VIRTIO_MAGIC.into()),
        read(EXITS_LOW, 4).answered(u32::MAX.into()),
        write(EXIT, 4, EXIT_DONE.into()).answered(7),
    ]);
    assert_eq!(ending, StopReason::Done);
    assert_eq!(said, b"ok");
    let expected = ExitCounts {
        port: 7,
        mmio: 1,
        ..ExitCounts::default()
    };
    assert_eq!(totals, expected);
}

#[test]
fn hypercalls_are_refused() {
    let call = Exit::Hypercall {
        number: 1,
        args: [0; 4],
    };
    let (ending, totals, _) = run_script(vec![
        Step::new(call),
        Step::new(Exit::Stopped(Stop::TripleFault)).answered(u64::MAX),
    ]);
    assert_eq!(ending, StopReason::Stopped(Stop::TripleFault));
    assert_eq!(totals.all(), 2);
}

#[test]
fn idle_halts_only_without_a_new_interrupt() {
    for (seen, activity) in [(7, Activity::Halted), (6, Activity::Running)] {
        let (_reader, writer) = pipe().unwrap();
        let script = vec![write(IDLE, 4, seen), Step::new(Exit::Halted)];
        let mut machine = machine(script, &writer);
        assert_eq!(machine.run(|| ()).unwrap(), StopReason::Halted);
        let state = machine.vcpu.state(RegSet::ACTIVITY).unwrap();
        assert_eq!(state.activity, Some(activity));
        assert_eq!(machine.exits.counts().halt, 2);
    }
}

#[test]
fn spurious_kick_is_ignored() {
    let (_reader, writer) = pipe().unwrap();
    let script = vec![Step::new(Exit::Kicked), write(EXIT, 4, 0x99)];
    let mut machine = machine(script, &writer);
    machine.vcpu.kicker().kick();
    assert_eq!(machine.run(|| ()).unwrap(), StopReason::Other(0x99));
}

#[test]
fn hypervisor_error_is_returned() {
    let (_reader, writer) = pipe().unwrap();
    let script = vec![read(SERIAL_SCRATCH, 1), write(EXIT, 4, 0).answered(0x77)];
    let failure = machine(script, &writer).run(|| ()).unwrap_err();
    assert_eq!(failure.status(), 5);
}
