//! The driver against a device that may lie.

use super::disk::Disk;
use super::fake::{Config, Fake, Lie, FEATURES};
use super::fake_memory::Memory;
use super::ring::BYTES;
use super::transfer::{needed, Target};
use super::transport::{self, find_modern, is_device, Access as _, BLOCK};
use std::vec::Vec;
use trapline_abi::block::{Access, DiskRequest, Transfer};
use trapline_abi::{Job, Op};
use trapline_workloads::Reason;

/// A target on a fake device, with its memory.
struct Setup {
    target: Target<Fake>,
    fake: Fake,
    job: Job,
    _memory: [Memory; 2],
}

fn job(op: Op) -> Job {
    Job {
        run: op.into(),
        disk_mib: 2,
        requests: 256,
        ..Job::EMPTY
    }
}

fn open(config: Config, op: Op) -> Result<Setup, Reason> {
    let (fake, job) = (Fake::new(config), job(op));
    let bytes = needed(&job);
    let memory = [Memory::new(BYTES), Memory::new(bytes)];
    // SAFETY: the memory is exclusive and outlives the target.
    let target = unsafe {
        let disk = Disk::start(fake.clone(), memory[0].start)?;
        Target::new(disk, memory[1].start, bytes, &job)?
    };
    Ok(Setup {
        target,
        fake,
        job,
        _memory: memory,
    })
}

impl Setup {
    fn transfer(&mut self, op: Op) -> Result<Vec<DiskRequest>, Reason> {
        let transfer = Transfer::from_op(op).unwrap();
        let mut slots = vec![DiskRequest::default(); transfer.requests(&self.job) as usize];
        let made = self.target.transfer(&transfer, &self.job, &mut slots)?;
        self.target.read_back(&transfer, &self.job, made)?;
        slots.truncate(made);
        Ok(slots)
    }
}

/// Opens the device and performs a transfer.
fn run(config: Config, op: Op) -> Result<Vec<DiskRequest>, Reason> {
    open(config, op)?.transfer(op)
}

#[test]
fn every_transfer_is_completed_with_and_without_optional_features() {
    for features in [FEATURES, 1 << 32] {
        for polls in [false, true] {
            for transfer in Transfer::ALL {
                let config = Config {
                    features,
                    polls,
                    ..Config::default()
                };
                let mut setup = open(config, transfer.op).unwrap();
                assert_eq!(setup.target.polls(), polls);
                let made = setup.transfer(transfer.op).unwrap();
                assert_eq!(made.len(), transfer.requests(&setup.job) as usize);
                assert!(made.iter().all(|request| request.end > request.start));
                assert!(made.is_sorted_by_key(|request| request.start));
                let counts = setup.fake.counts();
                let depth = transfer.depth.min(made.len() as u32) as usize;
                assert_eq!(counts.depth, depth, "{transfer:?}");
                let flushes = match (features & 1 << 9, transfer.access) {
                    (0, _) => 0,
                    (_, Access::Read) => 1,
                    (_, Access::Write) => 2,
                    (_, Access::WriteSync) => 2 + made.len() as u64,
                };
                assert_eq!(counts.flushes, flushes, "{transfer:?}");
                assert_eq!(counts.interrupts == 0, polls, "{transfer:?}");
            }
        }
    }
}

#[test]
fn indices_wrap_around() {
    let config = Config::default();
    for op in [Op::Read4k1, Op::Read4k32] {
        let mut setup = open(config, op).unwrap();
        setup.job.requests = u32::MAX;
        let mut count = 0;
        while count < 70_000 {
            count += setup.transfer(op).unwrap().len();
        }
    }
}

#[test]
fn requests_in_flight_share_notifications() {
    let mut setup = open(Config::default(), Op::Read4k32).unwrap();
    let before = setup.fake.counts();
    setup.transfer(Op::Read4k32).unwrap();
    let after = setup.fake.counts();
    let requests = after.requests - before.requests;
    let notifications = after.notifications - before.notifications;
    assert!(notifications < requests, "{notifications} of {requests}");
}

#[test]
fn a_lie_of_the_device_is_an_error() {
    for (lie, expected) in [
        (Lie::Id(1), "not in flight"),
        (Lie::Id(126), "not in flight"),
        (Lie::Id(u32::MAX), "not in flight"),
        (Lie::Jump(33), "more completions"),
        (Lie::Jump(u16::MAX), "more completions"),
        (Lie::Length(4098), "more bytes"),
        (Lie::Length(u32::MAX), "more bytes"),
        (Lie::Length(4095), "fewer bytes"),
        (Lie::NoStatus, "without a status"),
        (Lie::Status(1), "refused"),
        (Lie::Status(0x80), "refused"),
        (Lie::Data, "not the content"),
        (Lie::NeedsReset, "error of the driver"),
    ] {
        let config = Config {
            lie,
            truths: 3,
            ..Config::default()
        };
        let result = run(config, Op::Read4k32);
        let reason = result.expect_err("the device lies");
        assert!(reason.contains(expected), "{lie:?}: {reason}");
    }
    let twice = Config {
        lie: Lie::Twice,
        truths: 3,
        ..Config::default()
    };
    let reason = run(twice, Op::Read4k1).expect_err("the device lies");
    assert!(reason.contains("more completions"), "{reason}");
    let reason = run(twice, Op::Read4k32).expect_err("the device lies");
    assert!(reason.contains("not in flight"), "{reason}");
}

#[test]
fn a_device_that_completes_nothing_is_an_error() {
    let config = Config {
        lie: Lie::Silence,
        ..Config::default()
    };
    assert_eq!(open(config, Op::Read4k1).err(), Some("nothing happens"));
}

#[test]
fn lost_and_damaged_writes_are_detected() {
    let lost = Config {
        lie: Lie::NoWrite,
        truths: 3,
        ..Config::default()
    };
    for op in [Op::Write4k1, Op::Write4k32, Op::Write4kSync, Op::Write1m32] {
        let reason = run(lost, op).expect_err("the write is lost");
        assert!(reason.contains("written content"), "{reason}");
    }
    for op in [Op::Read4k32, Op::Read1m1] {
        let mut setup = open(Config::default(), op).unwrap();
        setup.job.requests = u32::MAX;
        setup.fake.damage(70_000);
        let reason = setup.transfer(op).expect_err("a bit is wrong");
        assert!(reason.contains("not the content"), "{reason}");
    }
}

#[test]
fn a_disk_is_usable_after_wrong_data_but_not_after_an_impossible_report() {
    let mut setup = open(Config::default(), Op::Read4k32).unwrap();
    setup.job.requests = u32::MAX;
    setup.fake.damage(70_000);
    setup.transfer(Op::Read4k32).expect_err("a bit is wrong");
    setup.fake.damage(70_000);
    setup.transfer(Op::Read4k32).unwrap();
    let config = Config {
        lie: Lie::Id(1),
        truths: 3,
        ..Config::default()
    };
    let mut setup = open(config, Op::Read4k32).unwrap();
    let first = setup.transfer(Op::Read4k32).err();
    assert!(first.is_some());
    assert_eq!(setup.transfer(Op::Read4k32).err(), first);
    let config = Config {
        never_resets: true,
        ..config
    };
    let reason = run(config, Op::Read4k32).expect_err("the device lies");
    assert!(reason.contains("reset"), "{reason}");
}

#[test]
fn unsuitable_devices_are_rejected() {
    let usual = Config::default();
    for (config, expected) in [
        (
            Config {
                version: 1,
                ..usual
            },
            "legacy",
        ),
        (
            Config {
                features: 1 << 29,
                ..usual
            },
            "legacy",
        ),
        (
            Config {
                features: FEATURES | 1 << 5,
                ..usual
            },
            "read-only",
        ),
        (
            Config {
                queue_size: 64,
                ..usual
            },
            "too short",
        ),
        (
            Config {
                queue_size: 0,
                ..usual
            },
            "too short",
        ),
        (Config { mib: 1, ..usual }, "smaller"),
    ] {
        assert!(is_device(&Fake::new(config), BLOCK));
        let reason = open(config, Op::Read4k1).err().expect("it is unsuitable");
        assert!(reason.contains(expected), "{config:?}: {reason}");
    }
}

/// Bounded: each seed has at most the requests of a transfer.
#[test]
fn random_lies_never_panic() {
    let mut errors = 0;
    for seed in 1..400 {
        for (op, polls) in [
            (Op::Read4k1, false),
            (Op::Read4k32, false),
            (Op::Write4k32, true),
        ] {
            let config = Config {
                lie: Lie::Random,
                truths: (seed % 40) as u32,
                polls,
                seed,
                ..Config::default()
            };
            errors += u32::from(run(config, op).is_err());
        }
    }
    assert!(errors > 1000, "{errors}");
}

#[test]
fn the_first_transport_with_a_modern_device_is_found() {
    let legacy = Config {
        version: 1,
        ..Config::default()
    };
    let transports = [legacy, Config::default()].map(Fake::new);
    let found = find_modern(transports.clone()).expect("the second one is modern");
    found.write(transport::STATUS, 1);
    assert_eq!(transports[1].read(transport::STATUS), 1);
    assert!(find_modern([Fake::new(legacy)]).is_none());
}
