//! A device that is only notified.

use super::doorbell::{Notified, BYTES};
use super::fake::{Config, Fake, Lie};
use super::fake_memory::Memory;
use super::transport::{Access, BLOCK, ENTROPY, QUEUE_NOTIFY, STATUS};
use trapline_workloads::Reason;

/// Starts a device and notifies it of its empty queue. Returns the result of the check behind that.
fn check(config: Config) -> Result<Fake, Reason> {
    let (fake, memory) = (Fake::new(config), Memory::new(BYTES));
    // SAFETY: the memory is exclusive and outlives the device.
    let mut device = unsafe { Notified::start(fake.clone(), memory.start)? };
    for _ in 0..3 {
        for _ in 0..100 {
            fake.write(QUEUE_NOTIFY, 0);
        }
        device.check()?;
    }
    device.stop()?;
    assert_eq!(fake.read(STATUS), 0);
    Ok(fake)
}

fn entropy() -> Config {
    Config {
        kind: ENTROPY,
        ..Config::default()
    }
}

#[test]
fn an_entropy_device_answers_a_request_in_each_check() {
    for polls in [false, true] {
        let fake = check(Config { polls, ..entropy() }).unwrap();
        let counts = fake.counts();
        assert_eq!((counts.requests, counts.notifications), (3, 303));
    }
    let short = Config {
        queue_size: 1,
        features: 1 << 32,
        ..entropy()
    };
    assert!(check(short).is_ok(), "a queue of one descriptor");
}

#[test]
fn another_device_has_a_status() {
    let fake = check(Config::default()).unwrap();
    assert_eq!(fake.read(0x008), BLOCK);
    assert_eq!(fake.counts().requests, 0);
}

#[test]
fn devices_without_a_queue_or_an_answer_are_rejected() {
    let rejected = |config: Config, expected: &str| {
        let reason = check(config).err().expect("it does not work");
        assert!(reason.contains(expected), "{config:?}: {reason}");
    };
    let with_lie = |lie| Config { lie, ..entropy() };
    rejected(
        Config {
            queue_size: 0,
            ..entropy()
        },
        "has no queue",
    );
    rejected(
        Config {
            features: 1,
            ..entropy()
        },
        "legacy",
    );
    rejected(
        Config {
            never_resets: true,
            ..entropy()
        },
        "reset",
    );
    rejected(with_lie(Lie::Silence), "nothing happens");
    rejected(with_lie(Lie::Broken), "error of the driver");
    rejected(with_lie(Lie::Twice), "more completions");
    for lie in [Lie::Id(1), Lie::Length(0), Lie::Length(65)] {
        rejected(with_lie(lie), "without data");
    }
}

/// The device needs a reset but still answers.
#[test]
fn device_that_stops_is_rejected() {
    let config = Config {
        lie: Lie::NeedsReset,
        ..entropy()
    };
    let reason = check(config).err().expect("it needs a reset");
    assert!(
        reason.contains("stopped") || reason.contains("error"),
        "{reason}"
    );
}
