//! From settings to a machine that is ready to run.

use crate::file::MappedFile;
use crate::settings::{EntryChoice, Settings};
use crate::Failure;
use std::io;
use std::sync::Arc;
use trapline_abi::populate::NO_HUGE_PAGES;
use trapline_interface::{
    has_huge_pages, Access, Controllers, Gpa, Hypervisor, Pages, Populate, Region, Ring0, VcpuId,
    Vm, VmSpec,
};
use trapline_monitor::boot::{prepare, Image, Plan, Prepared, Way};

/// A machine, ready to run.
pub struct Ready<H: Hypervisor> {
    /// Holds the guest's memory together.
    pub vm: H::Vm,
    /// Its only vCPU.
    pub vcpu: <H::Vm as Vm>::Vcpu,
    /// Its memory, from address 0.
    pub memory: Arc<Region>,
    /// Where the guest counts interrupts, if it says so.
    pub interrupts: Option<Gpa>,
    /// The privilege ring the guest starts in.
    pub ring: u8,
}

/// Makes the machine that `settings` ask for.
///
/// # Errors
/// What is wrong with them, or with the host.
pub fn set_up<H: Hypervisor>(settings: &Settings, ring0: Ring0) -> Result<Ready<H>, Failure> {
    let file = MappedFile::open(&settings.image)?;
    let image = Image::parse(file.bytes()).map_err(|source| Failure::Image {
        path: settings.image.clone(),
        source,
    })?;
    let way = choose_way(settings, &image, ring0);
    let plan = Plan {
        memory: settings.memory,
        command_line: &settings.command_line,
        way,
    };
    let kind = (settings.pages, settings.prefault);
    assemble_in::<H>(&image, &plan, settings.halt_in_guest, kind)
}

/// Makes the machine that starts `image` as planned, and halts in it if `halt_in_guest`
/// is set.
///
/// # Errors
/// What does not go together, or what the host refuses.
pub fn assemble<H: Hypervisor>(
    image: &Image<'_>,
    plan: &Plan<'_>,
    halt_in_guest: bool,
) -> Result<Ready<H>, Failure> {
    assemble_in::<H>(image, plan, halt_in_guest, (None, None))
}

/// The same in memory of that kind.
fn assemble_in<H: Hypervisor>(
    image: &Image<'_>,
    plan: &Plan<'_>,
    halt_in_guest: bool,
    kind: Kind,
) -> Result<Ready<H>, Failure> {
    let prepared = prepare(image, plan)?;
    if halt_in_guest && prepared.boot.system.ring() != 0 {
        return Err(Failure::Usage(NO_HALT.to_owned()));
    }
    let memory = fill(plan.memory, kind, &prepared)?;
    let vm = H::open()?.create_vm(&VmSpec {
        halt_in_guest,
        ..VmSpec::with(Controllers::Local)
    })?;
    vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)?;
    let vcpu = vm.create_vcpu(VcpuId(0), Some(&prepared.boot))?;
    Ok(Ready {
        vm,
        vcpu,
        memory,
        interrupts: prepared.interrupts,
        ring: prepared.boot.system.ring(),
    })
}

/// Why a guest at ring 3 cannot halt so.
const NO_HALT: &str = "--halt-in-guest: the image runs at ring 3, where a guest halts by a port: \
                       leave it out, or use a host with VMX or SVM and --ring 0";

/// The ring whose code the CPU itself executes.
pub fn native_ring(ring0: Ring0) -> u8 {
    match ring0 {
        Ring0::Native => 0,
        Ring0::Emulated => 3,
    }
}

/// What was asked for; else what is best here. What does not go together is found
/// out by [`prepare`].
fn choose_way(settings: &Settings, image: &Image<'_>, ring0: Ring0) -> Way {
    let direct = Way::Direct {
        ring: settings.ring.unwrap_or(native_ring(ring0)),
    };
    match settings.entry {
        EntryChoice::Direct => direct,
        EntryChoice::Pvh if settings.ring != Some(3) => Way::Pvh,
        EntryChoice::Auto if settings.ring != Some(3) && image.direct().is_none() => Way::Pvh,
        // PVH has no ring 3: whoever asks for that asks for a direct start.
        EntryChoice::Pvh | EntryChoice::Auto => direct,
    }
}

/// The pages of a guest's memory, and how it is populated.
pub(crate) type Kind = (Option<Pages>, Option<Populate>);

/// Guest memory with the pieces in their places.
pub(crate) fn fill(
    length: u64,
    (pages, prefault): Kind,
    prepared: &Prepared<'_>,
) -> Result<Arc<Region>, Failure> {
    let no_memory = || Failure::system("make the guest's memory");
    let length =
        usize::try_from(length).map_err(|_| no_memory()(io::ErrorKind::OutOfMemory.into()))?;
    let memory = match pages {
        None => Region::new(length).map_err(no_memory())?,
        Some(Pages::Huge) if !has_huge_pages() => {
            return Err(Failure::Usage(format!("--pages 2m: {NO_HUGE_PAGES}")))
        }
        Some(pages) => Region::private(length, pages).map_err(no_memory())?,
    };
    if let Some(how) = prefault {
        let failed = Failure::system("populate the guest's memory");
        memory.populate(how).map_err(failed)?;
    }
    for piece in &prepared.pieces {
        memory
            .write(piece.at.0, &piece.bytes)
            .map_err(no_memory())?;
    }
    Ok(Arc::new(memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{parse, Request};
    use trapline_monitor::boot::specimen::Specimen;

    fn way(words: &[&str], specimen: &Specimen, ring0: Ring0) -> Way {
        let words = ["--image", "k"].iter().chain(words);
        let Ok(Request::Run(settings)) = parse(lexopt::Parser::from_args(words)) else {
            panic!("no settings");
        };
        let bytes = specimen.bytes();
        choose_way(&settings, &Image::parse(&bytes).unwrap(), ring0)
    }

    #[test]
    fn the_native_ring_is_chosen_unless_one_is_asked_for() {
        let (pvh, direct) = (Specimen::pvh(&[0xf4]), Specimen::direct(&[0xf4]));
        let (native, emulated) = (Ring0::Native, Ring0::Emulated);
        assert_eq!(way(&[], &direct, native), Way::Direct { ring: 0 });
        assert_eq!(way(&[], &direct, emulated), Way::Direct { ring: 3 });
        assert_eq!(
            way(&["--ring", "0"], &direct, emulated),
            Way::Direct { ring: 0 }
        );
        assert_eq!(
            way(&["--ring", "3"], &direct, native),
            Way::Direct { ring: 3 }
        );
        assert_eq!(way(&[], &pvh, emulated), Way::Pvh);
        assert_eq!(
            way(&["--entry", "direct"], &pvh, native),
            Way::Direct { ring: 0 }
        );
        assert_eq!(way(&["--entry", "pvh"], &direct, emulated), Way::Pvh);
    }
}
