//! Pseudorandom numbers of tests, the same in each run.

/// A generator (xorshift64*, Vigna 2016) with its state, which is not 0.
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Returns a number that is often near `limit`.
    pub fn interesting(&mut self, limit: u64) -> u64 {
        match self.below(8) {
            0 => self.number(),
            1 => limit.wrapping_sub(self.below(3)),
            _ => self.below(limit),
        }
    }
}
