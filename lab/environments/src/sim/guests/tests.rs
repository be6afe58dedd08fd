use super::*;
use crate::environment::SampleSink;
use crate::observe::Finished;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_abi::record::Sender;
use trapline_abi::Op;
use trapline_abi::{Record, VERSION};
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::{Exited, OutputHandler};
use trapline_model::observed::Outcome;
use trapline_sim::listener::{Emulator, MachineOutput};

#[derive(Default)]
struct Sink(Vec<Finished>);

impl SampleSink for Sink {
    fn progress(&mut self, _: Progress) {}
    fn fact(&mut self, _: &str, _: String) {}
    fn finished(&mut self, finished: Finished) {
        self.0.push(finished);
    }
}

const INSIDE: GuestKind = GuestKind {
    custom: None,
    exit_codes: ExitCodes::VMM,
    offset: Offset::Heard,
    program: "trapline-vmm",
};

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

/// What an honest guest says of its one operation.
fn words() -> Vec<u8> {
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
    let records = [begin, sample, end, Record::Done];
    records.iter().flat_map(|record| frame(record, 7)).collect()
}

/// Plays `stream` of a machine for two guests, whose QEMU then ends with `code`.
fn play(stream: &[Vec<u8>], code: i32) -> (Vec<Finished>, Result<(), Error>) {
    play_in(INSIDE, stream, code)
}

fn play_in(kind: GuestKind, stream: &[Vec<u8>], code: i32) -> (Vec<Finished>, Result<(), Error>) {
    let jobs = [job(), job()];
    let mut sink = Sink::default();
    let mut ear = MachineOutput::new(Emulator::QEMU, Guests::new(kind, &jobs, &mut sink));
    let mut heard = Ok(Exited {
        outlived_guest: false,
        end: 1,
        status: ExitStatus::from_raw(code << 8),
    });
    ear.events(b"[  0.1] Linux says\n");
    for piece in stream.concat().chunks(7) {
        ear.console(piece, 0, &mut NoProbe);
        if let Err(error) = ear.check() {
            heard = Err(error);
            break;
        }
    }
    let (_, _, judged) = ear.finish(heard);
    (sink.0, judged)
}

fn done() -> Vec<u8> {
    frame(&Record::Done, 3000)
}

fn objection(stream: &[Vec<u8>]) -> String {
    play(stream, EXIT_STATUS_DONE).1.unwrap_err().to_string()
}

#[test]
fn guests_are_told_apart_and_handed_on_one_by_one() {
    let guest = |child| [launch(child), relay(child, &words()), reaped(child, 0)].concat();
    let (finished, judged) = play(&[guest(0), guest(1), done()], EXIT_STATUS_DONE);
    judged.unwrap();
    assert_eq!(finished.len(), 2);
    for guest in &finished {
        assert_eq!((guest.exec, guest.reaped), (1000, Some(2000)));
        let outcome = &guest.report.operations[0].outcome;
        assert!(matches!(outcome, Outcome::Measured { .. }), "{outcome:?}");
    }
}

#[test]
fn two_machines_that_say_the_same_have_one_hash() {
    let hash = |word: &[u8]| {
        let jobs = [job()];
        let mut sink = Sink::default();
        let mut ear = MachineOutput::new(Emulator::QEMU, Guests::new(INSIDE, &jobs, &mut sink));
        for piece in word.chunks(3) {
            ear.console(piece, 0, &mut NoProbe);
        }
        ear.finish(Err(Error::Stopped)).1
    };
    assert_eq!(hash(&words()), hash(&words()));
    assert_ne!(hash(&words()), hash(&words()[1..]));
}

#[test]
fn what_runs_out_of_turn_is_refused() {
    let cases = [
        vec![launch(1)],
        vec![launch(0), launch(1)],
        vec![relay(0, b"x")],
        vec![launch(0), relay(1, b"x")],
        vec![reaped(0, 0)],
        vec![frame(&Record::Ready, 1)],
    ];
    for stream in cases {
        let text = objection(&stream);
        assert!(text.contains("out of sequence"), "{text}");
    }
    let guest = |child| [launch(child), relay(child, &words()), reaped(child, 0)].concat();
    let text = objection(&[guest(0), guest(1), launch(2)]);
    assert!(text.contains("out of sequence"), "{text}");
}

#[test]
fn a_guest_that_ends_badly_ends_the_machine_and_keeps_its_words() {
    for (status, expected) in [
        (libc::SIGSEGV, "trapline-vmm ended by signal 11"),
        (5 << 8, "trapline-vmm ended with status 5"),
        (36 << 8, "reset its CPU"),
    ] {
        let stream = [launch(0), relay(0, &words()), reaped(0, status)];
        let (finished, judged) = play(&stream, EXIT_STATUS_DONE);
        let text = judged.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert_eq!(finished.len(), 1);
    }
}

#[test]
fn a_guest_that_its_init_had_to_end_has_hung() {
    let late = 1000 + TIMEOUT.as_nanos() as u64;
    let killed = Record::Reaped {
        child: 0,
        status: libc::SIGKILL as u32,
        peak_kib: 0,
    };
    let stream = [launch(0), relay(0, b"waiting"), frame(&killed, late)];
    let error = play(&stream, EXIT_STATUS_DONE).1.unwrap_err();
    assert!(matches!(error, Error::SimulatedTimeout { .. }), "{error}");
    assert!(error.to_string().ends_with("waiting"), "{error}");
}

#[test]
fn a_machine_that_ends_badly_says_why() {
    let started = || vec![launch(0), relay(0, b"half a wo")];
    let (finished, judged) = play(&started(), 0);
    let text = judged.unwrap_err().to_string();
    assert!(
        text.contains("its Linux stopped") && text.contains("Linux says"),
        "{text}"
    );
    let outcome = &finished[0].report.operations[0].outcome;
    assert!(matches!(outcome, Outcome::Failed(why) if why.contains("Linux stopped")));
    let message = "module /kvm.ko: no such file";
    let panic = frame(&Record::Panic { message }, 1);
    let text = play(&[panic], 35).1.unwrap_err().to_string();
    assert!(text.contains(message), "{text}");
    let guest = [launch(0), relay(0, &words()), reaped(0, 0), done()];
    let text = objection(&guest);
    assert!(text.contains("skipped programs"), "{text}");
}

#[test]
fn a_machine_of_another_version_or_with_damage_is_not_believed() {
    let hello = Record::Hello {
        version: VERSION + 1,
        sender: Sender::Agent,
        ring: 3,
        memory: 0,
        planned: 0,
    };
    let text = objection(&[frame(&hello, 1)]);
    assert!(
        text.contains(&format!("protocol version {}", VERSION + 1)),
        "{text}"
    );
    let mut damaged = launch(0);
    damaged[6] ^= 4;
    let text = objection(&[damaged, launch(0)]);
    assert!(text.contains("damaged"), "{text}");
}

fn foreign() -> GuestKind {
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
fn a_foreign_vmm_may_end_as_it_likes_once_its_guest_was_done() {
    let guest = |child, status| [launch(child), relay(child, &words()), reaped(child, status)];
    // Init had to end the first, whose guest was started again.
    let again = [words(), words()].concat();
    let stayed = [launch(0), relay(0, &again), reaped(0, libc::SIGKILL)].concat();
    let stream = [stayed, guest(1, 7 << 8).concat(), done()];
    let (finished, judged) = play_in(foreign(), &stream, EXIT_STATUS_DONE);
    judged.unwrap();
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
fn a_foreign_vmm_whose_guest_was_never_heard_is_told_with_its_command() {
    let silent = [launch(0), relay(0, b"starting\n"), reaped(0, libc::SIGKILL)];
    let (finished, judged) = play_in(foreign(), &silent, EXIT_STATUS_DONE);
    let told = judged.unwrap_err().to_string();
    for words in ["vmm was killed after 20 s", "starting", "/bin/vmm /image"] {
        assert!(told.contains(words), "{told}");
    }
    assert!(!finished[0].outlived_guest);
}
