//! Missing, broken or hostile guests, VMMs and kernels: the error names the cause.

use std::fs;
use std::time::Duration;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::{Op, Record};
use trapline_environments::sim::programs::{run, Program};
use trapline_environments::{all, Booted, EnvError, Environment, GivenKernel, Limits, Settings};
use trapline_model::EnvironmentId;
use trapline_tests::boots::{failure, observe, planned, ready, settings};
use trapline_tests::{parts, write_program};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a directory whose agent is the shell script `script`.
fn false_agent(script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trapline-agent");
    write_program(&path, format!("#!/bin/sh\n{script}\n"));
    directory
}

fn of(id: EnvironmentId, settings: &Settings) -> Box<dyn Environment> {
    let mut environments = all(settings).into_iter();
    environments.find(|found| found.id() == id).unwrap()
}

/// Boots `host` with the shell script `script` as agent.
fn with_agent(script: &str, patience: Duration) -> Booted {
    let directory = false_agent(script);
    let settings = settings(directory.path());
    let host = of(EnvironmentId::HOST, &settings);
    let plan = planned(EnvironmentId::HOST, Op::Getpid);
    observe(host.as_ref(), &settings, &plan, patience).unwrap()
}

fn trouble_with_agent(script: &str) -> String {
    let booted = with_agent(script, PATIENCE);
    let trouble = booted.error.unwrap().to_string();
    let outcome = &booted.observation.operations[0].outcome;
    assert_eq!(failure(outcome), Some(&trouble[..]));
    trouble
}

/// Returns a frame as a format of printf(1).
fn octal(record: &Record<'_>) -> String {
    let mut buffer = [0; MAX_FRAME];
    let length = encode(record, 1, &mut buffer).unwrap();
    let bytes = buffer[..length].iter();
    bytes.map(|byte| format!("\\{byte:03o}")).collect()
}

#[test]
fn failed_programs_are_reported_with_their_last_output() {
    for (script, words) in [
        ("exit 7", "trapline-agent ended with status 7"),
        ("echo no memory >&2; exit 1", "no memory"),
        ("kill -KILL $$", "trapline-agent ended by signal 9"),
        ("exit 0", "without a Done record"),
    ] {
        let trouble = trouble_with_agent(script);
        assert!(trouble.contains(words), "{script}: {trouble}");
    }
}

#[test]
fn panic_message_of_the_guest_is_reported() {
    let message = "no memory for 3 arrays";
    let script = format!("printf '{}'; exit 35", octal(&Record::Panic { message }));
    let trouble = trouble_with_agent(&script);
    assert_eq!(trouble, "guest panicked: no memory for 3 arrays");
}

#[test]
fn hanging_guest_is_killed_at_its_deadline() {
    let mut timeout = Duration::from_millis(500);
    let booted = loop {
        let booted = with_agent("echo waiting; exec sleep 1000", timeout);
        // On a busy machine it had no time to write.
        if booted.observation.log.contains("waiting") || timeout > PATIENCE {
            break booted;
        }
        timeout *= 4;
    };
    let trouble = booted.error.unwrap();
    assert!(matches!(trouble, EnvError::TimedOut { .. }), "{trouble}");
    assert!(trouble.to_string().ends_with("waiting"), "{trouble}");
    assert!(booted.observation.log.contains("waiting"));
}

#[test]
fn console_flood_is_ended_and_bounded_in_memory() {
    let booted = with_agent("exec yes 0123456789", PATIENCE);
    assert!(matches!(booted.error, Some(EnvError::Flooded { .. })));
    assert!(booted.observation.log.len() < 1 << 20);
}

#[test]
fn text_between_records_is_logged_and_damage_counted() {
    let mut damaged = octal(&Record::Done);
    damaged.replace_range(damaged.len() - 4.., "\\000");
    let done = octal(&Record::Done);
    let booted = with_agent(&format!("printf 'hi{damaged}there{done}'"), PATIENCE);
    assert!(booted.error.is_none(), "{:?}", booted.error);
    assert!(booted.observation.log.contains("there"));
    let problems = &booted.observation.problems;
    assert!(
        problems.contains(&"1 damaged records".to_owned()),
        "{problems:?}"
    );
}

#[test]
fn missing_part_is_named_before_and_at_the_launch() {
    let empty = tempfile::tempdir().unwrap();
    let mut settings = settings(empty.path());
    settings.vmm = Some("sh {image} {cmdline}".parse().unwrap());
    let host = of(EnvironmentId::HOST, &settings);
    let plan = planned(EnvironmentId::HOST, Op::Getpid);
    let error = observe(host.as_ref(), &settings, &plan, PATIENCE).unwrap_err();
    assert!(
        error.to_string().starts_with("trapline-agent is not in"),
        "{error}"
    );
    for environment in all(&settings) {
        let id = environment.id();
        let unavailable = environment.check(&plan.guest).unwrap_err();
        let remedy = unavailable.remedy.unwrap_or_default();
        assert!(remedy.contains("make build"), "{id}: {remedy}");
    }
}

#[test]
fn missing_or_invalid_qemu_is_named() {
    let mut settings = settings(&parts());
    for program in ["/nonexistent/qemu", "/bin/true"] {
        settings.qemu = Some(program.into());
        let sim = of(EnvironmentId::SIM, &settings);
        let plan = planned(EnvironmentId::SIM, Op::Getpid);
        let error = observe(sim.as_ref(), &settings, &plan, PATIENCE).unwrap_err();
        assert!(error.to_string().contains(program), "{error}");
    }
}

/// Parts with an image of these bytes.
fn with_image(bytes: &[u8]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["trapline-vmm", "trapline-agent", "trapline-symbols"] {
        let part = parts().join(name);
        std::os::unix::fs::symlink(part, directory.path().join(name)).unwrap();
    }
    fs::write(directory.path().join("trapline-image"), bytes).unwrap();
    directory
}

#[test]
fn invalid_image_is_rejected_in_every_environment() {
    let image = fs::read(parts().join("trapline-image")).unwrap();
    for bytes in [&b"not an ELF file"[..], &image[..3000]] {
        let directory = with_image(bytes);
        let settings = settings(directory.path());
        for id in [EnvironmentId::KVM, EnvironmentId::QEMU_TCG] {
            let Some(environment) = ready(id, &settings) else {
                continue;
            };
            let plan = planned(id, Op::Getpid);
            let booted = observe(environment.as_ref(), &settings, &plan, PATIENCE).unwrap();
            let error = booted.error.map(|error| error.to_string());
            let error = error.unwrap_or_else(|| panic!("{id} ran {} bytes", bytes.len()));
            assert!(!error.contains("timed out"), "{id}: {error}");
        }
    }
}

#[test]
fn invalid_kernel_or_modules_are_named() {
    let mut settings = settings(&parts());
    if ready(EnvironmentId::SIM, &settings).is_none() {
        return;
    }
    let boot = |settings: &Settings| {
        let environment = of(EnvironmentId::SIM_LINUX, settings);
        let plan = planned(EnvironmentId::SIM_LINUX, Op::Getpid);
        let booted = observe(environment.as_ref(), settings, &plan, PATIENCE);
        booted.map_or_else(|error| error, |booted| booted.error.unwrap())
    };
    let modules = tempfile::tempdir().unwrap();
    let given = |image: &str| GivenKernel::File {
        image: image.into(),
        modules: modules.path().into(),
    };
    settings.kernel = Some(given("/nonexistent/vmlinuz"));
    let error = boot(&settings).to_string();
    assert!(error.starts_with("/nonexistent/vmlinuz"), "{error}");
    settings.kernel = Some(given("/bin/true"));
    let error = boot(&settings).to_string();
    assert!(error.contains("no module kvm_amd"), "{error}");
    fs::write(modules.path().join("kvm-amd.ko"), "\x7fELF").unwrap();
    let error = boot(&settings).to_string();
    assert!(error.starts_with("simulated machine failed"), "{error}");
}

/// Returns a program that crashes Linux by writing `c` to `/proc/sysrq-trigger`: an ELF file of one
/// segment (System V ABI, chapters 4 and 5), loaded at [`CRASHER_AT`].
fn crasher() -> Vec<u8> {
    const HEADERS: u64 = 64 + 56;
    let code = [
        // mov eax, 2 (open); lea rdi, [rip + path]; mov esi, 1 (O_WRONLY); syscall
        &b"\xb8\x02\0\0\0\x48\x8d\x3d\x1e\0\0\0\xbe\x01\0\0\0\x0f\x05"[..],
        // mov edi, eax; mov eax, 1 (write); lea rsi, [rip + path + 4]; mov edx, 1; syscall
        b"\x89\xc7\xb8\x01\0\0\0\x48\x8d\x35\x0d\0\0\0\xba\x01\0\0\0\x0f\x05",
        // ud2, and the path, which contains a 'c'.
        b"\x0f\x0b/proc/sysrq-trigger\0",
    ]
    .concat();
    let size = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [CRASHER_AT + HEADERS, 64, 0] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(*b"\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0");
    // PT_LOAD, to be read and executed.
    elf.extend(*b"\x01\0\0\0\x05\0\0\0");
    for word in [0, CRASHER_AT, CRASHER_AT, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

const CRASHER_AT: u64 = 0x40_0000;

/// The machine was restored from its snapshot.
#[test]
fn kernel_panic_during_a_job_is_reported() {
    let settings = settings(&parts());
    if ready(EnvironmentId::SIM_LINUX, &settings).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("crasher");
    fs::write(&file, crasher()).unwrap();
    let arguments = Vec::new();
    let programs = [Program { file, arguments }];
    for _ in 0..2 {
        let error = run(&settings, &programs, &Limits::timeout(PATIENCE)).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("simulated machine failed"), "{error}");
        assert!(error.contains("Kernel panic - not syncing"), "{error}");
    }
}
