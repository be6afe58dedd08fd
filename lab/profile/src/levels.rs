//! The level of virtualization that executes: 0 is the system of the machine, 1 its guest, 2 the
//! guest of that guest, and so on.
//!
//! Only level 0 enters guests: VMRUN of a deeper level exits to level 0, which then enters the
//! nested guest on its behalf, and an exit of a nested guest leads to level 0 first. Level 0
//! passes it on by entering the level below the guest at the target of that level's #VMEXIT. So
//! the level follows from the VMRUNs and exit targets that are executed, and from the level that
//! each level left last.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Number of levels: the system of the machine and three levels of guests.
pub const MAX_LEVELS: usize = 4;

/// Number of VMRUN instructions that are distinguished.
const MAX_ENTRIES: usize = 16;

/// Identifies a VMRUN instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId(u8);

impl EntryId {
    /// Returns the identifier of the `number`th instruction. Those beyond the limit share one.
    pub fn new(number: usize) -> Self {
        Self(number.min(MAX_ENTRIES - 1) as u8)
    }
}

/// Result of reaching an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The level that executes it.
    pub level: u8,
    /// The level that a physical #VMEXIT led from, if one led here.
    pub exited: Option<u8>,
}

/// Tracks the level of a CPU.
pub struct Levels {
    current: AtomicU8,
    /// Level of the next instruction, unless that is the target of a #VMEXIT.
    next: AtomicU8,
    /// Level that each level left last.
    resumes: [AtomicU8; MAX_LEVELS],
    /// Level that executes each VMRUN.
    entries: [AtomicU8; MAX_ENTRIES],
}

impl Levels {
    /// Returns the state of a CPU outside of guests.
    pub const fn new() -> Self {
        Self {
            current: AtomicU8::new(0),
            next: AtomicU8::new(0),
            resumes: [const { AtomicU8::new(0) }; MAX_LEVELS],
            entries: [const { AtomicU8::new(0) }; MAX_ENTRIES],
        }
    }

    /// Returns the level that executes now.
    pub fn current(&self) -> u8 {
        self.current.load(Relaxed)
    }

    /// Records that the next instruction is reached; `target_of` is the VMRUN whose #VMEXIT leads
    /// to it, if any.
    pub fn reach(&self, target_of: Option<EntryId>) -> Reached {
        let (before, next) = (self.current(), self.next.load(Relaxed));
        let target = target_of.map(|entry| self.entries[usize::from(entry.0)].load(Relaxed));
        let Some(level) = target.filter(|target| *target < next) else {
            self.current.store(next, Relaxed);
            return Reached {
                level: next,
                exited: None,
            };
        };
        self.resumes[usize::from(level)].store(next, Relaxed);
        self.current.store(level, Relaxed);
        self.next.store(level, Relaxed);
        // Level 0 entered a guest whose first instruction could not be fetched.
        let exited = if before == 0 { next } else { before };
        Reached {
            level,
            exited: (level == 0).then_some(exited),
        }
    }

    /// Records that the current level executes a VMRUN.
    pub fn enter(&self, entry: EntryId) {
        let level = self.current();
        self.entries[usize::from(entry.0)].store(level, Relaxed);
        let left = self.resumes[usize::from(level)].load(Relaxed);
        let entered = left.max(level + 1).min(MAX_LEVELS as u8 - 1);
        self.next.store(entered, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: EntryId = EntryId(0);
    const NESTED: EntryId = EntryId(1);

    fn run(levels: &Levels) -> u8 {
        levels.reach(None).level
    }

    fn exit(levels: &Levels, entry: EntryId) -> (u8, Option<u8>) {
        let Reached { level, exited } = levels.reach(Some(entry));
        (level, exited)
    }

    #[test]
    fn levels_follow_entries_and_exits() {
        let levels = Levels::new();
        assert_eq!(run(&levels), 0);
        levels.enter(MACHINE);
        assert_eq!(run(&levels), 1);
        // The guest's VMRUN exits to the machine, which enters the nested guest.
        levels.enter(NESTED);
        assert_eq!(exit(&levels, MACHINE), (0, Some(1)));
        levels.enter(MACHINE);
        assert_eq!(run(&levels), 2);
        // An exit that the machine handles, and one that it passes on.
        assert_eq!(exit(&levels, MACHINE), (0, Some(2)));
        levels.enter(MACHINE);
        assert_eq!(run(&levels), 2);
        assert_eq!(exit(&levels, MACHINE), (0, Some(2)));
        levels.enter(MACHINE);
        assert_eq!(exit(&levels, NESTED), (1, None));
        assert_eq!(run(&levels), 1);
        // The guest itself exits, and continues.
        assert_eq!(exit(&levels, MACHINE), (0, Some(1)));
        levels.enter(MACHINE);
        assert_eq!(run(&levels), 1);
    }

    #[test]
    fn guests_may_exit_before_their_first_instruction() {
        let levels = Levels::new();
        levels.enter(MACHINE);
        assert_eq!(exit(&levels, MACHINE), (0, Some(1)));
        assert_eq!(run(&levels), 0);
    }

    #[test]
    fn exits_of_the_third_level_pass_two_levels() {
        let levels = Levels::new();
        let third = EntryId(2);
        levels.enter(MACHINE);
        run(&levels);
        levels.enter(NESTED);
        exit(&levels, MACHINE);
        levels.enter(MACHINE);
        assert_eq!(run(&levels), 2);
        // Level 2 enters level 3: level 0 passes the exit on to level 1, which emulates it.
        levels.enter(third);
        exit(&levels, MACHINE);
        levels.enter(MACHINE);
        assert_eq!(exit(&levels, NESTED), (1, None));
        levels.enter(NESTED);
        exit(&levels, MACHINE);
        levels.enter(MACHINE);
        assert_eq!(run(&levels), 3);
        // An exit of level 3 leads through level 1 to level 2.
        assert_eq!(exit(&levels, MACHINE), (0, Some(3)));
        levels.enter(MACHINE);
        assert_eq!(exit(&levels, NESTED), (1, None));
        levels.enter(NESTED);
        assert_eq!(exit(&levels, MACHINE), (0, Some(1)));
        levels.enter(MACHINE);
        assert_eq!(exit(&levels, third), (2, None));
    }
}
