//! Accesses of every size, registers, attaching and detaching memory, halt, kick, triple fault.

use super::{
    create, guest,
    test_vm::{fill, TestVm},
    trace, Failure, Host, Trace,
};
use crate::{Access, Caps, Controllers, Entry, Exit, Gpa, Hypervisor, IoAddr, Region, Vm};
use alloc::string::String;
use alloc::sync::Arc;

pub(super) const PART: &str = "accesses";

/// Answers to the guest's reads, in order.
const ANSWERS: [u64; 11] = [
    0x5a,
    0xa55a,
    0xdead_beef,
    0x11,
    0x22,
    0x99,
    0xa0a1,
    0xb0b1_b2b3,
    0x0123_4567_89ab_cdef,
    0x1111_1111,
    0x4444_4444,
];

/// Returns the expected trace for these capabilities.
pub fn expected_accesses(caps: &Caps) -> String {
    let read_only = if caps.read_only { trace::READ_ONLY } else { "" };
    [trace::ACCESSES, read_only, trace::ENDING].concat()
}

pub(super) fn run<H: Hypervisor>(
    hypervisor: &H,
    caps: &Caps,
    host: &dyn Host,
) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::None)?;
    let mut test = TestVm::new(PART, &vm, host, guest::ACCESSES, &[])?;
    let mut flags = 0;
    if caps.read_only {
        flags |= guest::HAS_READ_ONLY;
    }
    let doorbell = test.doorbell()?;
    if doorbell.is_some() {
        flags |= guest::HAS_DOORBELL;
    }
    let window = Arc::new(test.memory(crate::PAGE)?);
    let mut answers = ANSWERS.into_iter();
    test.follow(&expected_accesses(caps), |test, exit| match exit {
        Exit::Started => test.adjust(|general| {
            general.r12 = 0x600d_cafe;
            general.r15 = flags;
        }),
        Exit::Read { .. } => Ok(Entry::Answer(answers.next().unwrap_or_default())),
        Exit::Write {
            at: IoAddr::Port(port),
            ..
        } => test.accessed(port, &window),
        Exit::Halted => test.kick_now(),
        Exit::Kicked if test.spins => test.adjust(|general| general.r14 = 0x7777_7777),
        _ => Ok(Entry::Resume),
    })?;
    test.check_doorbell(doorbell)?;
    Ok(test.trace)
}

impl<M: Vm> TestVm<'_, M> {
    /// Handles the guest's write to `port`.
    fn accessed(&mut self, port: u16, window: &Arc<Region>) -> Result<Entry, Failure> {
        let at = Gpa(guest::WINDOW);
        match port {
            0x604 => {
                let seen = self.general()?.r13;
                self.check(
                    seen == 0x1122_3344_5566_7788,
                    "r13 is not what the guest put there",
                )?;
            }
            0x605 => {
                fill(window, 0, &0x2222_2222u32.to_le_bytes())?;
                self.attach(at, window, Access::ReadWrite)?;
            }
            0x606 => {
                let back = self.detach(at)?;
                self.check(Arc::ptr_eq(&back, window), "another region came back")?;
                let stored = window.load32(4);
                self.check(
                    stored == Some(0x3333_3333),
                    "the guest's store is not in its memory",
                )?;
            }
            0x607 => {
                fill(window, 0, &0x5555_5555u32.to_le_bytes())?;
                self.attach(at, window, Access::ReadOnly)?;
            }
            // A kick after that would reach the next guest of this thread.
            0x608 if !self.spins => {
                self.spins = true;
                return self.kick_soon();
            }
            _ => {}
        }
        Ok(Entry::Resume)
    }
}
