//! Sets of operations.

use super::Op;
use core::array::from_fn;
use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Sub, SubAssign};

/// Set of operations, with room for every number on the wire.
///
/// `|` is the union, `&` the intersection and `-` the difference. Operands of `|`, and the right one of `-`, can be single
/// operations: `Op::PortOut | Op::Cpuid` is a set.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OpSet {
    /// See [`OpSet::words`].
    words: [u64; 4],
}

impl OpSet {
    /// The empty set.
    pub const EMPTY: OpSet = OpSet::from_words([0; 4]);

    /// The set of all operations.
    pub const ALL: OpSet = OpSet::of(&Op::ALL);

    /// The operations that are measured apart from others, in launches of their own, because they change what others cost: a
    /// second device, huge pages. Only their own names select them.
    pub const APART: OpSet = OpSet::of(&[Op::Doorbell, Op::FirstTouch2m]);

    /// Creates a set, also in constants, where operators are not available.
    pub const fn of(mut ops: &[Op]) -> OpSet {
        let mut words = [0; 4];
        while let [op, rest @ ..] = ops {
            let (word, bit) = place(*op);
            words[word] |= bit;
            ops = rest;
        }
        OpSet { words }
    }

    /// Creates the set with these [`Self::words`]. Numbers that no operation has can be members, too.
    pub const fn from_words(words: [u64; 4]) -> OpSet {
        OpSet { words }
    }

    /// Returns 256 bits, least significant word first, of which bit `n` is set if operation number `n` is a member.
    pub const fn words(self) -> [u64; 4] {
        self.words
    }

    /// Returns true if `op` is a member.
    #[inline]
    pub const fn contains(&self, op: Op) -> bool {
        let (word, bit) = place(op);
        self.words[word] & bit != 0
    }

    /// Returns true if the set has no member.
    pub fn is_empty(self) -> bool {
        self == OpSet::EMPTY
    }

    /// Returns the number of members.
    pub fn len(self) -> usize {
        self.words.into_iter().map(u64::count_ones).sum::<u32>() as usize
    }

    /// Returns true if the sets have a common member.
    pub fn intersects(self, other: OpSet) -> bool {
        !(self & other).is_empty()
    }

    /// Returns true if all members are members of `other`.
    pub fn is_subset(self, other: OpSet) -> bool {
        (self - other).is_empty()
    }

    /// Returns the operations that are members, in display order.
    pub fn iter(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |op| self.contains(*op))
    }

    fn zip(self, other: OpSet, combine: impl Fn(u64, u64) -> u64) -> OpSet {
        let words = from_fn(|word| combine(self.words[word], other.words[word]));
        OpSet { words }
    }
}

/// Returns the word that has the bit of `op`, and this bit.
const fn place(op: Op) -> (usize, u64) {
    let number = op.number();
    ((number / 64) as usize, 1 << (number % 64))
}

impl From<Op> for OpSet {
    fn from(op: Op) -> OpSet {
        OpSet::of(&[op])
    }
}

impl<T: Into<OpSet>> FromIterator<T> for OpSet {
    fn from_iter<I: IntoIterator<Item = T>>(sets: I) -> OpSet {
        sets.into_iter().fold(OpSet::EMPTY, |all, set| all | set)
    }
}

impl<T: Into<OpSet>> BitOr<T> for OpSet {
    type Output = OpSet;

    fn bitor(self, other: T) -> OpSet {
        self.zip(other.into(), BitOr::bitor)
    }
}

impl<T: Into<OpSet>> BitOr<T> for Op {
    type Output = OpSet;

    fn bitor(self, other: T) -> OpSet {
        OpSet::from(self) | other
    }
}

impl<T: Into<OpSet>> BitOrAssign<T> for OpSet {
    fn bitor_assign(&mut self, other: T) {
        *self = *self | other;
    }
}

impl BitAnd for OpSet {
    type Output = OpSet;

    fn bitand(self, other: OpSet) -> OpSet {
        self.zip(other, BitAnd::bitand)
    }
}

/// Difference: the members that are not in the other set.
impl<T: Into<OpSet>> Sub<T> for OpSet {
    type Output = OpSet;

    fn sub(self, other: T) -> OpSet {
        self.zip(other.into(), |one, other| one & !other)
    }
}

impl<T: Into<OpSet>> SubAssign<T> for OpSet {
    fn sub_assign(&mut self, other: T) {
        *self = *self - other;
    }
}

/// Formats the operations in the order of their numbers, and as a number what is no operation.
impl fmt::Debug for OpSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = f.debug_set();
        for number in 0..=u8::MAX {
            if self.words[usize::from(number / 64)] & 1 << (number % 64) != 0 {
                match Op::from_number(number) {
                    Some(op) => set.entry(&op),
                    None => set.entry(&number),
                };
            }
        }
        set.finish()
    }
}

#[cfg(test)]
mod tests;
