//! Process 1 of a simulated machine or a Linux guest.
//!
//! On a simulated machine the lab boots a distribution's kernel with an initramfs that contains this
//! program, a [`script`] that sets up the machine, and the programs to run. Then the machine pauses,
//! and may be saved; after that a second script, the [`job`], is executed. Records are sent through
//! a device of the machine, without terminals, interrupts or driver buffers, so that two runs send
//! the same bytes. During measurements this program sleeps, see [`guest`].

mod background;
mod custom_vmm;
mod cycles;
mod disk;
mod exec_trace;
mod guest;
mod guest_init;
mod job;
mod lengths;
mod line;
mod log;
mod network;
mod quiesce;
mod script;
mod together;
mod xen;

use crate::arch::announcement;
use crate::devices::Devices;
use crate::linux::HELLO;
use crate::sys::{insert_module, mount};
use background::Background;
use script::{Launch, Step, VmmKind};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use trapline_abi::Record;
use trapline_spawn::ticks;

/// Script that sets up the machine, in the initramfs.
const SETUP: &str = "/trapline/script";

/// Human-readable error message.
type Message = String;

/// Runs the task of this machine and ends the machine. `main` is the clock at the start of the
/// program, in ticks.
pub fn main(main: u64) -> ! {
    let task = mount("proc", "/proc").and_then(|()| guest_init::task());
    if let Ok(Some(guest_init::Task::Job(task))) = task {
        guest_init::run(&task, main)
    }
    let devices = match Devices::open() {
        Ok(devices) => devices,
        // Without the port the only message is that of the kernel when its init exits.
        Err(error) => panic!("no access to the machine's ports: {error}"),
    };
    std::panic::set_hook(Box::new(|info| send_panic(&info.to_string())));
    run_device_tests();
    match task {
        Ok(Some(guest_init::Task::Script(job))) => run_scripts(devices, Some(job)),
        Ok(_) => run_scripts(devices, None),
        Err(error) => send_panic(&format!("/proc: {error}")),
    }
}

/// Runs the device tests of the kernel command line. Returns only if there are none.
fn run_device_tests() {
    let tested = disk::test().and_then(|tested| Ok(network::test()? || tested));
    let tested = tested.and_then(|tested| Ok(tested || cycles::supervise()?));
    let logged = tested.and_then(|tested| {
        if tested {
            Devices::opened().end(trapline_abi::platform::EXIT_DONE)
        } else {
            log::test()
        }
    });
    match logged {
        Ok(false) => {}
        Ok(true) => power_off(),
        Err(message) => {
            // Machines without such a port have a console.
            println!("{message}");
            send_panic(&message)
        }
    }
}

/// Powers off the machine.
fn power_off() -> ! {
    // SAFETY: a valid command.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    send_panic("the kernel cannot power off this machine")
}

/// Runs the scripts of a simulated machine, or of a guest that was given its job.
fn run_scripts(mut devices: Devices, job: Option<String>) -> ! {
    devices.send(&HELLO, ticks());
    match run_both_scripts(&mut devices, job) {
        Ok(()) => {
            devices.send(&Record::Done, ticks());
            devices.end(trapline_abi::platform::EXIT_DONE)
        }
        Err(message) => send_panic(&message),
    }
}

/// Sends a panic record and ends the machine.
fn send_panic(message: &str) -> ! {
    let mut devices = Devices::opened();
    let message = trapline_abi::frame::truncate(message);
    devices.send(&Record::Panic { message }, ticks());
    devices.end(trapline_abi::platform::EXIT_PANIC)
}

/// Without a given job, the machine pauses before it reads its job.
fn run_both_scripts(devices: &mut Devices, job: Option<String>) -> Result<(), Message> {
    mount_all()?;
    let setup = fs::read_to_string(SETUP);
    let setup = setup.map_err(|error| format!("{SETUP}: {error}"))?;
    let lengths = run_script(SETUP, &setup, devices)?;
    let job = match job {
        Some(job) => job,
        None => {
            quiesce::across(|| devices.pause());
            job::read(devices).map_err(|error| format!("job: {error}"))?
        }
    };
    // The instrumentation is that of this start, which may be restored from a snapshot.
    for address in &lengths {
        let announced = announcement::announce(*address);
        announced.map_err(|error| format!("announcement of an address: {error}"))?;
    }
    run_script("job", &job, devices).map(drop)
}

/// Runs a script, which zeros may follow. Returns the addresses to announce before the job.
fn run_script(name: &str, script: &str, devices: &mut Devices) -> Result<Vec<u64>, Message> {
    let mut programs = Programs::default();
    let lines = script.lines().take_while(|line| !line.starts_with('\0'));
    for (line, number) in lines.zip(1..) {
        let at_line = |message| format!("{name}, line {number}: {message}");
        let step = script::parse(line).map_err(at_line)?;
        execute(step, &mut programs, devices).map_err(at_line)?;
    }
    Ok(programs.lengths)
}

/// State of a script, most of it for the programs that it launches.
#[derive(Default)]
struct Programs<'a> {
    /// Addresses to announce.
    lengths: Vec<u64>,
    background: Background,
    /// Environment variables of custom VMMs.
    variables: Vec<(String, OsString)>,
    /// Number of launches that start at the same moment.
    together: usize,
    /// Those of them that were read.
    launches: Vec<Launch<'a>>,
}

fn execute<'a>(
    step: Step<'a>,
    programs: &mut Programs<'a>,
    devices: &mut Devices,
) -> Result<(), Message> {
    match step {
        Step::Module { path, options } => {
            insert_module(path, options).map_err(|error| format!("module {path}: {error}"))
        }
        Step::Lengths(calls) => {
            programs.lengths.extend(lengths::addresses(&calls));
            Ok(())
        }
        Step::ControlGroup => {
            enter_control_group().map_err(|error| format!("control group: {error}"))
        }
        Step::Wait { path, text } => {
            wait_until(path, text).map_err(|error| format!("{path}: {error}"))
        }
        Step::File { path, text } => {
            fs::write(path, text).map_err(|error| format!("{path}: {error}"))
        }
        Step::Overwrite { path, offset, text } => {
            overwrite(path, offset, &text).map_err(|error| format!("{path}: {error}"))
        }
        Step::Variable { name, value } => {
            programs.variables.retain(|(known, _)| known != name);
            programs.variables.push((name.to_owned(), value.into()));
            Ok(())
        }
        Step::Disk { path, mib } => {
            let created = fs::File::create(path);
            let sized = created.and_then(|file| file.set_len(u64::from(mib) << 20));
            sized.map_err(|error| format!("{path}: {error}"))
        }
        Step::Xen {
            programs: directory,
            domain,
        } => xen::become_first_domain(directory, domain),
        Step::Load(load) => programs
            .background
            .start(&load)
            .map_err(|error| format!("{}: {error}", load.program)),
        Step::Sched(policy) => {
            programs.background.set_policy(policy);
            Ok(())
        }
        Step::Together(count) => {
            programs.together = count;
            Ok(())
        }
        Step::Launch(launch) => {
            let program = launch.program;
            let launched = programs.launch(launch, devices);
            launched.map_err(|error| format!("{program}: {error}"))
        }
    }
}

impl<'a> Programs<'a> {
    /// Runs a program, or all that start at the same moment if it is the last of them.
    fn launch(&mut self, launch: Launch<'a>, devices: &mut Devices) -> io::Result<()> {
        if self.together <= 1 {
            return self.launch_alone(&launch, devices);
        }
        self.launches.push(launch);
        if self.launches.len() < self.together {
            return Ok(());
        }
        self.together = 0;
        let launches = std::mem::take(&mut self.launches);
        together::run(&launches, &self.variables, devices)
    }

    fn launch_alone(&mut self, launch: &Launch<'_>, devices: &mut Devices) -> io::Result<()> {
        match launch.kind {
            VmmKind::Custom | VmmKind::CustomBehindWrapper => {
                custom_vmm::run(launch, &self.variables, devices)
            }
            VmmKind::Xen | VmmKind::XenConsole => xen::run(launch, devices),
            VmmKind::XenVmm => xen::run_vmm(launch, devices),
            VmmKind::Trapline | VmmKind::OffsetFromKernel => {
                guest::run(launch, &mut self.background, devices)
            }
        }
    }
}

/// Maximum number of reads of a file, every 10 ms.
const MAX_READS: u32 = 1000;

fn wait_until(path: &str, text: &str) -> io::Result<()> {
    for _ in 0..MAX_READS {
        if fs::read_to_string(path)?.trim_end() == text {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other(format!("does not become '{text}'")))
}

/// Enters a control group that accounts CPU time and memory (Linux, Documentation/admin-guide/cgroup-v2.rst).
fn enter_control_group() -> io::Result<()> {
    const ROOT: &str = "/sys/fs/cgroup";
    mount("cgroup2", ROOT)?;
    fs::write(format!("{ROOT}/cgroup.subtree_control"), "+cpu +memory")?;
    let group = format!("{ROOT}/vmm");
    fs::create_dir(&group)?;
    fs::write(format!("{group}/cgroup.procs"), "0")
}

fn overwrite(path: &str, offset: u64, text: &str) -> io::Result<()> {
    let file = fs::File::options().write(true).open(path)?;
    file.write_all_at(&[text.as_bytes(), b"\0"].concat(), offset)
}

fn mount_all() -> Result<(), Message> {
    for (kind, at) in [
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("debugfs", "/sys/kernel/debug"),
    ] {
        mount(kind, at).map_err(|error| format!("mount {kind} at {at}: {error}"))?;
    }
    Ok(())
}
