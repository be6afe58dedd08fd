use super::*;
use crate::environment::SampleSink;
use crate::launch::FinishedLaunch;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_abi::record::Sender;
use trapline_abi::Op;
use trapline_abi::{Record, VERSION};
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
        run: Op::Getpid.bit(),
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
    for stream in cases {
        let text = error_of(&stream);
        assert!(text.contains("out of sequence"), "{text}");
    }
    let guest = |child| [launch(child), relay(child, &records()), reaped(child, 0)].concat();
    let text = error_of(&[guest(0), guest(1), launch(2)]);
    assert!(text.contains("out of sequence"), "{text}");
}

#[test]
fn failed_guest_fails_the_machine_and_keeps_its_records() {
    for (status, expected) in [
        (libc::SIGSEGV, "trapline-vmm ended by signal 11"),
        (5 << 8, "trapline-vmm ended with status 5"),
        (36 << 8, "reset its CPU"),
    ] {
        let stream = [launch(0), relay(0, &records()), reaped(0, status)];
        let (finished, result) = decode(&stream, EXIT_STATUS_DONE);
        let text = result.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert_eq!(finished.len(), 1);
    }
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
    assert!(error.to_string().ends_with("waiting"), "{error}");
}

#[test]
fn failed_machine_is_reported_with_its_reason() {
    let started = || vec![launch(0), relay(0, b"half a wo")];
    let (finished, result) = decode(&started(), 0);
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains("its Linux stopped") && text.contains("Linux says"),
        "{text}"
    );
    let outcome = &finished[0].report.operations[0].outcome;
    assert!(matches!(outcome, Outcome::Failed(why) if why.contains("Linux stopped")));
    let message = "module /kvm.ko: no such file";
    let panic = frame(&Record::Panic { message }, 1);
    let text = decode(&[panic], 35).1.unwrap_err().to_string();
    assert!(text.contains(message), "{text}");
    let guest = [launch(0), relay(0, &records()), reaped(0, 0), done()];
    let text = error_of(&guest);
    assert!(text.contains("skipped programs"), "{text}");
}

#[test]
fn other_protocol_version_and_damaged_records_are_rejected() {
    let hello = Record::Hello {
        version: VERSION + 1,
        sender: Sender::Agent,
        ring: 3,
        memory: 0,
        planned: 0,
    };
    let text = error_of(&[frame(&hello, 1)]);
    assert!(
        text.contains(&format!("protocol version {}", VERSION + 1)),
        "{text}"
    );
    let mut damaged = launch(0);
    damaged[6] ^= 4;
    let text = error_of(&[damaged, launch(0)]);
    assert!(text.contains("damaged"), "{text}");
}

fn custom() -> GuestKind {
    GuestKind {
        custom: Some(CustomGuest {
            vmm: "vmm {image} {cmdline}".parse().unwrap(),
            program: "/bin/vmm".into(),
            image: "/image".into(),
            bzimage: "/bzimage".into(),
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
    for words in ["vmm was killed after 20 s", "starting", "/bin/vmm /image"] {
        assert!(error.contains(words), "{error}");
    }
    assert!(!finished[0].outlived_guest);
}
