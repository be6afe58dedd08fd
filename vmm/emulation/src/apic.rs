//! A local APIC with its timer (Intel SDM volume 3, chapter 11). The timer counts nanoseconds.

mod shared;
mod x2apic;

pub use shared::{RequestBits, SharedRequests};

/// Number of interrupt vectors.
pub const VECTORS: usize = 256;

/// Requested interrupts.
pub trait Requests {
    /// Requests an interrupt.
    fn request(&mut self, vector: u8);

    /// Clears a request.
    fn clear(&mut self, vector: u8);

    /// Returns the requests of 32 vectors, a bit each.
    fn word(&self, index: usize) -> u32;
}

/// Requests by the vCPU alone.
impl Requests for [u32; VECTORS / 32] {
    fn request(&mut self, vector: u8) {
        self[usize::from(vector) / 32] |= 1 << (vector % 32);
    }

    fn clear(&mut self, vector: u8) {
        self[usize::from(vector) / 32] &= !(1 << (vector % 32));
    }

    fn word(&self, index: usize) -> u32 {
        self[index]
    }
}

const ID: u64 = 0x20;
const VERSION: u64 = 0x30;
const TASK_PRIORITY: u64 = 0x80;
const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const IN_SERVICE: u64 = 0x100;
const REQUESTED: u64 = 0x200;
const COMMAND: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER: u64 = 0x320;
const INITIAL_COUNT: u64 = 0x380;
const CURRENT_COUNT: u64 = 0x390;
const DIVIDER: u64 = 0x3e0;

/// Version 0x14 with six local vectors, as KVM's.
const VERSION_VALUE: u32 = 0x5_0014;
const ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const PERIODIC: u32 = 1 << 17;
const TSC_DEADLINE: u32 = 1 << 18;
/// Destination shorthands "self" and "all including self".
const TO_SELF: u32 = 1 << 18;

/// Number of registers, 16 bytes apart.
const REGISTERS: usize = 0x40;

/// The local APIC of a vCPU.
pub struct Apic<R> {
    registers: [u32; REGISTERS],
    in_service: [u32; VECTORS / 32],
    requests: R,
    /// Expiry of the timer, and its period or 0.
    timer: Option<(u64, u64)>,
}

impl<R: Requests> Apic<R> {
    /// Creates an APIC after a reset.
    pub fn new(requests: R) -> Self {
        let mut apic = Self {
            registers: [0; REGISTERS],
            in_service: [0; VECTORS / 32],
            requests,
            timer: None,
        };
        *apic.register(SPURIOUS) = 0xff;
        *apic.register(TIMER) = MASKED;
        apic
    }

    fn register(&mut self, offset: u64) -> &mut u32 {
        &mut self.registers[offset as usize / 16 % REGISTERS]
    }

    /// Reads the register at `offset`.
    #[inline(always)]
    pub fn read(&mut self, offset: u64, now: u64) -> u32 {
        let word = |base: u64| (offset - base) as usize / 16;
        match offset & !15 {
            ID => 0,
            VERSION => VERSION_VALUE,
            at @ IN_SERVICE.. if at < IN_SERVICE + 0x80 => self.in_service[word(IN_SERVICE)],
            at @ REQUESTED.. if at < REQUESTED + 0x80 => self.requests.word(word(REQUESTED)),
            CURRENT_COUNT => self.timer.map_or(0, |(due, _)| {
                (due.saturating_sub(now) >> self.shift()) as u32
            }),
            at => *self.register(at),
        }
    }

    /// Writes the register at `offset`.
    #[inline(always)]
    pub fn write(&mut self, offset: u64, value: u32, now: u64) {
        let at = offset & !15;
        match at {
            END_OF_INTERRUPT => self.end_of_interrupt(),
            ID | VERSION | CURRENT_COUNT => {}
            _ => *self.register(at) = value,
        }
        match at {
            COMMAND if value & TO_SELF != 0 || *self.register(COMMAND_HIGH) == 0 => {
                self.requests.request(value as u8);
            }
            INITIAL_COUNT => self.start_timer(value, now),
            _ => {}
        }
    }

    /// Power of two by which the timer divides.
    fn shift(&mut self) -> u32 {
        let bits = *self.register(DIVIDER);
        (((bits & 3 | bits >> 1 & 4) + 1) & 7).min(7)
    }

    fn start_timer(&mut self, count: u32, now: u64) {
        let span = u64::from(count) << self.shift();
        let is_periodic = *self.register(TIMER) & PERIODIC != 0;
        self.timer = (count != 0).then_some((now + span, if is_periodic { span } else { 0 }));
    }

    /// Sets the timer to a time, or stops it with 0, in the mode for this.
    pub fn set_deadline(&mut self, time: u64) {
        if *self.register(TIMER) & TSC_DEADLINE != 0 {
            self.timer = (time != 0).then_some((time, 0));
        }
    }

    /// Returns the time of the next timer interrupt.
    pub fn deadline(&mut self) -> Option<u64> {
        let is_masked = *self.register(TIMER) & MASKED != 0;
        self.timer.filter(|_| !is_masked).map(|(due, _)| due)
    }

    /// Requests the timer's interrupt if it has expired.
    pub fn expire(&mut self, now: u64) {
        let Some(due) = self.deadline().filter(|due| *due <= now) else {
            return;
        };
        let vector = *self.register(TIMER) as u8;
        self.requests.request(vector);
        self.timer = match self.timer {
            Some((_, period)) if period != 0 => Some((due + period, period)),
            _ => None,
        };
    }

    fn end_of_interrupt(&mut self) {
        if let Some(vector) = highest(|word| self.in_service[word]) {
            self.in_service[vector / 32] &= !(1 << (vector % 32));
        }
    }

    /// Returns the requested interrupt of the highest priority, if it may be delivered.
    pub fn pending(&mut self) -> Option<u8> {
        if *self.register(SPURIOUS) & ENABLED == 0 {
            return None;
        }
        let vector = highest(|word| self.requests.word(word))?;
        let in_service = highest(|word| self.in_service[word]).unwrap_or(0);
        let priority = (*self.register(TASK_PRIORITY) as usize).max(in_service);
        (vector / 16 > priority / 16).then_some(vector as u8)
    }

    /// Requests an interrupt.
    pub fn request(&mut self, vector: u8) {
        self.requests.request(vector);
    }

    /// Moves an interrupt into service.
    pub fn accept(&mut self, vector: u8) {
        self.requests.clear(vector);
        self.in_service[usize::from(vector) / 32] |= 1 << (vector % 32);
    }
}

/// Returns the highest set bit of `word`.
fn highest(word: impl Fn(usize) -> u32) -> Option<usize> {
    let has = |index: &usize| word(*index) != 0;
    let index = (0..VECTORS / 32).rev().find(has)?;
    Some(index * 32 + 31 - word(index).leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apic() -> Apic<[u32; VECTORS / 32]> {
        let mut apic = Apic::new([0; VECTORS / 32]);
        apic.write(SPURIOUS, ENABLED | 0x3f, 0);
        apic
    }

    #[test]
    fn higher_vector_is_delivered_first_and_blocks_lower_ones() {
        let mut apic = apic();
        apic.requests.request(0x40);
        apic.requests.request(0x80);
        apic.requests.request(0x40);
        assert_eq!(apic.pending(), Some(0x80));
        apic.accept(0x80);
        assert_eq!(apic.pending(), None);
        assert_eq!(apic.read(IN_SERVICE + 0x40, 0), 1);
        apic.write(END_OF_INTERRUPT, 0, 0);
        assert_eq!(apic.pending(), Some(0x40));
        apic.accept(0x40);
        apic.write(END_OF_INTERRUPT, 0, 0);
        assert_eq!(apic.pending(), None);
    }

    #[test]
    fn disabled_apic_delivers_nothing() {
        let mut apic = apic();
        apic.write(SPURIOUS, 0x3f, 0);
        apic.requests.request(0x40);
        assert_eq!(apic.pending(), None);
    }

    #[test]
    fn timer_expires_once_and_can_be_read() {
        let mut apic = apic();
        apic.write(DIVIDER, 0b1011, 0);
        apic.write(TIMER, 0x31, 0);
        apic.write(INITIAL_COUNT, 1000, 50);
        assert_eq!(apic.deadline(), Some(1050));
        assert_eq!(apic.read(CURRENT_COUNT, 250), 800);
        apic.expire(1049);
        assert_eq!(apic.pending(), None);
        apic.expire(1050);
        assert_eq!((apic.pending(), apic.deadline()), (Some(0x31), None));
    }

    #[test]
    fn timer_divides_and_repeats() {
        let mut apic = apic();
        apic.write(DIVIDER, 0b0000, 0);
        apic.write(TIMER, PERIODIC | 0x31, 0);
        apic.write(INITIAL_COUNT, 10, 0);
        assert_eq!(apic.deadline(), Some(20));
        apic.expire(21);
        assert_eq!(apic.deadline(), Some(40));
    }

    #[test]
    fn deadline_is_set_in_its_mode_only() {
        let mut apic = apic();
        apic.write(TIMER, 0x31, 0);
        apic.set_deadline(1000);
        assert_eq!(apic.deadline(), None);
        apic.write(TIMER, TSC_DEADLINE | 0x31, 0);
        apic.set_deadline(1000);
        assert_eq!(apic.deadline(), Some(1000));
        apic.set_deadline(0);
        assert_eq!(apic.deadline(), None);
        apic.set_deadline(1000);
        apic.expire(1000);
        assert_eq!((apic.pending(), apic.deadline()), (Some(0x31), None));
    }

    #[test]
    fn self_interrupt_is_requested() {
        let mut apic = apic();
        apic.write(COMMAND, TO_SELF | 1 << 14 | 0x30, 0);
        assert_eq!(apic.pending(), Some(0x30));
    }
}
