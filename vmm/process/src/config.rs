//! Options of a VM.

use crate::crossing::Crossing;
use crate::spaces::MOST_SPACES;
use trapline_abi::spaces::{BY_CALL, BY_PORT};

/// Options of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Mechanism for hypercalls.
    pub crossing: Crossing,
    /// Number of processes between which the guest's address spaces are distributed, at most [`Self::MOST_SPACES`]. Some
    /// mechanisms have one only.
    pub spaces: usize,
    /// Component that switches between them.
    pub switch: Switch,
    /// A process makes the system calls that the VMM needs of it when it continues, or at once.
    pub batching: bool,
    /// The VMM copies the registers of a stopped process from its memory and back, or has them mapped.
    pub copies_state: bool,
}

/// Component that switches between the processes of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// The processes themselves.
    #[default]
    Guest,
    /// The VMM, at an exit.
    Vmm,
}

impl Config {
    /// Maximum of [`Self::spaces`].
    pub const MOST_SPACES: usize = MOST_SPACES;

    /// Returns the number of processes.
    pub(crate) fn processes(&self) -> usize {
        if self.crossing.permits_several_processes() {
            self.spaces.clamp(1, MOST_SPACES)
        } else {
            1
        }
    }

    /// Returns whether the guest's processes perform requests for address spaces.
    pub(crate) fn switches_itself(&self) -> bool {
        self.switch == Switch::Guest && self.crossing.permits_several_processes()
    }

    /// Returns what port [`trapline_abi::platform::SPACES`] reads.
    pub(crate) fn space_requests(&self) -> u32 {
        if self.switches_itself() {
            BY_CALL
        } else {
            BY_PORT
        }
    }
}

impl From<Crossing> for Config {
    fn from(crossing: Crossing) -> Self {
        Self {
            crossing,
            spaces: 1,
            switch: Switch::default(),
            batching: true,
            copies_state: false,
        }
    }
}
