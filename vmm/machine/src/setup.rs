//! Construction of a VM for an image.

use crate::file::MappedFile;
use crate::settings::{Backend, EntryMode, MemoryKind, VmConfig};
use crate::{privileges, sandbox, Failure};
use std::io;
use std::sync::Arc;
use trapline_abi::populate::NO_HUGE_PAGES;
use trapline_interface::{
    has_huge_pages, Access, Controllers, Gpa, Hypervisor, Missing, Pages, Populate, Region, Ring0,
    VcpuId, Vm, VmSpec, PAGE,
};
use trapline_monitor::boot::{
    prepare, Chunk, EntryPoint, Image, Plan, Prepared, HIGH_MEMORY, MAX_MEMORY,
};
use trapline_xen::{DomainConfig, XenVm};

/// A VM for an image.
pub struct Ready<V: Vm> {
    /// The VM, which owns guest memory.
    pub vm: V,
    /// Its first vCPU.
    pub vcpu: V::Vcpu,
    /// Further vCPUs, which wait for INIT and SIPI.
    pub secondary: Vec<V::Vcpu>,
    /// Guest memory, from address 0.
    pub memory: Arc<Region>,
    /// Address of the guest's interrupt count, if the image has one.
    pub interrupts: Option<Gpa>,
    /// Initial privilege ring.
    pub ring: u8,
}

/// Creates the VM described by `settings`. For a guest that is a process, which inherits them, privileges are dropped
/// before.
///
/// # Errors
/// The settings or the host are unsuitable.
pub fn set_up<H: Hypervisor>(
    settings: &VmConfig,
    open: impl FnOnce() -> Result<H, Missing>,
    ring0: Ring0,
) -> Result<Ready<H::Vm>, Failure> {
    let file = MappedFile::open(&settings.image, MAX_MEMORY)?;
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
    let kind = (settings.memory_kind(), settings.prefault);
    // A private mapping of the file would be another one in the guest's process.
    let mapped = match settings.backend {
        // Another process sees the memory's own file only.
        Backend::Kvm if settings.shares_memory() => None,
        Backend::Kvm | Backend::KvmUserApic => Some(&file),
        Backend::Process => {
            privileges::drop_all(settings.user, settings.chroot.as_deref())?;
            None
        }
        Backend::Xen => None,
    };
    let spec = VmSpec {
        halt_in_guest: settings.halt_in_guest,
        cpus: settings.cpus,
        ..VmSpec::with(Controllers::Local)
    };
    assemble_in(open, &image, &plan, &spec, kind, mapped)
}

/// Creates a VM that boots `image` according to `plan`.
///
/// # Errors
/// The plan does not fit the image, or the host refuses.
pub fn assemble<H: Hypervisor>(
    image: &Image<'_>,
    plan: &Plan<'_>,
    halt_in_guest: bool,
) -> Result<Ready<H::Vm>, Failure> {
    let spec = VmSpec {
        halt_in_guest,
        ..VmSpec::with(Controllers::Local)
    };
    assemble_in(H::open, image, plan, &spec, (MemoryKind::File, None), None)
}

/// Creates a VM with memory of this kind; `file` is that of the image, if any.
fn assemble_in<H: Hypervisor>(
    open: impl FnOnce() -> Result<H, Missing>,
    image: &Image<'_>,
    plan: &Plan<'_>,
    spec: &VmSpec,
    kind: Kind,
    file: Option<&MappedFile>,
) -> Result<Ready<H::Vm>, Failure> {
    let prepared = prepare(image, plan)?;
    if spec.halt_in_guest && prepared.boot.system.ring() != 0 {
        return Err(Failure::Usage(NO_HALT.to_owned()));
    }
    let memory = fill(plan.memory, kind, &prepared, file)?;
    let vm = open()?.create_vm(spec)?;
    vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)?;
    let vcpu = vm.create_vcpu(VcpuId(0), Some(&prepared.boot))?;
    let others = 1..spec.cpus;
    let secondary = others.map(|number| vm.create_vcpu(VcpuId(number), None));
    Ok(Ready {
        secondary: secondary.collect::<Result<_, _>>()?,
        vm,
        vcpu,
        memory,
        interrupts: prepared.interrupts,
        ring: prepared.boot.system.ring(),
    })
}

/// Becomes the device model of a domain of Xen, which has loaded its image at ring 0.
///
/// # Errors
/// This is not Xen's first domain, or there is no such domain.
pub fn adopt(settings: &VmConfig) -> Result<Ready<XenVm>, Failure> {
    let vm = XenVm::open(DomainConfig {
        id: settings.domain.unwrap_or_default(),
        memory: settings.memory,
    })?;
    let vm = vm.serve()?;
    if settings.sandbox {
        sandbox::guard(vm.only_hypercall())?;
    }
    let vcpu = vm.create_vcpu(VcpuId(0), None)?;
    Ok(Ready {
        memory: vm.memory(),
        vm,
        vcpu,
        secondary: Vec::new(),
        interrupts: None,
        ring: 0,
    })
}

/// Error for a guest at ring 3.
const NO_HALT: &str =
    "--halt-in-guest: not supported at ring 3, where a guest halts by a port write; \
                       use a host with VMX or SVM and --ring 0";

/// Returns the ring that runs natively.
pub fn native_ring(ring0: Ring0) -> u8 {
    match ring0 {
        Ring0::Native => 0,
        Ring0::Emulated => 3,
    }
}

/// Returns the requested entry, or the default for this host. [`prepare`] rejects unsuitable combinations.
fn choose_way(settings: &VmConfig, image: &Image<'_>, ring0: Ring0) -> EntryPoint {
    let direct = EntryPoint::Direct {
        ring: settings.ring.unwrap_or(native_ring(ring0)),
    };
    match settings.entry {
        EntryMode::Direct => direct,
        EntryMode::Pvh if settings.ring != Some(3) => EntryPoint::Pvh,
        EntryMode::Auto if settings.ring != Some(3) && image.direct().is_none() => EntryPoint::Pvh,
        // PVH has no ring 3, so a request for ring 3 implies a direct entry.
        EntryMode::Pvh | EntryMode::Auto => direct,
    }
}

/// Kind and population of guest memory.
pub(crate) type Kind = (MemoryKind, Option<Populate>);

/// Creates guest memory and loads the pieces. Those of `file` are mapped instead of copied, unless pages are selected.
pub(crate) fn fill(
    length: u64,
    (kind, prefault): Kind,
    prepared: &Prepared<'_>,
    file: Option<&MappedFile>,
) -> Result<Arc<Region>, Failure> {
    let no_memory = || Failure::system("make the guest's memory");
    let length =
        usize::try_from(length).map_err(|_| no_memory()(io::ErrorKind::OutOfMemory.into()))?;
    let low = length.min(MAX_MEMORY as usize);
    let hole = low..HIGH_MEMORY as usize;
    let (span, hole) = match length - low {
        0 => (length, length..length),
        high => (hole.end + high, hole),
    };
    let memory = match kind {
        MemoryKind::Private(Pages::Huge) if !has_huge_pages() => {
            return Err(Failure::Usage(format!("--pages 2m: {NO_HUGE_PAGES}")))
        }
        MemoryKind::Private(pages) => Region::private(span, pages),
        MemoryKind::Auto | MemoryKind::File => Region::new(span),
    };
    let mut memory = memory.map_err(no_memory())?.without(hole);
    if kind == MemoryKind::Private(Pages::Usual) && prepared.image_end > 0 {
        // The first touch of a huge page clears all of it, which would delay the start.
        memory.begin_with_small_pages(prepared.image_end as usize);
    }
    if let Some(how) = prefault {
        let failed = Failure::system("populate the guest's memory");
        memory.populate(how).map_err(failed)?;
    }
    let is_usual = matches!(kind, MemoryKind::File | MemoryKind::Private(Pages::Usual));
    let file = file.filter(|_| is_usual && prefault.is_none());
    for piece in &prepared.pieces {
        load(&mut memory, piece, file).map_err(no_memory())?;
    }
    Ok(Arc::new(memory))
}

/// Loads `piece`: whole pages of `file` are mapped, the rest is copied.
fn load(memory: &mut Region, piece: &Chunk<'_>, file: Option<&MappedFile>) -> io::Result<()> {
    let (start, bytes) = (piece.at.0, &piece.bytes);
    let whole = bytes.len() / PAGE * PAGE;
    let place = file.and_then(|file| file.locate(bytes));
    let place = place.filter(|(_, at)| (start | at).is_multiple_of(PAGE as u64) && whole > 0);
    let Some((file, at)) = place else {
        return memory.load(start, bytes);
    };
    memory.map_file(start, file, at, whole)?;
    memory.load(start + whole as u64, &bytes[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{parse, Request};
    use trapline_monitor::boot::test_image::TestImage;

    fn way(words: &[&str], test_image: &TestImage, ring0: Ring0) -> EntryPoint {
        let words = ["--image", "k"].iter().chain(words);
        let Ok(Request::Run(settings)) = parse(lexopt::Parser::from_args(words)) else {
            panic!("no settings");
        };
        let bytes = test_image.bytes();
        choose_way(&settings, &Image::parse(&bytes).unwrap(), ring0)
    }

    #[test]
    fn native_ring_is_the_default() {
        let (pvh, direct) = (TestImage::pvh(&[0xf4]), TestImage::direct(&[0xf4]));
        let (native, emulated) = (Ring0::Native, Ring0::Emulated);
        assert_eq!(way(&[], &direct, native), EntryPoint::Direct { ring: 0 });
        assert_eq!(way(&[], &direct, emulated), EntryPoint::Direct { ring: 3 });
        assert_eq!(
            way(&["--ring", "0"], &direct, emulated),
            EntryPoint::Direct { ring: 0 }
        );
        assert_eq!(
            way(&["--ring", "3"], &direct, native),
            EntryPoint::Direct { ring: 3 }
        );
        assert_eq!(way(&[], &pvh, emulated), EntryPoint::Pvh);
        assert_eq!(
            way(&["--entry", "direct"], &pvh, native),
            EntryPoint::Direct { ring: 0 }
        );
        assert_eq!(way(&["--entry", "pvh"], &direct, emulated), EntryPoint::Pvh);
    }
}
