//! `trapline-vmm` as the device model of the domain.

use trapline_abi::job::Console;
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_model::GuestConfig;
use trapline_sim::VMM;

/// Returns the command of `xl` that creates the domain, paused, and behind `--` that of its device model, to which init
/// appends the ID of the domain.
pub fn command(xl: &str, domain: &str, guest: &GuestConfig, job: &Job) -> Command {
    let job = Job {
        console: Console::Frames,
        ports: true,
        ring: 0,
        ..*job
    };
    Command::new(xl)
        .words("create -F -p")
        .arg(domain)
        .arg(format!("cmdline=\"{job}\""))
        .words("--")
        .arg(VMM)
        .words("--backend xen --events 3")
        .words(&format!("--memory {}M --domain", guest.memory_mib))
}
