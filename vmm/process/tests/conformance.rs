//! The conformance suite on guests that are processes.

use trapline_interface::conformance;
use trapline_interface::Hypervisor;
use trapline_process::{Config, Crossing, Process, Switch};
use trapline_skip::skip;

/// The suite's guests run at address 0x1000, which only privileged users may map.
fn may_map_low_addresses() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let at = 0x1000 as *mut libc::c_void;
    // SAFETY: the address is free, or the call fails; nothing uses the page.
    unsafe {
        let mapped = libc::mmap(at, 4096, libc::PROT_READ, flags, -1, 0);
        mapped == at && libc::munmap(at, 4096) == 0
    }
}

#[test]
fn processes_conform() {
    if !may_map_low_addresses() {
        let why = "vm.mmap_min_addr is above 4096: run as root, or set it to 4096";
        return skip("conformance of processes", why);
    }
    let caps = Process::probe().unwrap();
    let several = [Switch::Guest, Switch::Vmm].map(|switch| Config {
        spaces: 3,
        switch,
        ..Crossing::Auto.into()
    });
    for config in Crossing::ALL.map(Config::from).into_iter().chain(several) {
        let report = conformance::run(&Process::configured(config), &caps)
            .unwrap_or_else(|failure| panic!("{config:?}: {failure}"));
        let skipped: Vec<_> = report.skipped.iter().map(|skipped| skipped.part).collect();
        let expected = ["halts in the guest", "interrupt delivery", "processors"];
        assert_eq!(skipped, expected, "{config:?}");
        assert_eq!(report.traces.len(), 4, "{config:?}: {report:?}");
    }
}
