use super::programs::{create_vm_command, touching_job, LoadCommand, WorkCounter};
use super::*;
use crate::environment::Progress;
use crate::launch::FinishedLaunch;
use expect_test::expect;
use std::collections::BTreeMap;
use std::time::Duration;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::{Job, Op, Record};
use trapline_host::process::Command;
use trapline_host::Parts;
use trapline_model::{Competitor, Pin, Sched, COMPETITOR};
use trapline_skip::skip;

/// Returns a shell that writes its count as the agent does, and then runs `rest`.
fn shell(rest: &str) -> LoadCommand {
    let count = "printf '\\001\\000\\000\\000\\000\\000\\000\\000'";
    LoadCommand {
        name: "cpu",
        command: Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("{count}; {rest}")),
        unit: "turns",
        counter: WorkCounter::Number,
    }
}

fn limits() -> Limits {
    Limits::timeout(Duration::from_secs(60))
}

fn started(load: &LoadCommand) -> Result<Process, Error> {
    let mut process = Process::start(load)?;
    process.await_work(&limits())?;
    Ok(process)
}

#[test]
fn load_that_does_not_start_is_an_error_with_its_last_output() {
    let silent = LoadCommand {
        command: Command::new("/bin/sh").arg("-c").arg("echo no luck >&2"),
        ..shell("")
    };
    let error = started(&silent).err().unwrap().to_string();
    assert_eq!(error, "load cpu ended early; last output:\n  no luck");
}

/// Returns whether a child has ended, which has not been waited for.
fn has_ended(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.contains(") Z ")
}

#[test]
fn load_that_ends_early_or_idles_is_an_error() {
    let early = started(&shell("read word < /dev/null; exit 3"));
    // It may end before or after it is found to work.
    let error = early.and_then(|process| {
        while !has_ended(process.pid()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        process.end().map(drop)
    });
    let error = error.err().unwrap().to_string();
    assert_eq!(error, "load cpu ended early");
    let mut lazy = started(&shell("exec sleep 60")).unwrap();
    lazy.begin();
    let error = lazy.end().err().unwrap().to_string();
    assert_eq!(error, "load cpu did nothing while the guest was measured");
}

#[test]
fn work_of_a_busy_load_is_returned() {
    let mut busy = started(&shell("while :; do :; done")).unwrap();
    // Only the CPU time grows: the shell writes its count once.
    std::thread::sleep(Duration::from_millis(100));
    assert!(matches!(busy.end(), Ok(done) if done.name == "cpu"));
    busy = started(&shell("while :; do :; done")).unwrap();
    let pid = busy.pid();
    drop(busy);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

struct Facts(BTreeMap<String, String>);

impl SampleSink for Facts {
    fn progress(&mut self, _: Progress) {}

    fn fact(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), value);
    }

    fn finished(&mut self, _: FinishedLaunch) {}
}

/// Returns the programs of loads; otherwise records a test as skipped.
fn load_programs(feature: &str) -> Option<LoadPrograms> {
    let found = Parts::find().and_then(|parts| {
        let image = parts.image()?.path;
        Ok(LoadPrograms { parts, image })
    });
    found
        .map_err(|error| skip(feature, &format!("no built parts: {error}")))
        .ok()
}

/// Requires the agent, which 'make build' builds.
#[test]
fn agent_loads_work_and_their_work_is_a_fact() {
    let Some(programs) = load_programs("loads of the agent") else {
        return;
    };
    let affinity = Affinity::choose(Pin::Shared, Sched::Other).unwrap();
    let loads = "cpu:2,memory".parse().unwrap();
    let mut running = RunningLoads::start(&loads, &programs, &affinity, &limits()).unwrap();
    running.begin();
    std::thread::sleep(Duration::from_secs(1));
    let mut facts = Facts(BTreeMap::new());
    running.end(&mut facts).unwrap();
    let names: Vec<_> = facts.0.keys().map(String::as_str).collect();
    assert_eq!(names, ["load-0-cpu", "load-1-cpu", "load-2-memory"]);
    for work in facts.0.values() {
        assert!(work.ends_with(" ms of CPU time"), "{work}");
    }
}

/// Requires the agent, which 'make build' builds.
#[test]
fn competitors_have_the_lowest_priority_and_a_cpu_each() {
    let Some(programs) = load_programs("competitors") else {
        return;
    };
    let affinity = Affinity::choose(Pin::Free, Sched::Other).unwrap();
    let start = |which| Competitors::start(which, &programs, &affinity, &limits()).unwrap();
    let mut facts = Facts(BTreeMap::new());
    let mut none = start(Competitor::None);
    none.begin();
    none.end(&mut facts).unwrap();
    assert_eq!(facts.0, BTreeMap::new());
    let mut running = start(Competitor::SchedIdle);
    running.begin();
    let cpus = affinity.guest_cpus();
    let pids: Vec<i32> = running.pids().collect();
    assert_eq!(pids.len(), cpus.len());
    for (pid, cpu) in pids.iter().zip(cpus) {
        // SAFETY: takes a number.
        let policy = unsafe { libc::sched_getscheduler(*pid) };
        assert_eq!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_IDLE);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let allowed = format!("Cpus_allowed_list:\t{cpu}\n");
        assert!(status.contains(&allowed), "{status}");
    }
    running.end(&mut facts).unwrap();
    assert!(facts.0[COMPETITOR].contains("% of "), "{:?}", facts.0);
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn missing_requirement_is_a_reason_to_skip() {
    let programs = LoadPrograms {
        parts: Parts::in_directory("/nonexistent"),
        image: "/nonexistent".into(),
    };
    let commands = |loads: &str| programs.commands(&loads.parse().unwrap(), Duration::from_secs(1));
    let error = commands("cpu").err().unwrap().to_string();
    expect!["trapline-agent is not in /nonexistent: install the archive or the Debian package, which have all parts ('make dist' makes both), or run 'make build' and set TRAPLINE_PARTS to target/dist"].assert_eq(&error);
    let error = commands("create-vm:65536").err().unwrap().to_string();
    assert!(
        error.contains("create-vm:512") || error.contains("kvm"),
        "{error}"
    );
    assert!(commands("console-buffered").unwrap().is_empty());
}

#[test]
fn population_of_a_created_machine_is_an_option() {
    let arguments = |load: &str| {
        let Ok(trapline_model::Load::CreateVm(created)) = load.parse() else {
            panic!("{load} is another load");
        };
        let vmm = create_vm_command(Command::new("vmm"), 64, created);
        let words: Vec<_> = vmm
            .arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    };
    let demand = arguments("create-vm:64");
    assert_eq!(
        demand,
        format!("--memory 64M --cmdline {}", touching_job(64))
    );
    let whole = arguments("create-vm:64:2m:whole");
    let expected = "--memory 64M --pages 2m --prefault whole --cmdline trapline.run=none ";
    assert!(whole.starts_with(expected), "{whole}");
}

#[test]
fn a_created_machine_fills_its_memory() {
    let words = touching_job(2048);
    let job = Job::parse(words.split_ascii_whitespace()).unwrap();
    let touched = (24 * u64::from(job.doubles)) >> 20;
    assert!((2000..2048).contains(&touched), "{touched} MiB");
}

/// Returns a co-tenant that sends `record` and then idles.
fn guest_that_sends(record: &Record<'_>) -> (tempfile::TempDir, LoadCommand) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("output");
    let mut frame = [0; MAX_FRAME];
    let length = encode(record, 1, &mut frame).unwrap();
    std::fs::write(&path, &frame[..length]).unwrap();
    let script = format!("cat {}; exec sleep 60", path.display());
    let command = Command::new("/bin/sh").arg("-c").arg(script);
    (directory, super::co_tenant::load(command))
}

#[test]
fn co_tenant_works_when_it_sends_begin() {
    let begins = Record::Begin {
        op: Op::OwnTimer,
        clock_cost: 0,
        loop_cost: 0,
        exits: None,
    };
    let (_directory, load) = guest_that_sends(&begins);
    let process = started(&load).unwrap();
    drop(process);
    let cannot = Record::Skip {
        op: Op::OwnTimer,
        reason: "ring 3 cannot halt",
    };
    let (_directory, load) = guest_that_sends(&cannot);
    let error = started(&load).err().unwrap();
    assert!(error.to_string() == "ring 3 cannot halt", "{error}");
}
