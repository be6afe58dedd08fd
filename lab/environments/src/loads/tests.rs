use super::crew::{populated, populating, Task, Telling};
use super::*;
use crate::environment::Progress;
use crate::observe::Finished;
use std::collections::BTreeMap;
use std::time::Duration;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::{Job, Op, Record};
use trapline_host::process::Command;
use trapline_host::Parts;
use trapline_model::{Pin, Sched};

/// A shell that counts as a burner does, and then does `rest`.
fn shell(rest: &str) -> Task {
    let count = "printf '\\001\\000\\000\\000\\000\\000\\000\\000'";
    Task {
        name: "cpu",
        command: Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("{count}; {rest}")),
        unit: "turns",
        telling: Telling::Count,
    }
}

fn limits() -> Limits {
    Limits::timeout(Duration::from_secs(60))
}

fn started(task: &Task) -> Result<Process, Error> {
    let mut process = Process::start(task)?;
    process.await_work(&limits())?;
    Ok(process)
}

#[test]
fn a_load_that_never_works_is_an_error_with_its_last_words() {
    let silent = Task {
        command: Command::new("/bin/sh").arg("-c").arg("echo no luck >&2"),
        ..shell("")
    };
    let error = started(&silent).err().unwrap().to_string();
    let told = "load cpu has ended by itself; last output:\n  no luck";
    assert_eq!(error, told);
}

#[test]
fn a_load_that_ends_early_or_rests_is_an_error() {
    let early = started(&shell("read word < /dev/null; exit 3"));
    // It may end before it was seen to work, or afterwards.
    let error = early.and_then(|process| {
        std::thread::sleep(Duration::from_millis(300));
        process.end().map(drop)
    });
    let error = error.err().unwrap().to_string();
    assert_eq!(error, "load cpu has ended by itself");
    let mut lazy = started(&shell("exec sleep 60")).unwrap();
    lazy.begin();
    let error = lazy.end().err().unwrap().to_string();
    assert_eq!(error, "load cpu did nothing while the guest was measured");
}

#[test]
fn what_worked_is_told() {
    let mut busy = started(&shell("while :; do :; done")).unwrap();
    // What it has done before it counts is not counted, but its shell never counts on.
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

    fn finished(&mut self, _: Finished) {}
}

fn crew() -> Option<Crew> {
    let parts = Parts::find().ok()?;
    let image = parts.image().ok()?.path;
    Some(Crew { parts, image })
}

/// Needs the agent, which is there when all parts were built.
#[test]
fn burners_burn_and_their_work_is_stored() {
    let Some(crew) = crew() else {
        eprintln!("skipped: no parts here; build them with 'make build'");
        return;
    };
    let affinity = Affinity::choose(Pin::Shared, Sched::Other).unwrap();
    let loads = "cpu:2,memory".parse().unwrap();
    let mut beside = Beside::start(&loads, &crew, &affinity, &limits()).unwrap();
    beside.begin();
    std::thread::sleep(Duration::from_secs(1));
    let mut facts = Facts(BTreeMap::new());
    beside.end(&mut facts).unwrap();
    let names: Vec<_> = facts.0.keys().map(String::as_str).collect();
    assert_eq!(names, ["load-0-cpu", "load-1-cpu", "load-2-memory"]);
    for told in facts.0.values() {
        assert!(told.ends_with(" ms of CPU time"), "{told}");
    }
}

#[test]
fn what_cannot_be_started_is_a_reason_to_skip() {
    let crew = Crew {
        parts: Parts::in_directory("/nonexistent"),
        image: "/nonexistent".into(),
    };
    let tasks = |loads: &str| crew.tasks(&loads.parse().unwrap(), Duration::from_secs(1));
    let error = tasks("cpu").err().unwrap().to_string();
    assert!(error.contains("make build"), "{error}");
    let error = tasks("create-vm:65536").err().unwrap().to_string();
    assert!(
        error.contains("create-vm:512") || error.contains("kvm"),
        "{error}"
    );
    assert!(tasks("console-buffered").unwrap().is_empty());
}

#[test]
fn who_populates_a_created_machine_is_in_its_words() {
    let words = |load: &str| {
        let Ok(trapline_model::Load::CreateVm(created)) = load.parse() else {
            panic!("{load} is another load");
        };
        let vmm = populated(Command::new("vmm"), 64, created);
        let words: Vec<_> = vmm
            .arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    };
    let demand = words("create-vm:64");
    assert_eq!(demand, format!("--memory 64M --cmdline {}", populating(64)));
    let whole = words("create-vm:64:2m:whole");
    let expected = "--memory 64M --pages 2m --prefault whole --cmdline trapline.run=none ";
    assert!(whole.starts_with(expected), "{whole}");
}

#[test]
fn a_created_machine_fills_its_memory() {
    let words = populating(2048);
    let job = Job::parse(words.split_ascii_whitespace()).unwrap();
    let touched = (24 * u64::from(job.doubles)) >> 20;
    assert!((2000..2048).contains(&touched), "{touched} MiB");
}

/// A second guest that says `record` and then rests.
fn guest_that_says(record: &Record<'_>) -> (tempfile::TempDir, Task) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("said");
    let mut frame = [0; MAX_FRAME];
    let length = encode(record, 1, &mut frame).unwrap();
    std::fs::write(&path, &frame[..length]).unwrap();
    let script = format!("cat {}; exec sleep 60", path.display());
    let command = Command::new("/bin/sh").arg("-c").arg(script);
    (directory, super::neighbour::task(command))
}

#[test]
fn a_second_guest_is_at_work_when_it_says_that_it_begins() {
    let begins = Record::Begin {
        op: Op::OwnTimer,
        clock_cost: 0,
        loop_cost: 0,
        exits: None,
    };
    let (_kept, task) = guest_that_says(&begins);
    let process = started(&task).unwrap();
    drop(process);
    let cannot = Record::Skip {
        op: Op::OwnTimer,
        reason: "ring 3 cannot halt",
    };
    let (_kept, task) = guest_that_says(&cannot);
    let error = started(&task).err().unwrap();
    assert!(error.to_string() == "ring 3 cannot halt", "{error}");
}
