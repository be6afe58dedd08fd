use super::*;
use crate::environment::SampleSink;
use crate::launch::FinishedLaunch;
use expect_test::expect;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_abi::record::Sender;
use trapline_abi::{Op, OpSet, Record, VERSION};
use trapline_host::process::{Exited, OutputHandler};
use trapline_model::observed::Outcome;
use trapline_sim::listener::{Emulator, MachineOutput};

#[derive(Default)]
struct Sink(Vec<FinishedLaunch>);

impl SampleSink for Sink {
    fn progress(&mut self, _: Progress) {}
    fn fact(&mut self, _: &str, _: String) {}
    fn finished(&mut self, finished: FinishedLaunch) {
        self.0.push(finished);
    }
}

const INSIDE: GuestKind = GuestKind::TRAPLINE_VMM;

fn job() -> Job {
    Job {
        run: Op::Getpid.into(),
        ..Job::EMPTY
    }
}

fn frame(record: &Record<'_>, at: u64) -> Vec<u8> {
    let mut buffer = [0; MAX_FRAME];
    let length = encode(record, at, &mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn launch(child: u16) -> Vec<u8> {
    frame(&Record::Launch { child }, 1000)
}

fn relay(child: u16, bytes: &[u8]) -> Vec<u8> {
    let channel = Channel::Console;
    let record = Record::Relay {
        child,
        channel,
        bytes,
    };
    frame(&record, 1500)
}

fn reaped(child: u16, status: i32) -> Vec<u8> {
    let record = Record::Reaped {
        child,
        status: status as u32,
        peak_kib: 0,
    };
    frame(&record, 2000)
}

/// Returns the records of a guest with one operation.
fn records() -> Vec<u8> {
    let op = Op::Getpid;
    let begin = Record::Begin {
        op,
        clock_cost: 1,
        loop_cost: 1,
        exits: None,
    };
    let sample = Record::Sample {
        op,
        start: 1,
        end: 2,
        count: 1,
    };
    let end = Record::End {
        op,
        samples: 1,
        check: 0,
        exits: None,
    };
    let all = [begin, sample, end, Record::Done];
    all.iter().flat_map(|record| frame(record, 7)).collect()
}

/// Decodes `stream` of a machine with two guests, whose QEMU then exits with `code`.
fn decode(stream: &[Vec<u8>], code: i32) -> (Vec<FinishedLaunch>, Result<(), Error>) {
    decode_as(INSIDE, stream, code)
}

fn decode_as(
    kind: GuestKind,
    stream: &[Vec<u8>],
    code: i32,
) -> (Vec<FinishedLaunch>, Result<(), Error>) {
    let jobs = [job(), job()];
    let mut sink = Sink::default();
    let mut output = MachineOutput::new(Emulator::QEMU, Guests::new(kind, &jobs, &mut sink));
    let mut exited = Ok(Exited {
        outlived_guest: false,
        end: 1,
        status: ExitStatus::from_raw(code << 8),
    });
    output.events(b"[  0.1] Linux says\n");
    for piece in stream.concat().chunks(7) {
        output.console(piece, 0, &mut NoProbe);
        if let Err(error) = output.check() {
            exited = Err(error);
            break;
        }
    }
    let (_, _, result) = output.finish(exited);
    (sink.0, result)
}

fn done() -> Vec<u8> {
    frame(&Record::Done, 3000)
}

fn error_of(stream: &[Vec<u8>]) -> String {
    decode(stream, EXIT_STATUS_DONE).1.unwrap_err().to_string()
}

#[test]
fn guests_are_decoded_one_by_one() {
    let guest = |child| [launch(child), relay(child, &records()), reaped(child, 0)].concat();
    let (finished, result) = decode(&[guest(0), guest(1), done()], EXIT_STATUS_DONE);
    result.unwrap();
    assert_eq!(finished.len(), 2);
    for guest in &finished {
        assert_eq!((guest.exec, guest.reaped), (1000, Some(2000)));
        let outcome = &guest.report.operations[0].outcome;
        assert!(matches!(outcome, Outcome::Measured { .. }), "{outcome:?}");
    }
}

/// The log of Bochs says why it refused what a VMM asked for, between messages of every run.
#[test]
fn log_of_the_emulator_follows_the_errors_of_a_program_that_failed() {
    let errors_after = |status| {
        let jobs = [job()];
        let mut sink = Sink::default();
        let emulator = trapline_sim::bochs::machine::EMULATOR;
        let mut output = MachineOutput::new(emulator, Guests::new(INSIDE, &jobs, &mut sink));
        output.errors(
            b"[CPU0  ] VMFAIL: phy addr malformed\n[CPU0  ] RDMSR: Unknown register 0xe7\n",
        );
        let guest = [launch(0), relay(0, &records()), reaped(0, status), done()].concat();
        output.console(&guest, 0, &mut NoProbe);
        drop(output);
        sink.0[0].report.errors.clone()
    };
    assert_eq!(errors_after(0), "");
    assert_eq!(
        errors_after(1 << 8),
        "Bochs: [CPU0  ] VMFAIL: phy addr malformed\n"
    );
}

/// Xen says so five seconds before it resets the machine.
#[test]
fn crash_of_dom0_ends_the_machine() {
    let panic = b"[  2.1] Kernel panic - not syncing: no init\n".to_vec();
    let crash = b"(XEN) Hardware Dom0 crashed: rebooting machine in 5 seconds.\n".to_vec();
    let error = error_of(&[launch(0), panic, crash, b"more\n".to_vec(), done()]);
    let expected = "its Linux stopped\n[  2.1] Kernel panic - not syncing: no init\n(XEN) Hardware Dom0 crashed";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn equal_output_has_equal_hashes() {
    let hash = |stream: &[u8]| {
        let jobs = [job()];
        let mut sink = Sink::default();
        let mut output = MachineOutput::new(Emulator::QEMU, Guests::new(INSIDE, &jobs, &mut sink));
        for piece in stream.chunks(3) {
            output.console(piece, 0, &mut NoProbe);
        }
        output.finish(Err(Error::Stopped)).1
    };
    assert_eq!(hash(&records()), hash(&records()));
    assert_ne!(hash(&records()), hash(&records()[1..]));
}

#[test]
fn records_out_of_sequence_are_rejected() {
    let cases = [
        vec![launch(1)],
        vec![launch(0), launch(1)],
        vec![relay(0, b"x")],
        vec![launch(0), relay(1, b"x")],
        vec![reaped(0, 0)],
        vec![frame(&Record::Ready, 1)],
    ];
    let mut errors: Vec<_> = cases.iter().map(|stream| error_of(stream)).collect();
    let guest = |child| [launch(child), relay(child, &records()), reaped(child, 0)].concat();
    errors.push(error_of(&[guest(0), guest(1), launch(2)]));
    errors.dedup();
    expect![[r#"
        simulated machine failed: init started a program out of sequence
        simulated machine failed: record of init is out of sequence
        simulated machine failed: init started a program out of sequence"#]]
    .assert_eq(&errors.join("\n"));
}

#[test]
fn failed_guest_fails_the_machine_and_keeps_its_records() {
    let errors = [libc::SIGSEGV, 5 << 8, 36 << 8].map(|status| {
        let stream = [launch(0), relay(0, &records()), reaped(0, status)];
        let (finished, result) = decode(&stream, EXIT_STATUS_DONE);
        assert_eq!(finished.len(), 1);
        result.unwrap_err().to_string()
    });
    expect![[r#"
        trapline-vmm ended by signal 11
        trapline-vmm ended with status 5
        guest reset its CPU, as after a triple fault"#]]
    .assert_eq(&errors.join("\n"));
}

#[test]
fn guest_killed_by_init_timed_out() {
    let late = 1000 + TIMEOUT.as_nanos() as u64;
    let killed = Record::Reaped {
        child: 0,
        status: libc::SIGKILL as u32,
        peak_kib: 0,
    };
    let stream = [launch(0), relay(0, b"waiting"), frame(&killed, late)];
    let error = decode(&stream, EXIT_STATUS_DONE).1.unwrap_err();
    assert!(matches!(error, Error::SimulatedTimeout { .. }), "{error}");
    expect![[r#"
        guest timed out after 600 s of the simulated clock and was killed; last output:
          waiting"#]]
    .assert_eq(&error.to_string());
}

#[test]
fn failed_machine_is_reported_with_its_reason() {
    let started = || vec![launch(0), relay(0, b"half a wo")];
    let (finished, result) = decode(&started(), 0);
    let Outcome::Failed(why) = &finished[0].report.operations[0].outcome else {
        panic!("the operation did not fail");
    };
    let message = "module /kvm.ko: no such file";
    let panic = frame(&Record::Panic { message }, 1);
    let guest = [launch(0), relay(0, &records()), reaped(0, 0), done()];
    let errors = [
        result.unwrap_err().to_string(),
        why.clone(),
        decode(&[panic], 35).1.unwrap_err().to_string(),
        error_of(&guest),
    ];
    expect![[r#"
        simulated machine failed: its Linux stopped
        [  0.1] Linux says
        simulated machine failed: its Linux stopped
        [  0.1] Linux says
        simulated machine failed: module /kvm.ko: no such file
        simulated machine failed: init skipped programs
        [  0.1] Linux says"#]]
    .assert_eq(&errors.join("\n"));
}

#[test]
fn other_protocol_version_and_damaged_records_are_rejected() {
    let hello = Record::Hello {
        version: VERSION + 1,
        sender: Sender::Agent,
        ring: 3,
        memory: 0,
        planned: OpSet::EMPTY,
    };
    let mut damaged = launch(0);
    damaged[6] ^= 4;
    let errors = [vec![frame(&hello, 1)], vec![damaged, launch(0)]].map(|it| error_of(&it));
    expect![[r#"
        guest has protocol version 5, expected 4
        simulated machine failed: damaged record of init"#]]
    .assert_eq(&errors.join("\n"));
}

fn custom() -> GuestKind {
    GuestKind {
        custom: Some(CustomGuest {
            vmm: "vmm {image} {cmdline}".parse().unwrap(),
            program: "/bin/vmm".into(),
            image: "/image".into(),
            converted: "/converted-image".into(),
            initramfs: "/initramfs".into(),
            options: String::new(),
            config: "/config".into(),
            home: "/".into(),
            is_wrapped: false,
            machine: trapline_model::GuestConfig {
                memory_mib: 1,
                ..trapline_model::GuestConfig::DEFAULT
            },
            ring: 0,
        }),
        ..INSIDE
    }
}

#[test]
fn exit_of_a_custom_vmm_is_ignored_after_done() {
    let guest = |child, status| {
        [
            launch(child),
            relay(child, &records()),
            reaped(child, status),
        ]
    };
    // Init killed the first VMM, whose guest restarted.
    let again = [records(), records()].concat();
    let stayed = [launch(0), relay(0, &again), reaped(0, libc::SIGKILL)].concat();
    let stream = [stayed, guest(1, 7 << 8).concat(), done()];
    let (finished, result) = decode_as(custom(), &stream, EXIT_STATUS_DONE);
    result.unwrap();
    let ends: Vec<_> = finished
        .iter()
        .map(|f| (f.outlived_guest, f.reaped))
        .collect();
    assert_eq!(ends, [(true, None), (false, Some(2000))]);
    for guest in &finished {
        assert_eq!(guest.report.problems, Vec::<String>::new());
        let outcome = &guest.report.operations[0].outcome;
        assert!(matches!(outcome, Outcome::Measured { .. }), "{outcome:?}");
    }
}

#[test]
fn silent_custom_vmm_is_reported_with_its_command() {
    let silent = [launch(0), relay(0, b"starting\n"), reaped(0, libc::SIGKILL)];
    let (finished, result) = decode_as(custom(), &silent, EXIT_STATUS_DONE);
    let error = result.unwrap_err().to_string();
    let (text, _) = error.split_once(" 'trapline.run=basic/getpid ").unwrap();
    expect![[r#"
        no record arrived from the guest's serial port: vmm was killed after 20 s; last output:
          starting
        command: /bin/vmm /image"#]]
    .assert_eq(text);
    assert!(!finished[0].outlived_guest);
}
