//! Memory for a guest that asks for it while it runs ([`trapline_abi::populate`]).
//!
//! A region is made and, if that was wanted, populated on the thread of the virtual CPU
//! that asks; meanwhile this guest waits, and nobody else has to: between two steps the
//! thread gives way. What a guest can ask for is bounded by what a wish can say.

use std::io;
use std::sync::Arc;
use trapline_abi::platform::WINDOW;
use trapline_abi::populate::{Refusal, Wish};
use trapline_interface::{has_huge_pages, Access, Gpa, Pages, Populate, Region, Vm};
use trapline_monitor::devices::Order;

/// Who gives memory to a guest.
pub trait Giver {
    /// Does what the guest ordered.
    ///
    /// # Errors
    /// Why not, for the guest.
    fn obey(&mut self, order: Order) -> Result<(), Refusal>;
}

/// Gives it in a virtual machine.
pub struct Memory<M> {
    vm: M,
    how: Populate,
    has_huge_pages: bool,
}

impl<M: Vm> Memory<M> {
    /// Memory for `vm`; `how` is done what is to be done beforehand.
    pub fn new(vm: M, how: Populate) -> Self {
        Self {
            vm,
            how,
            // The sandbox lets nobody ask later.
            has_huge_pages: has_huge_pages(),
        }
    }

    fn give(&self, wish: Wish) -> Result<(), Refusal> {
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
            .attach(Gpa(WINDOW), Arc::new(region), Access::ReadWrite);
        attached.map_err(|_| Refusal::Failed)
    }
}

impl<M: Vm> Giver for Memory<M> {
    fn obey(&mut self, order: Order) -> Result<(), Refusal> {
        match order {
            Order::Give(wish) => self.give(wish),
            // Nobody else holds the region: it goes with this.
            Order::TakeBack => self
                .vm
                .detach(Gpa(WINDOW))
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

    fn memory() -> Memory<<Fake as Hypervisor>::Vm> {
        let vm = Fake::replaying([]).create_vm(&VmSpec::with(Controllers::Local));
        Memory::new(vm.unwrap(), Populate::Steps)
    }

    #[test]
    fn a_region_is_at_the_window_and_gone_again() {
        let mut memory = memory();
        for wish in Wish::ALL.into_iter().filter(|wish| wish.order <= 9) {
            if wish.huge && !memory.has_huge_pages {
                continue;
            }
            assert_eq!(memory.obey(Order::Give(wish)), Ok(()));
            assert_eq!(memory.obey(Order::Give(wish)), Err(Refusal::Failed));
            let region = memory.vm.detach(Gpa(WINDOW)).unwrap();
            assert_eq!(region.len() as u64, wish.bytes());
            memory
                .vm
                .attach(Gpa(WINDOW), region, Access::ReadWrite)
                .unwrap();
            assert_eq!(memory.obey(Order::TakeBack), Ok(()));
            assert_eq!(memory.obey(Order::TakeBack), Err(Refusal::Failed));
        }
    }

    #[test]
    fn pages_that_the_kernel_does_not_have_are_refused() {
        let mut memory = memory();
        memory.has_huge_pages = false;
        for wish in Wish::ALL.into_iter().filter(|wish| wish.huge) {
            let refused = memory.obey(Order::Give(wish));
            assert_eq!(refused, Err(Refusal::NoHugePages));
        }
    }
}
