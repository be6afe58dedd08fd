//! Accesses of every size, registers, memory that comes and goes, a halt, a kick, an end.

use super::{create, guest, stand::Stand, trace, Failure, Trace};
use crate::{Access, Caps, Controllers, Entry, Exit, Gpa, Hypervisor, IoAddr, Region, Vm};
use std::sync::Arc;

const PART: &str = "accesses";

/// What the guest reads, in order.
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

/// The trace that a backend with these capabilities must show for the first guest.
pub fn expected_accesses(caps: &Caps) -> String {
    let read_only = if caps.read_only { trace::READ_ONLY } else { "" };
    [trace::ACCESSES, read_only, trace::ENDING].concat()
}

pub(super) fn run<H: Hypervisor>(hypervisor: &H, caps: &Caps) -> Result<Trace, Failure> {
    let vm = create(hypervisor, PART, Controllers::None)?;
    let mut stand = Stand::new(PART, &vm, guest::ACCESSES, &[])?;
    let mut flags = 0;
    if caps.read_only {
        flags |= guest::HAS_READ_ONLY;
    }
    let doorbell = stand.doorbell()?;
    if doorbell.is_some() {
        flags |= guest::HAS_DOORBELL;
    }
    let window = Arc::new(Region::new(crate::PAGE)?);
    let mut answers = ANSWERS.into_iter();
    stand.follow(&expected_accesses(caps), |stand, exit| match exit {
        Exit::Started => stand.adjust(|general| {
            general.r12 = 0x600d_cafe;
            general.r15 = flags;
        }),
        Exit::Read { .. } => Ok(Entry::Answer(answers.next().unwrap_or_default())),
        Exit::Write {
            at: IoAddr::Port(port),
            ..
        } => stand.accessed(port, &window),
        Exit::Halted => stand.kick_now(),
        Exit::Kicked if stand.spins => stand.adjust(|general| general.r14 = 0x7777_7777),
        _ => Ok(Entry::Resume),
    })?;
    stand.check_doorbell(doorbell)?;
    Ok(stand.trace)
}

impl<M: Vm> Stand<'_, M> {
    /// The first guest has announced something at `port`.
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
                window.write(0, &0x2222_2222u32.to_le_bytes())?;
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
                window.write(0, &0x5555_5555u32.to_le_bytes())?;
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
