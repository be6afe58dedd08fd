//! Command lines of `trapline-vmm`.

use std::ffi::OsString;
use std::path::Path;
use trapline_abi::job::Console;
use trapline_abi::{Job, Op, Workload};
use trapline_host::process::Command;
use trapline_model::layers::Hypervisor;
use trapline_model::{
    populate, Batching, Crossing, GuestConfig, Halt, MemoryPages, Serial, Spaces, Switch, VcpuState,
};

/// Returns the command that runs `job` in the image, with events on descriptor 3.
pub fn image_command(
    vmm: Command,
    hypervisor: Hypervisor,
    image: impl Into<OsString>,
    guest: &GuestConfig,
    job: &Job,
) -> Command {
    let job = Job {
        console: Console::Frames,
        ports: true,
        ..guest.job(job)
    };
    let is_process = hypervisor == Hypervisor::Process;
    let has_user_apic = hypervisor == Hypervisor::KvmUserApic;
    let has_processes = is_process && job.run.intersects(Workload::System.set());
    let optional = [
        (is_process, "--backend process".to_owned()),
        (has_user_apic, "--backend kvm-user-apic".to_owned()),
        (
            job.selects(Op::HostTimer) && !has_user_apic,
            "--ticker".to_owned(),
        ),
        (job.selects(Op::Doorbell), "--entropy".to_owned()),
        (
            job.run.intersects(populate::operations()),
            "--populate steps".to_owned(),
        ),
        (
            guest.crossing != Crossing::Auto,
            format!("--crossing {}", guest.crossing.name()),
        ),
        (
            has_processes && guest.spaces != Spaces::One,
            format!("--spaces {}", guest.spaces.name()),
        ),
        (
            has_processes && guest.switch != Switch::Guest,
            format!("--switch {}", guest.switch.name()),
        ),
        (
            guest.batching != Batching::On,
            format!("--batching {}", guest.batching.name()),
        ),
        (
            guest.state != VcpuState::Mapped,
            format!("--state {}", guest.state.name()),
        ),
        (
            guest.serial != Serial::Lines,
            format!("--serial {}", guest.serial.name()),
        ),
        (
            guest.scheduling.halt == Halt::InGuest,
            "--halt-in-guest".to_owned(),
        ),
    ];
    let selected = optional.iter().filter(|(is_selected, _)| *is_selected);
    let vmm = selected.fold(vmm, |vmm, (_, words)| vmm.words(words));
    with_pages(vmm, guest.pages)
        .arg("--image")
        .arg(image)
        .words(&format!("--memory {}M", guest.memory_mib))
        .words(&format!("--cpus {} --events 3 --cmdline", guest.cpus))
        .arg(job.to_string())
}

/// Returns the command of a Linux guest, with events on descriptor 3. `initrd` appends the path of its
/// initramfs.
pub fn linux_command(
    vmm: Command,
    kernel: &Path,
    initrd: impl FnOnce(Command) -> Command,
    guest: &GuestConfig,
    command_line: &str,
) -> Command {
    let command = with_pages(vmm, guest.pages).arg("--kernel").arg(kernel);
    initrd(command.arg("--initrd"))
        .words(&format!("--memory {}M", guest.memory_mib))
        .words(&format!("--cpus {} --events 3 --cmdline", guest.cpus))
        .arg(command_line)
}

/// Adds the option for guest memory, if it is not the default.
pub fn with_pages(vmm: Command, pages: MemoryPages) -> Command {
    match pages {
        MemoryPages::Auto => vmm,
        pages => vmm.words("--pages").arg(pages.name()),
    }
}
