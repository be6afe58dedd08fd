//! The run loop on the fake hypervisor.

use super::*;
use crate::console::Console;
use std::fs::File;
use std::io::{pipe, Read};
use std::os::fd::AsRawFd;
use trapline_abi::platform::{
    DEBUG_CONSOLE, EXIT, EXITS_LOW, EXIT_DONE, IDLE, SERIAL_SCRATCH, SPACES, VIRTIO_MAGIC,
    VIRTIO_MMIO,
};
use trapline_abi::spaces::{FAULT, FAULTS_BY_PORT, FAULT_ADDRESS, FLUSH, LOAD, OPEN};
use trapline_interface::fake::{Fake, FakeVcpu, Script, Step};
use trapline_interface::{
    Access, Activity, BootState, Controllers, Exit, Hypervisor, IoAddr, RegSet, Stop, VcpuId,
    VcpuState, Vm, VmSpec,
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
    vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)
        .unwrap();
    let input = std::mem::ManuallyDrop::new(File::open("/dev/null").unwrap());
    let console = Console::new(output.as_raw_fd(), input.as_raw_fd(), vcpu.kicker());
    Machine::new(vcpu, Host::new(console), memory, Some(Gpa(COUNT)), 3)
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

const REQUEST: u64 = 0x200;

/// Stores a request for address spaces and makes it.
fn request_space(address: u64, operation: u64, first: u64) -> Step {
    let words = [operation, first, 0, 7].map(u64::to_le_bytes);
    write(SPACES, 4, address).storing(Gpa(REQUEST), &words.concat())
}

/// Runs a guest with the page table at 0x5000, whose last page fault was at 0x1234. Returns CR3 and the request's last word.
fn run_in_spaces(requests: &[(u64, u64, u64)]) -> (u64, u64) {
    let (_reader, writer) = pipe().unwrap();
    let steps = requests
        .iter()
        .map(|(address, operation, first)| request_space(*address, *operation, *first));
    let last = write(EXIT, 4, EXIT_DONE.into());
    let mut machine = machine(steps.chain([last]).collect(), &writer);
    let mut system = machine.vcpu.state(RegSet::SYSTEM).unwrap().system.unwrap();
    (system.cr2, system.cr3) = (0x1234, 0x5000);
    let state = VcpuState {
        system: Some(system),
        ..VcpuState::default()
    };
    machine.vcpu.set_state(&state).unwrap();
    assert_eq!(machine.run(|| ()).unwrap(), StopReason::Done);
    let system = machine.vcpu.state(RegSet::SYSTEM).unwrap().system.unwrap();
    let word = machine.devices.memory.load64(REQUEST + FAULT_ADDRESS);
    (system.cr3, word.unwrap())
}

#[test]
fn guest_at_ring_3_loads_page_tables_of_its_memory() {
    let load = |table| run_in_spaces(&[(REQUEST, LOAD, table)]).0;
    assert_eq!(load(0), 0);
    for invalid in [8, 4096, u64::MAX, 1 << 52] {
        assert_eq!(load(invalid), 0x5000, "{invalid:#x}");
    }
    assert_eq!(run_in_spaces(&[(REQUEST, FLUSH, 0)]).0, 0x5000);
}

#[test]
fn guest_at_ring_3_reads_the_address_of_its_page_fault() {
    assert_eq!(run_in_spaces(&[(REQUEST, FAULT, 0)]).1, 0x1234);
    assert_eq!(run_in_spaces(&[(REQUEST, OPEN, 0), (REQUEST, 99, 0)]).1, 7);
    for outside in [4096, 4096 - 24, u32::MAX.into()] {
        assert_eq!(run_in_spaces(&[(outside, FAULT, 0)]), (0x5000, 7));
    }
}

#[test]
fn port_of_address_spaces_answers_at_ring_3() {
    run_script(vec![
        read(SPACES, 4),
        write(EXIT, 4, EXIT_DONE.into()).answered(FAULTS_BY_PORT.into()),
    ]);
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
