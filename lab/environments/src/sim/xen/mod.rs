//! Xen on the simulated machine, with the image in a domain of its own.
//!
//! The machine boots Xen with a distribution's Linux as its first domain, whose init
//! is the agent, as on other machines. It starts Xen's daemons, and for each job
//! `xl`, which makes the image a domain and ends with it.

mod dom0;

pub use dom0::launch as launch_dom0;
pub(crate) use dom0::{facts as dom0_facts, OWN_MEMORY_MIB};

use super::guests::GuestKind;
use super::linux::Contents;
use crate::observe::Offset;
use std::path::{Path, PathBuf};
use trapline_abi::job::{Console, Shutdown};
use trapline_abi::platform::DOMAIN;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, Error, Facts};
use trapline_model::layers::Domain as DomainKind;
use trapline_model::{GuestConfig, Load, Scheduler};
use trapline_sim::base::{Base, BootFiles};
use trapline_sim::closure::LOADER;
use trapline_sim::initramfs::{add_as, Archive};
use trapline_sim::kernel::Maker;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::xen::packages;
use trapline_sim::xen::packages::{Xen, DEVICE_MODEL, PROGRAMS};
use trapline_sim::IMAGE;

/// The machine: one with ACPI as Xen expects it, and a processor that lets the kernel
/// of a paravirtualized first domain reach user memory. It makes no random numbers: QEMU
/// keeps their source to itself when it saves a machine, and the device model uses them.
const MACHINE: &str = "-M q35 -device pvpanic";
const PROCESSOR: &str = "-cpu max,-smap,-rdrand,-rdseed";

/// What Xen is told: where to speak, only what is of use, and how much of the machine
/// its first domain gets.
const XEN_WORDS: &str = "com1=115200,8n1 console=com1 loglvl=warning guest_loglvl=warning \
                         dom0_mem=640M,max:640M";

/// The same on Bochs: that there is no firmware to be asked in real mode, to halt where
/// nothing is to be done, because Bochs steps through the other way to sleep, and not to
/// clear memory that is clear.
const XEN_WORDS_ON_BOCHS: &str = "no-real-mode mwait-idle=0 bootscrub=0";

/// What the Linux of the first domain is told, as on other machines.
const KERNEL_WORDS: &str = "console=hvc0 loglevel=4 nokaslr norandmaps \
                            cryptomgr.notests panic=-1";

/// The same on Bochs: to leave the processor's random numbers alone, which begin with the
/// second in which Bochs was started.
const KERNEL_WORDS_ON_BOCHS: &str = "clearcpuid=rdrand,rdseed";

/// What Xen is told on the machine of this maker; also which scheduler to use, if not its
/// own choice.
fn xen_words(maker: Maker, scheduler: Option<Scheduler>) -> String {
    let scheduler = scheduler.map(|known| format!("sched={}", known.name()));
    let further = (maker == Maker::Intel).then_some(XEN_WORDS_ON_BOCHS);
    together(&[Some(XEN_WORDS), further, scheduler.as_deref()])
}

fn kernel_words(maker: Maker) -> String {
    let further = (maker == Maker::Intel).then_some(KERNEL_WORDS_ON_BOCHS);
    together(&[Some(KERNEL_WORDS), further])
}

fn together(words: &[Option<&str>]) -> String {
    words
        .iter()
        .copied()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Where the first domain has Xen's programs, its libraries, and what the domain that
/// runs the image is made of.
const DIRECTORY: &str = "/trapline/xen";
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
const DOMAIN_FILE: &str = "/trapline/domain";

/// Whether there is a Xen.
///
/// # Errors
/// Why not.
pub(crate) fn check(settings: &Settings) -> Result<(), Error> {
    packages::check(&settings.cache)
}

/// Whether there is what models devices for its domains.
///
/// # Errors
/// Why not.
pub(crate) fn check_device_model(settings: &Settings) -> Result<(), Error> {
    packages::check_device_model(&settings.cache)
}

/// What is known about every machine of QEMU's with Xen before it is started.
pub(crate) fn facts() -> Facts {
    let counting = trapline_sim::qemu::COUNTING;
    let machine = format!("{MACHINE} {counting} {PROCESSOR}");
    let mut facts = facts_on(Maker::Amd);
    facts.insert("machine".to_owned(), machine);
    facts
}

/// What is known about Xen on every machine of this maker.
pub(crate) fn facts_on(maker: Maker) -> Facts {
    [
        ("xen-command-line", xen_words(maker, None)),
        ("l1-command-line", kernel_words(maker)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Xen with the image.
///
/// # Errors
/// There is no Xen.
pub fn contents(
    settings: &Settings,
    kind: DomainKind,
    image: PathBuf,
    machine: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    Ok(Box::new(Domain {
        kind,
        xen: Xen::fetched(&settings.cache)?,
        image,
        machine: *machine,
    }))
}

/// The domain that runs the image, and all that is needed to start it.
struct Domain {
    kind: DomainKind,
    xen: Xen,
    image: PathBuf,
    machine: GuestConfig,
}

impl Contents for Domain {
    fn guest_kind(&self) -> GuestKind {
        GuestKind {
            // What `xl` ends with when its domain has ended by itself.
            exit_codes: ExitCodes::AGENT,
            offset: Offset::Heard,
            program: "xl",
            custom: None,
        }
    }

    fn base(&self, _: &Settings, maker: Maker) -> Result<Base, Error> {
        base(&self.xen, maker, self.machine.scheduling.sched.of_xen())
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
            add_as(
                archive,
                PLACE_OF_DEVICE_MODEL,
                &self.xen.program(DEVICE_MODEL),
            )?;
            archive.file(KEYMAP, b"# no keyboard\n".to_vec());
            archive.file(SYSTEM_FIRMWARE, b"none".to_vec());
        }
        for library in packages::libraries(&self.xen, &self.programs(), LOADER)? {
            add_library(archive, &library, &self.xen)?;
        }
        archive.file("/etc/xen/xl.conf", XL.as_bytes().to_vec());
        archive.file(DOMAIN_FILE, self.configuration().into_bytes());
        add_as(archive, IMAGE, &self.image)
    }

    /// Another domain would be a load, not a process of this one's.
    fn load(&self, _: &mut Script, load: Load) -> Result<(), Error> {
        Err(Error::unavailable(format!(
            "load {load} cannot run beside a domain of Xen: leave it out, or measure sim/kvm"
        )))
    }

    fn prepare(&self, script: &mut Script) {
        script.start_xen(DIRECTORY, DOMAIN_FILE);
    }

    fn command(&self, job: &Job) -> Command {
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
        script.launch_domain(&self.command(job), self.kind == DomainKind::Hvm);
    }
}

/// Where the toolstack looks for the device model, and that for how a keyboard is laid
/// out that nobody has.
const PLACE_OF_DEVICE_MODEL: &str = "/usr/libexec/xen-qemu-system-i386";
const KEYMAP: &str = "/usr/share/qemu/keymaps/en-us";

/// A fully virtualized domain has to name a firmware; the image takes its place.
const SYSTEM_FIRMWARE: &str = "/trapline/firmware";

/// What `xl` is told about the machine: nothing that takes time.
const XL: &str = "autoballoon=\"off\"\nrun_hotplug_scripts=0\n";

impl Domain {
    fn programs(&self) -> Vec<&'static str> {
        let further = (self.kind == DomainKind::Hvm).then_some(DEVICE_MODEL);
        PROGRAMS.into_iter().chain(further).collect()
    }

    /// Without a restart whatever happens, and with the processor's own TSC. Without
    /// the keyboard that fully virtualized domains get: when one ends, `xl` waits two
    /// seconds for it.
    fn configuration(&self) -> String {
        let GuestConfig {
            memory_mib,
            cpus,
            scheduling,
            ..
        } = self.machine;
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

/// One of Xen's own where the loader looks by itself, another where it is here.
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
        Maker::Intel => ("", ""),
    };
    let words = xen_words(maker, scheduler);
    let (hypervisor, kernel) = (xen.hypervisor(), xen.kernel());
    let hash = |path: &Path| sha256_of_file(path);
    let facts = [
        ("xen", xen.origin()),
        ("xen-sha256", hash(&hypervisor)?),
        ("xen-command-line", words.clone()),
        ("l1-kernel-sha256", hash(&kernel)?),
    ];
    Ok(Base {
        machine,
        processor,
        loaded: BootFiles {
            kernel: hypervisor,
            words,
            module: Some((kernel, kernel_words(maker))),
        },
        modules: xen.modules()?,
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        random_state: false,
    })
}
