//! Network devices and vsock of a Linux guest in trapline-vmm on the simulated machine: a distribution's
//! drivers exchange data with programs of the machine. Disk and console are attached, too, so that the
//! VMM reports the memory of all devices.

use std::path::PathBuf;
use std::time::Duration;
use trapline_abi::record::{Counter, Record};
use trapline_abi::{Decoder, Item};
use trapline_environments::sim::{drivers, programs};
use trapline_environments::Limits;
use trapline_tests::linux::{self, Linux};
use trapline_tests::{has_qemu, parts, settings, skip};

const FEATURE: &str = "network and sockets of a Linux guest";
const PATIENCE: Duration = Duration::from_secs(300);

const DRIVERS: [&str; 5] = [
    "virtio_mmio",
    "virtio_console",
    "virtio_blk",
    "virtio_net",
    "vmw_vsock_virtio_transport",
];

const DISK_BYTES: usize = 2 << 20;

/// Largest memory of the VMM beyond its guest's with console, disk and network device, in bytes.
const MOST_MEMORY: u64 = 2_500_000;

fn meeting() -> programs::Program {
    let parameters = "trapline-disk=vda trapline-echo=10.9.0.2";
    let options = [
        "--net",
        "tap=tap0",
        "--vsock",
        "cid=3,path=/guest.socket",
        "--disk",
        "/disk",
        "--events",
        "3",
    ];
    programs::Program {
        file: PathBuf::from(env!("CARGO_BIN_EXE_meeting")),
        arguments: linux::arguments(parameters, &options),
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn guest_and_host_programs_communicate() {
    if !has_qemu(FEATURE) {
        return;
    }
    let settings = settings();
    let chosen = drivers::chosen(&settings, &DRIVERS)
        .and_then(|drivers| Ok((drivers, drivers::chosen(&settings, &["tun"])?)));
    let (drivers, tun) = match chosen {
        Ok((drivers, tun)) if drivers.len() > DRIVERS.len() && tun.len() == 1 => (drivers, tun),
        Ok(_) => return skip(FEATURE, "the kernel's drivers are not modules"),
        Err(error) => return skip(FEATURE, &error.to_string()),
    };
    let vmm = std::fs::read(parts().join("trapline-vmm")).expect("part is built");
    let others: [programs::Extra<'_>; 3] = [
        ("/vmm", &vmm),
        ("/tun.ko", &tun[0].bytes),
        ("/disk", &vec![0; DISK_BYTES]),
    ];
    let linux = Linux::with(&settings, &drivers);
    let files = [&linux.files()[..], &others].concat();
    let watch = Limits::timeout(PATIENCE);
    let ran = programs::run_with(&settings, &[meeting()], &files, &watch);
    let (outputs, _) = ran.expect("simulated machine runs");
    let console = String::from_utf8_lossy(&outputs[0].console);
    let errors = String::from_utf8_lossy(&outputs[0].errors);
    assert!(outputs[0].status.success(), "{console}{errors}");
    for line in [
        "vda: 4096 sectors, write back, read-only 0, all that was written was read",
        "by a socket: 262144 bytes came back, the same",
        "by TCP: 262144 bytes came back, the same",
        "echoed 262144 bytes of a socket, 262144 over TCP",
    ] {
        assert!(console.contains(line), "{console}{errors}");
    }
    let memory = own_memory(&outputs[0].events).expect("VMM reported its memory");
    println!("the VMM used {memory} bytes beyond its guest's memory");
    assert!((200_000..=MOST_MEMORY).contains(&memory), "{memory} bytes");
}

#[test]
#[ignore = "slow: make test-all"]
fn guests_on_a_switch_communicate() {
    if !has_qemu(FEATURE) {
        return;
    }
    let settings = settings();
    let drivers = match drivers::chosen(&settings, &DRIVERS) {
        Ok(drivers) if drivers.len() > DRIVERS.len() => drivers,
        Ok(_) => return skip(FEATURE, "the kernel's drivers are not modules"),
        Err(error) => return skip(FEATURE, &error.to_string()),
    };
    let read = |name: &str| std::fs::read(parts().join(name)).expect("part is built");
    let (vmm, switch) = (read("trapline-vmm"), read("trapline-switch"));
    let linux = Linux::with(&settings, &drivers);
    let others: [programs::Extra<'_>; 2] = [("/vmm", &vmm), ("/switch", &switch)];
    let files = [&linux.files()[..], &others].concat();
    let program = programs::Program {
        file: PathBuf::from(env!("CARGO_BIN_EXE_switched")),
        // The machine has 256 MiB for both.
        arguments: linux::arguments("ROLE", &["--memory", "100M"]),
    };
    let watch = Limits::timeout(PATIENCE);
    let ran = programs::run_with(&settings, &[program], &files, &watch);
    let (outputs, _) = ran.expect("simulated machine runs");
    let console = String::from_utf8_lossy(&outputs[0].console);
    let errors = String::from_utf8_lossy(&outputs[0].errors);
    let status = outputs[0].status;
    assert!(status.success(), "{status}: {console}{errors}");
    for line in [
        "echoed 262144 bytes of another guest",
        "262144 bytes came back from another guest",
    ] {
        assert!(console.contains(line), "{console}{errors}");
    }
}

/// Returns the memory that the VMM reports for itself, in bytes.
fn own_memory(events: &[u8]) -> Option<u64> {
    let mut found = None;
    Decoder::new().feed(events, &mut |item| {
        if let Item::Record(Record::Count { counter, value }, _) = item {
            if counter == Counter::OwnMemory {
                found = Some(value);
            }
        }
    });
    found
}
