//! Memory hotplug on guest request ([`trapline_abi::populate`]).
//!
//! The region is mapped, and populated if requested, on the thread of the requesting vCPU, which yields the CPU between
//! steps. Sizes are bounded by the request format.

use std::io;
use std::sync::Arc;
use trapline_abi::platform::HOTPLUG_BASE;
use trapline_abi::populate::{MemoryRequest, Refusal};
use trapline_interface::{Access, Gpa, Pages, Populate, Region, Vm};
use trapline_monitor::devices::HotplugRequest;

/// Provides memory to a running guest.
pub trait MemoryProvider {
    /// Attaches or detaches memory.
    ///
    /// # Errors
    /// The reason, as reported to the guest.
    fn handle(&mut self, request: HotplugRequest) -> Result<(), Refusal>;
}

/// Attaches memory to a VM.
pub struct VmMemory<M> {
    vm: M,
    how: Populate,
    has_huge_pages: bool,
}

impl<M: Vm> VmMemory<M> {
    /// Creates a provider for `vm`; `how` selects the population of prefaulted regions. `has_huge_pages` is queried before
    /// the process drops its privileges.
    pub fn new(vm: M, how: Populate, has_huge_pages: bool) -> Self {
        Self {
            vm,
            how,
            has_huge_pages,
        }
    }

    fn attach(&self, wish: MemoryRequest) -> Result<(), Refusal> {
        let pages = match wish.huge {
            true if !self.has_huge_pages => return Err(Refusal::NoHugePages),
            true => Pages::Huge,
            false => Pages::Small,
        };
        let length = usize::try_from(wish.bytes()).map_err(|_| Refusal::NoMemory)?;
        let region = Region::private(length, pages).map_err(refusal)?;
        if wish.prefault {
            region.populate(self.how).map_err(refusal)?;
        }
        let attached = self
            .vm
            .attach(Gpa(HOTPLUG_BASE), Arc::new(region), Access::ReadWrite);
        attached.map_err(|_| Refusal::Failed)
    }
}

impl<M: Vm> MemoryProvider for VmMemory<M> {
    fn handle(&mut self, request: HotplugRequest) -> Result<(), Refusal> {
        match request {
            HotplugRequest::Attach(wish) => self.attach(wish),
            HotplugRequest::Detach => self
                .vm
                .detach(Gpa(HOTPLUG_BASE))
                .map(drop)
                .map_err(|_| Refusal::Failed),
        }
    }
}

fn refusal(error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::OutOfMemory => Refusal::NoMemory,
        _ => Refusal::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_interface::fake::Fake;
    use trapline_interface::{Controllers, Hypervisor, VmSpec};

    fn memory() -> VmMemory<<Fake as Hypervisor>::Vm> {
        let vm = Fake::replaying([]).create_vm(&VmSpec::with(Controllers::Local));
        VmMemory::new(
            vm.unwrap(),
            Populate::Steps,
            trapline_interface::has_huge_pages(),
        )
    }

    #[test]
    fn region_is_attached_and_detached() {
        let mut memory = memory();
        for wish in MemoryRequest::ALL
            .into_iter()
            .filter(|wish| wish.order <= 9)
        {
            if wish.huge && !memory.has_huge_pages {
                continue;
            }
            assert_eq!(memory.handle(HotplugRequest::Attach(wish)), Ok(()));
            assert_eq!(
                memory.handle(HotplugRequest::Attach(wish)),
                Err(Refusal::Failed)
            );
            let region = memory.vm.detach(Gpa(HOTPLUG_BASE)).unwrap();
            assert_eq!(region.len() as u64, wish.bytes());
            memory
                .vm
                .attach(Gpa(HOTPLUG_BASE), region, Access::ReadWrite)
                .unwrap();
            assert_eq!(memory.handle(HotplugRequest::Detach), Ok(()));
            assert_eq!(memory.handle(HotplugRequest::Detach), Err(Refusal::Failed));
        }
    }

    #[test]
    fn missing_huge_pages_are_refused() {
        let mut memory = memory();
        memory.has_huge_pages = false;
        for wish in MemoryRequest::ALL.into_iter().filter(|wish| wish.huge) {
            let refused = memory.handle(HotplugRequest::Attach(wish));
            assert_eq!(refused, Err(Refusal::NoHugePages));
        }
    }
}
