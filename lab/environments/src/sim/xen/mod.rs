//! The image as a domain of Xen on the simulated machine.
//!
//! The machine boots Xen with a distribution's Linux as dom0, whose init is the agent. Init starts Xen's
//! daemons, and runs `xl` for each job, which creates the domain of the image and exits with it.

mod dom0;
mod vmm;

pub use dom0::launch as launch_dom0;
pub(crate) use dom0::{facts as dom0_facts, OWN_MEMORY_MIB};

use super::contents::{Contents, LoadSupport};
use super::guests::GuestKind;
use crate::launch::ClockOffset;
use std::path::{Path, PathBuf};
use trapline_abi::job::{Console, Shutdown};
use trapline_abi::platform::DOMAIN;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, Error, Facts};
use trapline_model::layers::Domain as DomainKind;
use trapline_model::{GuestConfig, Scheduler};
use trapline_sim::base::{Base, BootFiles, Layout};
use trapline_sim::closure::LOADER;
use trapline_sim::initramfs::{add_as, add_program, Archive};
use trapline_sim::kernel::Maker;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::xen::packages;
use trapline_sim::xen::packages::{Xen, DEVICE_MODEL, PROGRAMS};
use trapline_sim::{IMAGE, VMM};

/// The machine has ACPI, which Xen needs. The CPU has no SMAP, with which the kernel of a paravirtualized
/// dom0 cannot access user memory, no random numbers: a snapshot does not contain their generator, and the
/// device model uses them; and no x2APIC, which later versions of QEMU emulate: reading its timer in the middle of a
/// translation block ends a QEMU that counts instructions.
const MACHINE: &str = "-M q35 -device pvpanic";
const PROCESSOR: &str = "-cpu max,-smap,-rdrand,-rdseed,-x2apic";

/// Options of Xen: console, log level, and memory of dom0.
const XEN_OPTIONS: &str = "com1=115200,8n1 console=com1 loglvl=warning guest_loglvl=warning \
                         dom0_mem=640M,max:640M";

/// Additional options on Bochs: no firmware calls in real mode, HLT instead of MWAIT, which Bochs executes
/// step by step, and no clearing of memory, which is clear.
const XEN_OPTIONS_ON_BOCHS: &str = "no-real-mode mwait-idle=0 bootscrub=0";

/// Options of dom0's kernel, as on other machines.
const KERNEL_OPTIONS: &str = "console=hvc0 loglevel=4 nokaslr norandmaps \
                            cryptomgr.notests panic=-1";

/// Additional options on Bochs: no random numbers of the CPU, whose seed is the start time of Bochs.
const KERNEL_OPTIONS_ON_BOCHS: &str = "clearcpuid=rdrand,rdseed";

/// Returns the options of Xen on a machine of this maker, with `scheduler` in place of the default.
fn xen_options(maker: Maker, scheduler: Option<Scheduler>) -> String {
    let scheduler = scheduler.map(|scheduler| format!("sched={}", scheduler.name()));
    let further = (maker == Maker::Intel).then_some(XEN_OPTIONS_ON_BOCHS);
    join(&[Some(XEN_OPTIONS), further, scheduler.as_deref()])
}

fn kernel_options(maker: Maker) -> String {
    let further = (maker == Maker::Intel).then_some(KERNEL_OPTIONS_ON_BOCHS);
    join(&[Some(KERNEL_OPTIONS), further])
}

fn join(options: &[Option<&str>]) -> String {
    let options = options.iter().copied().flatten();
    options.collect::<Vec<_>>().join(" ")
}

/// Paths in dom0: Xen's programs, its libraries, and the configuration of the image's domain.
const DIRECTORY: &str = "/trapline/xen";
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
const DOMAIN_FILE: &str = "/trapline/domain";

/// Checks that Xen is in the cache or can be downloaded.
///
/// # Errors
/// It cannot.
pub(crate) fn check(settings: &Settings) -> Result<(), Error> {
    packages::check(&settings.cache)
}

/// Checks that the device model is in the cache or can be downloaded.
///
/// # Errors
/// It cannot.
pub(crate) fn check_device_model(settings: &Settings) -> Result<(), Error> {
    packages::check_device_model(&settings.cache)
}

/// Returns facts known before a machine of QEMU with Xen is started.
pub(crate) fn facts() -> Facts {
    let counting = trapline_sim::qemu::COUNTING;
    let machine = format!("{MACHINE} {counting} {PROCESSOR}");
    let mut facts = facts_on(Maker::Amd);
    facts.insert("machine".to_owned(), machine);
    facts
}

/// Returns facts about Xen on a machine of this maker.
pub(crate) fn facts_on(maker: Maker) -> Facts {
    [
        ("xen-command-line", xen_options(maker, None)),
        ("l1-command-line", kernel_options(maker)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns Xen with the image, in a domain whose device model may be the VMM `vmm`.
///
/// # Errors
/// Xen is missing.
pub fn contents(
    settings: &Settings,
    kind: DomainKind,
    vmm: Option<PathBuf>,
    image: PathBuf,
    guest: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    Ok(Box::new(Domain {
        kind,
        vmm,
        xen: Xen::fetched(&settings.cache)?,
        image,
        guest: *guest,
    }))
}

/// The domain of the image, with Xen's toolstack.
struct Domain {
    kind: DomainKind,
    /// `trapline-vmm` on this host, if it is the device model.
    vmm: Option<PathBuf>,
    xen: Xen,
    image: PathBuf,
    guest: GuestConfig,
}

impl Contents for Domain {
    fn has_small_pages(&self) -> bool {
        false
    }

    fn guest_kind(&self) -> GuestKind {
        if self.vmm.is_some() {
            return GuestKind::TRAPLINE_VMM;
        }
        // `xl` exits with 0 after its domain, as the agent does.
        GuestKind::new("xl", ExitCodes::AGENT, ClockOffset::Unknown)
    }

    fn base(&self, _: &Settings, maker: Maker) -> Result<Base, Error> {
        base(&self.xen, maker, self.guest.scheduling.sched.of_xen())
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        for name in PROGRAMS {
            add_as(
                archive,
                &format!("{DIRECTORY}/{name}"),
                &self.xen.program(name),
            )?;
        }
        if self.kind == DomainKind::Hvm {
            add_as(archive, DEVICE_MODEL_PATH, &self.xen.program(DEVICE_MODEL))?;
            archive.file(KEYMAP, b"# no keyboard\n".to_vec());
            archive.file(SYSTEM_FIRMWARE, b"none".to_vec());
        }
        if let Some(vmm) = &self.vmm {
            add_program(archive, VMM, vmm)?;
        }
        for library in packages::libraries(&self.xen, &self.programs(), LOADER)? {
            add_library(archive, &library, &self.xen)?;
        }
        archive.file("/etc/xen/xl.conf", XL_CONFIGURATION.as_bytes().to_vec());
        archive.file(DOMAIN_FILE, self.configuration().into_bytes());
        add_as(archive, IMAGE, &self.image)
    }

    /// Loads would have to be domains, not processes of dom0.
    fn load_support(&self) -> LoadSupport {
        LoadSupport::None
    }

    fn prepare(&self, script: &mut Script) {
        script.start_xen(DIRECTORY, DOMAIN_FILE);
        script.lengths_of_xen();
    }

    fn command(&self, job: &Job) -> Command {
        if self.vmm.is_some() {
            return vmm::command(&format!("{DIRECTORY}/xl"), DOMAIN_FILE, &self.guest, job);
        }
        let job = Job {
            console: Console::Xen,
            shutdown: Shutdown::Xen,
            ports: false,
            ring: 0,
            ..*job
        };
        let job = match self.kind {
            DomainKind::Pvh | DomainKind::Dom0 => format!("cmdline=\"{job}\""),
            DomainKind::Hvm => job.to_string(),
        };
        Command::new(format!("{DIRECTORY}/xl"))
            .words("create -F")
            .arg(DOMAIN_FILE)
            .arg(job)
    }

    fn launch(&self, script: &mut Script, job: &Job) {
        let command = self.command(job);
        match self.vmm {
            Some(_) => script.launch_domain_with_vmm(&command),
            None => script.launch_domain(&command, self.kind == DomainKind::Hvm),
        }
    }
}

/// Paths of the device model and of its keyboard layout, which it requires.
const DEVICE_MODEL_PATH: &str = "/usr/libexec/xen-qemu-system-i386";
const KEYMAP: &str = "/usr/share/qemu/keymaps/en-us";

/// Firmware of an HVM domain. It is required; `firmware_override` replaces it with the image.
const SYSTEM_FIRMWARE: &str = "/trapline/firmware";

/// Configuration of `xl`: without ballooning and hotplug scripts, which take time.
const XL_CONFIGURATION: &str = "autoballoon=\"off\"\nrun_hotplug_scripts=0\n";

impl Domain {
    fn programs(&self) -> Vec<&'static str> {
        let further = (self.kind == DomainKind::Hvm).then_some(DEVICE_MODEL);
        PROGRAMS.into_iter().chain(further).collect()
    }

    /// Returns the domain's configuration: no restart, native TSC, and no virtual keyboard, for which `xl`
    /// waits two seconds when the domain ends.
    fn configuration(&self) -> String {
        let GuestConfig {
            memory_mib,
            cpus,
            scheduling,
            ..
        } = self.guest;
        let cap = scheduling.cap.map(|percent| format!("cap={percent}\n"));
        let weight = scheduling
            .weight
            .map(|weight| format!("cpu_weight={weight}\n"));
        let share = [cap, weight].map(Option::unwrap_or_default).concat();
        let kind = match self.kind {
            DomainKind::Pvh | DomainKind::Dom0 => format!("type=\"pvh\"\nkernel=\"{IMAGE}\"\n"),
            DomainKind::Hvm => format!(
                "type=\"hvm\"\nfirmware_override=\"{IMAGE}\"\n\
                 bios=\"seabios\"\nbios_path_override=\"{SYSTEM_FIRMWARE}\"\n\
                 serial=\"null\"\nvga=\"none\"\nnographic=1\nvnc=0\nsdl=0\nusb=0\nvkb_device=0\n"
            ),
        };
        format!(
            "name=\"{DOMAIN}\"\n\
             {kind}\
             memory={memory_mib}\n\
             vcpus={cpus}\n\
             {share}\
             tsc_mode=\"native\"\n\
             on_poweroff=\"destroy\"\n\
             on_reboot=\"destroy\"\n\
             on_crash=\"destroy\"\n"
        )
    }
}

/// Adds a library of Xen to the loader's default path, another one at its path on this host.
fn add_library(archive: &mut Archive, library: &Path, xen: &Xen) -> Result<(), Error> {
    let place = match library.strip_prefix(xen.libraries()) {
        Ok(name) => Path::new(LIBRARIES).join(name),
        Err(_) => library.to_owned(),
    };
    add_as(archive, &place.to_string_lossy(), library)
}

fn base(xen: &Xen, maker: Maker, scheduler: Option<Scheduler>) -> Result<Base, Error> {
    let (machine, processor) = match maker {
        Maker::Amd => (MACHINE, PROCESSOR),
        Maker::Intel | Maker::Arm => ("", ""),
    };
    let options = xen_options(maker, scheduler);
    let (hypervisor, kernel) = (xen.hypervisor(), xen.kernel());
    let hash = |path: &Path| sha256_of_file(path);
    let facts = [
        ("xen", xen.origin()),
        ("xen-sha256", hash(&hypervisor)?),
        ("xen-command-line", options.clone()),
        ("l1-kernel-sha256", hash(&kernel)?),
    ];
    Ok(Base {
        platform: maker.platform(),
        machine,
        processor,
        loaded: BootFiles {
            kernel: hypervisor,
            words: options,
            module: Some((kernel, kernel_options(maker))),
        },
        modules: xen.modules()?,
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        random_state: false,
        control_group: false,
        layout: Layout::default(),
    })
}
