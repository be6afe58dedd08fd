//! Network cards and sockets of a Linux in our VMM, end to end: on the simulated machine a
//! distribution's kernel with its own drivers meets programs of the machine around it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trapline_environments::sim::kernel::{self, Maker};
use trapline_environments::sim::{drivers, programs};
use trapline_environments::{Root, Watch};
use trapline_tests::{has_qemu, parts, settings, skip};

const WHAT: &str = "network and sockets of a Linux guest";
const PATIENCE: Duration = Duration::from_secs(300);

const DRIVERS: [&str; 3] = ["virtio_mmio", "virtio_net", "vmw_vsock_virtio_transport"];

fn meeting() -> programs::Program {
    let words = "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests panic=-1 \
                 clearcpuid=rdrand,rdseed trapline-echo=10.9.0.2";
    let arguments = [
        "--kernel",
        "/kernel",
        "--initrd",
        "/initrd",
        "--memory",
        "256M",
        "--no-pv-eoi",
        "--cmdline",
        words,
        "--net",
        "tap=tap0",
        "--vsock",
        "cid=3,path=/guest.socket",
    ];
    programs::Program {
        file: PathBuf::from(env!("CARGO_BIN_EXE_meeting")),
        arguments: arguments.map(OsString::from).to_vec(),
    }
}

#[test]
fn programs_of_a_guest_and_of_the_machine_around_it_meet() {
    if !has_qemu(WHAT) {
        return;
    }
    let settings = settings();
    let chosen = drivers::chosen(&settings, &DRIVERS)
        .and_then(|drivers| Ok((drivers, drivers::chosen(&settings, &["tun"])?)));
    let (drivers, tun) = match chosen {
        Ok((drivers, tun)) if drivers.len() > DRIVERS.len() && tun.len() == 1 => (drivers, tun),
        Ok(_) => return skip(WHAT, "the kernel's drivers are not modules"),
        Err(error) => return skip(WHAT, &error.to_string()),
    };
    let kernel = kernel::chosen(&settings, Maker::Amd).expect("it was there just now");
    let kernel = std::fs::read(kernel.image).expect("it can be read");
    let vmm = std::fs::read(parts().join("trapline-vmm")).expect("it is built");
    let root = Root::new(&settings).expect("the agent is built");
    let root = root.on(drivers::archive(&drivers)).bytes();
    let root = root.expect("it is composed");
    let files: [programs::Extra<'_>; 4] = [
        ("/kernel", &kernel),
        ("/initrd", &root),
        ("/vmm", &vmm),
        ("/tun.ko", &tun[0].bytes),
    ];
    let watch = Watch::of(PATIENCE);
    let ran = programs::run_with(&settings, &[meeting()], &files, &watch);
    let (outputs, _) = ran.expect("the machine works");
    let console = String::from_utf8_lossy(&outputs[0].console);
    let errors = String::from_utf8_lossy(&outputs[0].errors);
    assert!(outputs[0].status.success(), "{console}{errors}");
    for told in [
        "by a socket: 262144 bytes came back, the same",
        "by TCP: 262144 bytes came back, the same",
        "echoed 262144 bytes of a socket, 262144 over TCP",
    ] {
        assert!(console.contains(told), "{console}{errors}");
    }
}
