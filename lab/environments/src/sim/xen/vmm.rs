//! `trapline-vmm` as the device model of the domain.

use trapline_abi::job::Console;
use trapline_abi::{Job, Op};
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
    let command = Command::new(xl)
        .words("create -F -p")
        .arg(domain)
        .arg(format!("cmdline=\"{job}\""))
        .words("--")
        .arg(VMM)
        .words("--backend xen --events 3")
        .words(&format!("--memory {}M", guest.memory_mib));
    let command = match job.selects(Op::HostTimer) {
        true => command.words("--ticker"),
        false => command,
    };
    command.words("--domain")
}
