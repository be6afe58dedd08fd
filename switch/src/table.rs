//! The table of hardware addresses: which port has sent from which address.
//!
//! It has a fixed size. A port has at most [`MOST_OF_PORT`] addresses, and a new one displaces none of another port that is not
//! too old. Which addresses share a part of the table is different in each switch: nobody can choose some that fill the part of
//! another. The fixed address of a port is never learnt from another one, nor forgotten.

use crate::frame::Mac;
use std::hash::{BuildHasher, RandomState};

/// Number of entries.
const SIZE: usize = 8192;
/// Entries in which an address may be.
const WINDOW: usize = 8;
/// Maximum number of addresses of a port.
pub const MOST_OF_PORT: u32 = 512;
/// Seconds after which an address that has not sent is forgotten (IEEE 802.1Q, table 8-6).
pub const AGE: u32 = 300;

const EMPTY: u64 = 0;

/// Second of the last frame of a fixed address.
const FIXED: u32 = u32::MAX;

/// Result of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// It is known.
    Known,
    /// There is no room for it.
    NoRoom,
    /// It is the fixed address of another port.
    OfOther,
}

/// An entry with an address that no frame has.
const NO_MEMO: Entry = Entry {
    mac: u64::MAX,
    port: 0,
    seen: 0,
};

/// An entry.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The address, or [`EMPTY`], which no card has.
    mac: u64,
    port: u32,
    /// Second of the last frame.
    seen: u32,
}

/// The table.
pub struct Table {
    entries: Box<[Entry]>,
    /// The key of the hash.
    key: RandomState,
    /// Number of addresses of each port.
    counts: Vec<u32>,
    /// The last address of a source and of a destination, with its port and second: mostly the next one, too.
    memo: [Entry; 2],
    /// Second of the last search for old addresses of each port: a search reads the whole table.
    searched: Vec<u32>,
}

impl Table {
    /// Creates an empty table for a number of ports.
    pub fn new(ports: usize) -> Self {
        Self {
            entries: vec![Entry::default(); SIZE].into(),
            key: RandomState::new(),
            counts: vec![0; ports],
            memo: [NO_MEMO; 2],
            searched: vec![0; ports],
        }
    }

    #[inline]
    fn window(&self, mac: Mac) -> std::ops::Range<usize> {
        let first = self.key.hash_one(mac.number()) as usize & (SIZE - WINDOW);
        first..first + WINDOW
    }

    /// Returns the port of an address, unless that is unknown or too old.
    #[inline]
    pub fn port(&mut self, mac: Mac, now: u32) -> Option<usize> {
        let [_, memo] = &self.memo;
        if memo.mac == mac.number() && memo.seen == now {
            return Some(memo.port as usize);
        }
        let found = self.find(mac, now)?;
        self.memo[1] = Entry {
            mac: mac.number(),
            port: found as u32,
            seen: now,
        };
        Some(found)
    }

    fn find(&self, mac: Mac, now: u32) -> Option<usize> {
        let entries = &self.entries[self.window(mac)];
        let found = entries.iter().find(|entry| entry.mac == mac.number())?;
        let is_valid = found.seen == FIXED || now.wrapping_sub(found.seen) < AGE;
        is_valid.then_some(found.port as usize)
    }

    /// Gives an address to a port for good. Returns false if another port has it, or there is no room for it.
    pub fn fix(&mut self, mac: Mac, port: usize) -> bool {
        let is_learnt = self.learn(mac, port, 0) == Learnt::Known;
        self.memo = [NO_MEMO; 2];
        let window = self.window(mac);
        let mut entries = self.entries[window].iter_mut();
        let entry = entries.find(|entry| entry.mac == mac.number());
        entry
            .filter(|_| is_learnt)
            .map(|it| it.seen = FIXED)
            .is_some()
    }

    /// Notes that a port has sent from an address.
    #[inline]
    pub fn learn(&mut self, mac: Mac, port: usize, now: u32) -> Learnt {
        let [memo, _] = &self.memo;
        if (memo.mac, memo.port as usize, memo.seen) == (mac.number(), port, now) {
            return Learnt::Known;
        }
        let window = self.window(mac);
        let entries = &mut self.entries[window];
        match entries.iter_mut().find(|entry| entry.mac == mac.number()) {
            Some(entry) if entry.port as usize == port => {
                if entry.seen != FIXED {
                    entry.seen = now;
                }
                self.memo[0] = Entry {
                    seen: now,
                    ..*entry
                };
                Learnt::Known
            }
            Some(entry) if entry.seen == FIXED => Learnt::OfOther,
            _ => self.learn_new(mac, port, now),
        }
    }

    #[cold]
    fn learn_new(&mut self, mac: Mac, port: usize, now: u32) -> Learnt {
        self.memo = [NO_MEMO; 2];
        if self.counts[port] == MOST_OF_PORT && self.searched[port] != now {
            self.searched[port] = now;
            self.forget(port, |entry| now.wrapping_sub(entry.seen) >= AGE);
        }
        if self.counts[port] == MOST_OF_PORT {
            return Learnt::NoRoom;
        }
        let window = self.window(mac);
        let entries = &mut self.entries[window];
        // Of equal ones the first, which is found first.
        let order = |entry: &Entry| match entry.mac {
            own if own == mac.number() => (0, 0),
            EMPTY => (1, 0),
            _ => (2, u32::MAX - now.wrapping_sub(entry.seen)),
        };
        let is_learnable = |entry: &&mut Entry| {
            let is_free = [EMPTY, mac.number()].contains(&entry.mac);
            let is_own_or_old = entry.port as usize == port || now.wrapping_sub(entry.seen) >= AGE;
            entry.seen != FIXED && (is_free || is_own_or_old)
        };
        let learnable = entries.iter_mut().filter(is_learnable);
        let Some(entry) = learnable.min_by_key(|entry| order(entry)) else {
            return Learnt::NoRoom;
        };
        if entry.mac != EMPTY {
            self.counts[entry.port as usize] -= 1;
        }
        *entry = Entry {
            mac: mac.number(),
            port: port as u32,
            seen: now,
        };
        self.counts[port] += 1;
        Learnt::Known
    }

    /// Forgets all addresses of a port but its fixed one.
    pub fn clear(&mut self, port: usize) {
        self.forget(port, |_| true);
    }

    fn forget(&mut self, port: usize, is_old: impl Fn(&Entry) -> bool) {
        self.memo = [NO_MEMO; 2];
        let of_port = |entry: &&mut Entry| {
            entry.mac != EMPTY && entry.port as usize == port && entry.seen != FIXED
        };
        for entry in self.entries.iter_mut().filter(of_port) {
            if is_old(entry) {
                *entry = Entry::default();
                self.counts[port] -= 1;
            }
        }
    }

    /// Returns the number of addresses of a port.
    pub fn count(&self, port: usize) -> u32 {
        self.counts[port]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn mac(number: u64) -> Mac {
        let [a, b, c, d, e, f, ..] = number.to_le_bytes();
        Mac::new([a, b, c, d, e, f])
    }

    #[test]
    fn address_moves_ages_and_is_forgotten_with_its_port() {
        let mut table = Table::new(2);
        assert_eq!(table.learn(mac(2), 0, 10), Learnt::Known);
        assert_eq!(table.port(mac(2), 10 + AGE - 1), Some(0));
        assert_eq!(table.port(mac(2), 10 + AGE), None);
        assert_eq!(table.learn(mac(2), 1, 20), Learnt::Known);
        assert_eq!((table.count(0), table.count(1)), (0, 1));
        assert_eq!(table.port(mac(2), 21), Some(1));
        table.clear(1);
        assert_eq!((table.port(mac(2), 21), table.count(1)), (None, 0));
    }

    #[test]
    fn fixed_address_stays_with_its_port() {
        let mut table = Table::new(2);
        assert!(table.fix(mac(2), 0));
        assert!(!table.fix(mac(2), 1));
        for now in [0, 1, 2 * AGE, FIXED - 1] {
            assert_eq!(table.learn(mac(2), 1, now), Learnt::OfOther);
            assert_eq!(table.port(mac(2), now), Some(0));
            assert_eq!(table.learn(mac(2), 0, now), Learnt::Known);
            table.clear(0);
        }
        // Not even a flood of addresses displaces it, whose entries all are younger.
        for number in 0..1_000_000 {
            table.learn(mac(1 << 40 | number), 1, AGE);
        }
        assert_eq!(table.port(mac(2), AGE), Some(0));
        assert_eq!(table.count(0), 1);
    }

    #[test]
    fn addresses_of_one_window_displace_none_of_another_port() {
        let mut table = Table::new(3);
        let window = table.window(mac(2));
        assert_eq!(table.learn(mac(2), 0, 1), Learnt::Known);
        let numbers = (4..).map(mac).filter(|it| table.window(*it) == window);
        let chosen: Vec<Mac> = numbers.take(2 * WINDOW).collect();
        for chosen in &chosen {
            // The last ones displace those of their own port.
            assert_eq!(table.learn(*chosen, 1, 2), Learnt::Known);
        }
        assert_eq!(table.port(mac(2), 2), Some(0));
        assert_eq!(table.learn(chosen[0], 2, 2), Learnt::NoRoom);
        assert_eq!((table.count(0), table.count(1)), (1, WINDOW as u32 - 1));
        // What is too old makes room.
        assert_eq!(table.learn(chosen[0], 2, 1 + AGE), Learnt::Known);
        assert_eq!((table.count(0), table.count(2)), (0, 1));
    }

    #[test]
    fn windows_are_different_in_each_table() {
        let tables = [Table::new(1), Table::new(1)];
        let are_equal = |number: u64| {
            let [one, other] = tables.each_ref().map(|it| it.window(mac(number)));
            one == other
        };
        assert!((0..100).filter(|number| are_equal(number << 8)).count() < 50);
    }

    #[test]
    fn port_that_invents_addresses_displaces_none() {
        let mut table = Table::new(2);
        for number in 1..=100 {
            assert_eq!(table.learn(mac(number << 8), 0, 1), Learnt::Known);
        }
        let learn = |number: &u64| table.learn(mac(1 << 40 | number), 1, 2) == Learnt::Known;
        let learnt = (0..1_000_000).filter(learn);
        assert!(learnt.count() as u32 >= MOST_OF_PORT);
        let kept = (1..=100).filter(|number| table.port(mac(number << 8), 2) == Some(0));
        assert_eq!(kept.count(), 100);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_entries(frames in prop::collection::vec((1_u64..3000, 0_usize..3, 0_u32..2), 0..5000)) {
            let (mut table, mut now) = (Table::new(3), 0);
            for (number, port, later) in frames {
                now += later;
                table.learn(mac(number), port, now);
                prop_assert!(table.port(mac(number), now).is_none_or(|found| found == port || table.count(port) == MOST_OF_PORT));
            }
            let mut counts = HashMap::new();
            for entry in table.entries.iter().filter(|entry| entry.mac != EMPTY) {
                *counts.entry(entry.port as usize).or_insert(0) += 1;
            }
            for port in 0..3 {
                prop_assert_eq!(counts.get(&port).copied().unwrap_or(0), table.count(port));
            }
        }
    }
}
