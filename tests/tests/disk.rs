//! Disks of a Linux in our VMM, end to end: on the simulated machine a distribution's kernel
//! with its own driver writes, flushes, discards and reads, whoever does the work.

use std::ffi::OsString;
use std::time::Duration;
use trapline_environments::sim::kernel::{self, Maker};
use trapline_environments::sim::{drivers, programs};
use trapline_environments::{Root, Watch};
use trapline_tests::{has_qemu, parts, settings, skip};

const WHAT: &str = "disks of a Linux guest";
const PATIENCE: Duration = Duration::from_secs(200);

/// 2 MiB, and 1 MiB that is read-only.
const LENGTHS: [usize; 2] = [2 << 20, 1 << 20];

fn vmm(disks: [&str; 2]) -> programs::Program {
    let words = "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests panic=-1 \
                 clearcpuid=rdrand,rdseed trapline-disk=vda trapline-disk=vdb";
    let arguments = [
        "--kernel",
        "/kernel",
        "--initrd",
        "/initrd",
        "--memory",
        "256M",
        "--cmdline",
        words,
        "--disk",
        disks[0],
        "--disk",
        disks[1],
    ];
    programs::Program {
        file: parts().join("trapline-vmm"),
        arguments: arguments.map(OsString::from).to_vec(),
    }
}

#[test]
fn a_distributions_kernel_uses_disks_whoever_does_the_work() {
    if !has_qemu(WHAT) {
        return;
    }
    let settings = settings();
    let drivers = match drivers::chosen(&settings, &["virtio_mmio", "virtio_blk"]) {
        Ok(drivers) => drivers,
        Err(error) => return skip(WHAT, &error.to_string()),
    };
    let kernel = kernel::chosen(&settings, Maker::Amd).expect("it was there just now");
    let kernel = std::fs::read(kernel.image).expect("it can be read");
    let root = Root::new(&settings).expect("the agent is built");
    let root = root
        .on(drivers::archive(&drivers))
        .bytes()
        .expect("it is composed");
    let ran = programs::run_with(
        &settings,
        &[
            vmm(["/disk,engine=uring", "/other,ro"]),
            vmm(["/disk,engine=pool,direct", "/other,ro,engine=pool"]),
        ],
        &[
            ("/kernel", &kernel),
            ("/initrd", &root),
            ("/disk", &vec![0; LENGTHS[0]]),
            ("/other", &vec![0; LENGTHS[1]]),
        ],
        &Watch::of(PATIENCE),
    );
    let (outputs, _) = ran.expect("the machine works");
    for output in outputs {
        let console = String::from_utf8_lossy(&output.console);
        let errors = String::from_utf8_lossy(&output.errors);
        assert!(
            output.status.success(),
            "{}: {console}{errors}",
            output.status
        );
        for told in [
            "vda: 4096 sectors, write back, read-only 0, all that was written was read",
            "vdb: 2048 sectors, write back, read-only 1",
        ] {
            assert!(console.contains(told), "{console}{errors}");
        }
    }
}
