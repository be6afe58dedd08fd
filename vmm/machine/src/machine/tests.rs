//! The loop, tried on the fake: no kernel is needed to see that it answers as it
//! should.

use super::*;
use std::fs::File;
use std::io::{pipe, Read};
use std::os::fd::AsRawFd;
use trapline_abi::platform::{
    DEBUG_CONSOLE, EXIT, EXITS_LOW, EXIT_DONE, IDLE, SCRATCH, VIRTIO_MAGIC, VIRTIO_MMIO,
};
use trapline_interface::fake::{Fake, FakeVcpu, Script, Step};
use trapline_interface::{BootState, Controllers, Hypervisor, RegSet, Stop, VcpuId, Vm, VmSpec};

const COUNT: u64 = 0x100;

fn write(port: u16, size: u8, data: u64) -> Step {
    let at = IoAddr::Port(port);
    Step::new(Exit::Write { at, size, data })
}

fn read(port: u16, size: u8) -> Step {
    let at = IoAddr::Port(port);
    Step::new(Exit::Read { at, size })
}

/// A machine that replays `script`, and what its console says goes to `output`.
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
    Machine::new(vcpu, console, memory, Some(Gpa(COUNT)))
}

fn run(script: Script) -> (Ending, Totals, Vec<u8>) {
    let (mut reader, writer) = pipe().unwrap();
    let mut machine = machine(script, &writer);
    let mut started = false;
    let ending = machine.run(|| started = true).unwrap();
    assert!(started);
    drop(writer);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    (ending, machine.totals(), said)
}

#[test]
fn devices_answer_and_everything_is_counted() {
    let at = IoAddr::Mmio(VIRTIO_MMIO);
    let (ending, totals, said) = run(vec![
        write(DEBUG_CONSOLE, 1, b'o'.into()),
        write(DEBUG_CONSOLE, 1, b'k'.into()),
        write(SCRATCH, 1, 0x5a),
        read(SCRATCH, 1),
        Step::new(Exit::Read { at, size: 4 }).answered(0x5a),
        read(0x9999, 2).answered(VIRTIO_MAGIC.into()),
        read(EXITS_LOW, 4).answered(u32::MAX.into()),
        write(EXIT, 4, EXIT_DONE.into()).answered(7),
    ]);
    assert_eq!(ending, Ending::Done);
    assert_eq!(said, b"ok");
    let wanted = Totals {
        user_exits: 8,
        kernel_exits: None,
        ports: 7,
        mmio: 1,
        halts: 0,
        unclaimed: 1,
    };
    assert_eq!(totals, wanted);
}

#[test]
fn hypercalls_are_refused() {
    let call = Exit::Hypercall {
        number: 1,
        args: [0; 4],
    };
    let (ending, totals, _) = run(vec![
        Step::new(call),
        Step::new(Exit::Stopped(Stop::TripleFault)).answered(u64::MAX),
    ]);
    assert_eq!(ending, Ending::Stopped(Stop::TripleFault));
    assert_eq!(totals.user_exits, 2);
}

#[test]
fn idling_halts_only_if_no_interrupt_has_come_meanwhile() {
    for (seen, activity) in [(7, Activity::Halted), (6, Activity::Running)] {
        let (_reader, writer) = pipe().unwrap();
        let script = vec![write(IDLE, 4, seen), Step::new(Exit::Halted)];
        let mut machine = machine(script, &writer);
        assert_eq!(machine.run(|| ()).unwrap(), Ending::Halted);
        let state = machine.vcpu.state(RegSet::ACTIVITY).unwrap();
        assert_eq!(state.activity, Some(activity));
        assert_eq!(machine.totals().halts, 2);
    }
}

#[test]
fn a_kick_without_a_reason_changes_nothing() {
    let (_reader, writer) = pipe().unwrap();
    let script = vec![Step::new(Exit::Kicked), write(EXIT, 4, 0x99)];
    let mut machine = machine(script, &writer);
    machine.vcpu.kicker().kick();
    assert_eq!(machine.run(|| ()).unwrap(), Ending::Other(0x99));
}

#[test]
fn a_script_that_the_machine_leaves_is_an_error() {
    let (_reader, writer) = pipe().unwrap();
    let script = vec![read(SCRATCH, 1), write(EXIT, 4, 0).answered(0x77)];
    let failure = machine(script, &writer).run(|| ()).unwrap_err();
    assert_eq!(failure.status(), 5);
}
