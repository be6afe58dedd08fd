//! A guest at ring 3 that attacks, and checks of its process.

use std::fs;
use std::sync::{Arc, Once};
use trapline_interface::{
    Access, BootState, Controllers, Entry, Exit, General, Gpa, Hypervisor, RegSet, Region, Segment,
    Stop, System, Vcpu, VcpuId, Vm, VmSpec, PAGE,
};
use trapline_process::{Config, Crossing, Process, ProcessVcpu, ProcessVm};
use trapline_skip::skip;

pub const MEMORY: usize = 4 << 20;
/// Page tables: identity map of the first GiB.
pub const TOP: u64 = 0x10_0000;
pub const MIDDLE: u64 = 0x10_1000;
pub const LOWEST: u64 = 0x10_2000;
pub const CODE: u64 = 0x20_0000;
pub const STACK: u64 = 0x30_0000;
/// A page of memory of its own.
pub const OTHER_MEMORY: u64 = 0x80_0000;
/// Addresses of the backend's own pages in the process.
pub const SWITCHER: u64 = 0x6fff_0000_0000;
pub const ALIAS: u64 = 0x7000_0000_0000;

pub const SYSCALL: [u8; 2] = [0x0f, 0x05];
pub const INT_80: [u8; 2] = [0xcd, 0x80];
pub const SYSENTER: [u8; 2] = [0x0f, 0x34];
pub const UNDEFINED: [u8; 2] = [0x0f, 0x0b];

pub struct Attack {
    pub vm: ProcessVm,
    pub vcpu: ProcessVcpu,
    pub memory: Arc<Region>,
}

pub fn segment(attributes: u16) -> Segment {
    Segment {
        attributes,
        limit: u32::MAX,
        ..Segment::default()
    }
}

/// Starts `code` at ring 3, without an interrupt table: every exception ends the guest.
pub fn attack(code: &[u8]) -> Attack {
    attack_by(Crossing::Ptrace, code)
}

/// A mechanism for each way of controlling the process.
pub const CONTROLS: [Crossing; 4] = [
    Crossing::Ptrace,
    Crossing::Dispatch,
    Crossing::Trap,
    Crossing::Notify,
];

/// Starts `code` with this mechanism for hypercalls.
pub fn attack_by(crossing: Crossing, code: &[u8]) -> Attack {
    attack_with(crossing.into(), code)
}

/// Starts `code` with these options.
pub fn attack_with(config: Config, code: &[u8]) -> Attack {
    const TABLE: u64 = 0x27;
    const LARGE: u64 = 0xe7;
    let memory = Arc::new(Region::new(MEMORY).unwrap());
    let put = |at: u64, value: u64| memory.write(at, &value.to_le_bytes()).unwrap();
    put(TOP, MIDDLE | TABLE);
    put(MIDDLE, LOWEST | TABLE);
    (0..512).for_each(|index| put(LOWEST + index * 8, index << 21 | LARGE));
    memory.write(CODE, code).unwrap();
    let backend = Process::configured(config);
    let vm = backend
        .create_vm(&VmSpec::with(Controllers::Local))
        .unwrap();
    vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)
        .unwrap();
    let other = Arc::new(Region::new(PAGE).unwrap());
    vm.attach(Gpa(OTHER_MEMORY), other, Access::ReadWrite)
        .unwrap();
    let boot = BootState {
        general: General {
            rip: CODE,
            rsp: STACK,
            rflags: 0x202,
            ..General::default()
        },
        system: System {
            cs: segment(0xafb),
            cr0: 0x8000_0033,
            cr3: TOP,
            ..System::default()
        },
    };
    let mut vcpu = vm.create_vcpu(VcpuId(0), Some(&boot)).unwrap();
    assert_eq!(vcpu.run(Entry::Resume).unwrap(), Exit::Started);
    Attack { vm, vcpu, memory }
}

pub fn registers(attack: &mut Attack) -> General {
    attack.vcpu.state(RegSet::GENERAL).unwrap().general.unwrap()
}

impl Attack {
    pub fn run(&mut self) -> Exit {
        self.run_with(u64::MAX)
    }

    pub fn run_with(&mut self, answer: u64) -> Exit {
        self.vcpu.run(Entry::Answer(answer)).unwrap()
    }

    pub fn set(&mut self, change: impl FnOnce(&mut General)) {
        let state = self.vcpu.state(RegSet::GENERAL).unwrap();
        let mut general = state.general.unwrap();
        change(&mut general);
        self.vcpu.set_state(&general.into()).unwrap();
    }

    pub fn expect_triple_fault(&mut self, what: &str) {
        assert_eq!(self.run(), Exit::Stopped(Stop::TripleFault), "{what}");
    }

    /// Returns whether the process exists, and is not a zombie.
    pub fn is_alive(&self) -> bool {
        is_alive(self.vcpu.process())
    }

    /// Checks that each process is confined, and has guest memory, the switcher, and nothing else. One may have been killed
    /// by its filter.
    pub fn expect_sandbox(&self) {
        let processes = self.vcpu.processes();
        let is_single = processes.len() == 1;
        for process in processes {
            if is_single || is_alive(process) {
                expect_confined(process);
            }
        }
    }
}

/// Returns whether a process exists, and is not a zombie.
fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

fn expect_confined(process: u32) {
    let folder = format!("/proc/{process}");
    let status = fs::read_to_string(format!("{folder}/status")).unwrap();
    for (name, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")] {
        assert!(status.contains(&format!("{name}:\t{value}")), "{status}");
    }
    let Ok(maps) = fs::read_to_string(format!("{folder}/maps")) else {
        static REPORTED: Once = Once::new();
        REPORTED.call_once(|| {
            skip(
                "mappings of a sandboxed process",
                "they can be read by root only",
            );
        });
        return;
    };
    for line in maps.lines() {
        let is_own = line.contains("guest-memory") || line.contains("[vsyscall]");
        assert!(is_own, "{line}");
    }
    assert_eq!(fs::read_dir(format!("{folder}/fd")).unwrap().count(), 0);
}
