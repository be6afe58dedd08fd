//! The loop: enter the guest, answer, enter again.

use crate::console::Console;
use crate::populate::Giver;
use crate::ticker::Ticker;
use crate::{signals, Ending, Failure};
use std::sync::Arc;
use trapline_abi::frame::{whole_length, HEADER, MAX_FRAME};
use trapline_abi::populate::Refusal;
use trapline_interface::{Activity, Entry, Exit, Gpa, IoAddr, Region, Tally, Vcpu};
use trapline_monitor::devices::{Board, Effect, Host, Terminal, Trigger};

/// A machine with one vCPU.
pub struct Machine<V> {
    vcpu: V,
    board: Board,
    console: Console,
    memory: Arc<Region>,
    interrupts: Option<Gpa>,
    ticker: Option<Ticker>,
    giver: Option<Box<dyn Giver>>,
    apart: Apart,
}

/// Exits that are no accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Apart {
    halts: u64,
    others: u64,
}

impl Apart {
    /// All exits to the VMM, of which `accesses` are accesses.
    fn and(&self, accesses: u64, tally: &Tally) -> u64 {
        accesses + self.halts + self.others - tally.bundled
    }
}

/// What a machine counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Exits to the VMM, of every kind.
    pub user_exits: u64,
    /// Exits from the guest to the kernel, where it tells.
    pub kernel_exits: Option<u64>,
    /// Port accesses.
    pub ports: u64,
    /// Memory accesses.
    pub mmio: u64,
    /// Halts that reached the VMM.
    pub halts: u64,
    /// Accesses that no device claimed.
    pub unclaimed: u64,
}

impl<V: Vcpu> Machine<V> {
    /// A machine around `vcpu`. `interrupts`: where in `memory` the guest counts the
    /// interrupts it takes.
    pub fn new(vcpu: V, console: Console, memory: Arc<Region>, interrupts: Option<Gpa>) -> Self {
        Self {
            vcpu,
            board: Board::new(interrupts.is_some()),
            console,
            memory,
            interrupts,
            ticker: None,
            giver: None,
            apart: Apart::default(),
        }
    }

    /// The same with a timer for the guest.
    #[must_use]
    pub fn with_ticker(self, ticker: Ticker) -> Self {
        Self {
            board: self.board.with_ticker(),
            ticker: Some(ticker),
            ..self
        }
    }

    /// The same with memory for a guest that asks for it.
    #[must_use]
    pub fn with_giver(self, giver: Box<dyn Giver>) -> Self {
        Self {
            board: self.board.with_populate(),
            giver: Some(giver),
            ..self
        }
    }

    /// Runs the guest to its end. `starting` is called at the vCPU's first exit,
    /// just before the guest's first instruction.
    ///
    /// # Errors
    /// The kernel's refusal to go on.
    pub fn run(&mut self, starting: impl FnOnce()) -> Result<Ending, Failure> {
        self.await_start()?;
        starting();
        let ending = self.run_loop();
        self.console.finish();
        ending
    }

    #[inline(never)]
    fn await_start(&mut self) -> Result<(), Failure> {
        let first = self.vcpu.run(Entry::Resume)?;
        debug_assert_eq!(first, Exit::Started);
        Ok(())
    }

    fn run_loop(&mut self) -> Result<Ending, Failure> {
        let mut entry = Entry::Resume;
        loop {
            // One match, and nothing moved: whatever is built between the kernel's
            // answer and the device is paid for at each exit.
            entry = match self.vcpu.run(entry) {
                Ok(Exit::Write {
                    at: IoAddr::Port(port),
                    size,
                    data,
                }) => {
                    let mut around = Around::new(&mut self.console, &mut self.vcpu, &self.apart);
                    match self.board.write_port(port, size, data as u32, &mut around) {
                        Effect::None => {}
                        effect => {
                            if let Some(ending) = self.apply(effect)? {
                                return Ok(ending);
                            }
                        }
                    }
                    Entry::Resume
                }
                Ok(Exit::Read {
                    at: IoAddr::Port(port),
                    size,
                }) => {
                    let mut around = Around::new(&mut self.console, &mut self.vcpu, &self.apart);
                    Entry::Answer(self.board.read_port(port, size, &mut around).into())
                }
                Ok(Exit::Write {
                    at: IoAddr::Mmio(address),
                    size,
                    data,
                }) => {
                    self.board.write_mmio(address, size, data);
                    Entry::Resume
                }
                Ok(Exit::Read {
                    at: IoAddr::Mmio(address),
                    size,
                }) => Entry::Answer(self.board.read_mmio(address, size)),
                Ok(Exit::Started) => Entry::Resume,
                Ok(Exit::Kicked) => match self.recalled() {
                    None => Entry::Resume,
                    Some(ending) => return Ok(ending),
                },
                Ok(Exit::Hypercall { .. }) => self.refuse_hypercall(),
                Ok(Exit::Halted) => {
                    self.apart.halts += 1;
                    return Ok(Ending::Halted);
                }
                Ok(Exit::Stopped(stop)) => {
                    self.apart.others += 1;
                    return Ok(Ending::Stopped(stop));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What a write does to the machine.
    #[inline(never)]
    fn apply(&mut self, effect: Effect) -> Result<Option<Ending>, Failure> {
        match effect {
            // This machine has no power switch.
            Effect::None | Effect::Off | Effect::Reset => Ok(None),
            Effect::Exit(value) => Ok(Some(Ending::of_exit(value))),
            Effect::Idle(seen) => {
                self.console.flush();
                self.apart.halts += 1;
                let count = self.interrupts.and_then(|at| self.memory.load32(at.0));
                if count == Some(seen) {
                    self.vcpu.set_state(&Activity::Halted.into())?;
                }
                Ok(None)
            }
            Effect::Frame(address) => {
                self.say_frame(address.into());
                Ok(None)
            }
            Effect::Tick(page) => {
                if let Some(ticker) = &self.ticker {
                    ticker.order(page.into());
                }
                Ok(None)
            }
            Effect::Populate(order) => {
                let refused = Err(Refusal::Failed);
                let giver = self.giver.as_mut();
                let outcome = giver.map_or(refused, |giver| giver.obey(order));
                self.board.populated(order, outcome);
                Ok(None)
            }
        }
    }

    /// Hands on the frame at `address` of guest memory, if one begins there. Its
    /// length is limited; whether its contents make sense is for whoever reads the
    /// console.
    fn say_frame(&mut self, address: u64) {
        let mut header = [0; HEADER];
        let mut frame = [0; MAX_FRAME];
        let found = self.memory.read(address, &mut header).ok();
        let Some(length) = found.and_then(|()| whole_length(&header)) else {
            return;
        };
        if self.memory.read(address, &mut frame[..length]).is_ok() {
            self.console.put_all(&frame[..length]);
        }
    }

    /// Whether a recall is the end.
    #[cold]
    #[inline(never)]
    fn recalled(&mut self) -> Option<Ending> {
        self.apart.others += 1;
        self.console.flush();
        let deaf = self.console.failure().map(|_| Ending::Deaf);
        signals::stopped().map(Ending::Signal).or(deaf)
    }

    /// The kernel answers what hypercalls it knows itself; nobody knows others.
    #[cold]
    #[inline(never)]
    fn refuse_hypercall(&mut self) -> Entry {
        self.apart.others += 1;
        Entry::Answer(u64::MAX)
    }

    /// What was counted so far.
    pub fn totals(&mut self) -> Totals {
        let counts = self.board.counts();
        let tally = self.vcpu.tally();
        Totals {
            user_exits: self.apart.and(counts.ports + counts.mmio, &tally),
            kernel_exits: tally.kernel,
            ports: counts.ports,
            mmio: counts.mmio,
            halts: self.apart.halts,
            unclaimed: counts.unclaimed,
        }
    }

    /// Guest TSC minus host TSC, where it is known.
    pub fn tsc_offset(&self) -> Option<i64> {
        self.vcpu.tsc_offset()
    }
}

/// What the devices see of the machine around them.
struct Around<'a, V> {
    console: &'a mut Console,
    vcpu: &'a mut V,
    apart: &'a Apart,
}

impl<'a, V> Around<'a, V> {
    #[inline(always)]
    fn new(console: &'a mut Console, vcpu: &'a mut V, apart: &'a Apart) -> Self {
        Self {
            console,
            vcpu,
            apart,
        }
    }
}

impl<V> Terminal for Around<'_, V> {
    fn say(&mut self, byte: u8) {
        self.console.send(byte);
    }

    fn has_room(&self) -> bool {
        self.console.has_room()
    }

    fn hear(&mut self) -> Option<u8> {
        self.console.get()
    }
}

/// The serial port's interrupt is connected to nothing: guests here poll.
impl<V> Trigger for Around<'_, V> {
    fn trigger(&mut self) {}
}

impl<V: Vcpu> Host for Around<'_, V> {
    fn print(&mut self, byte: u8) {
        self.console.put(byte);
    }

    fn exits(&mut self, accesses: u64) -> u64 {
        self.console.flush();
        let tally = self.vcpu.tally();
        tally
            .kernel
            .unwrap_or_else(|| self.apart.and(accesses, &tally))
    }
}

#[cfg(test)]
mod tests;
