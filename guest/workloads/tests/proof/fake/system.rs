//! Services of the fake kernel.

use super::cpus::{NoThread, Threads};
use super::{Defect, Fake, Page, SLOW};
use std::fmt;
use std::ptr::NonNull;
use trapline_abi::block::{DiskRequest, Transfer};
use trapline_abi::interrupt::unpack;
use trapline_abi::job::WaitMode;
use trapline_abi::net::Exchange;
use trapline_abi::packet::Frames;
use trapline_abi::populate::MemoryRequest;
use trapline_abi::{Interrupt, Job, Record};
use trapline_workloads::irq::{
    run_one_shot_timer, run_periodic_timer, Arrival, Expiry, InterruptLog, OneShotTimer,
    PeriodicTimer, TimerSource, TimerWindow,
};
use trapline_workloads::{ticks, Block, Cpus, Files, Reason, System, Wake};

impl System for Fake {
    type Machine = Self;
    type Processes = Self;

    fn send(&mut self, record: &Record<'_>) {
        self.records.push(format!("{record:?}"));
        if let Record::Interrupts { packed, .. } = record {
            let mut hear = |interrupt: Interrupt| self.expiries.push(interrupt.sequence);
            unpack(packed, &mut hear).expect("whole interrupts");
        }
    }
    fn wait_for_go(&mut self) {
        self.records.push("go".to_owned());
    }
    fn quiesce(&mut self) {
        self.quiesced += 1;
    }
    fn exits(&mut self) -> Option<u64> {
        Some(7)
    }
    fn getpid(&mut self) -> u32 {
        self.pids += u32::from(self.defect == Defect::ChangePid);
        42 + self.pids
    }
    fn open_null(&mut self) -> Result<(), Reason> {
        match self.defect {
            Defect::NoNullDevice => Err("there is no null device"),
            _ => Ok(()),
        }
    }
    fn write_null(&mut self, bytes: &[u8]) -> usize {
        bytes.len() - usize::from(self.defect == Defect::ShortWrite)
    }
    fn read_null(&mut self, _: &mut [u8]) -> usize {
        usize::from(self.defect == Defect::FullNullDevice)
    }
    fn cpus(&mut self, _: &Job) -> Result<&'static dyn Cpus, Reason> {
        match self.defect {
            Defect::NoSecondCpu => Err("there is one CPU"),
            Defect::NoThread => Ok(&NoThread),
            defect => Ok(Box::leak(Box::new(Threads::new(defect)))),
        }
    }
    fn start_peer(&mut self) -> Result<(), Reason> {
        Ok(())
    }
    fn yield_now(&mut self) {
        if self.defect == Defect::SlowFirst && self.turns == 0 {
            let start = ticks();
            while ticks() - start < SLOW {}
        }
        self.turns += u64::from(self.defect != Defect::NeverSwitch);
    }
    fn peer_turns(&mut self) -> u64 {
        self.turns
    }
    fn stop_peer(&mut self) {}
    fn allocate(&mut self, bytes: usize) -> Option<Block> {
        if self.defect == Defect::NoMemory {
            return None;
        }
        let filling = u128::from(self.defect == Defect::UsedPages);
        self.hold(Page::filled(bytes, filling))
    }
    fn allocate_zeroed(&mut self, bytes: usize) -> Option<Block> {
        match self.released.pop() {
            Some(used) if self.defect == Defect::UsedMemory => self.hold(used),
            _ => self.allocate(bytes),
        }
    }
    fn zero_while_idle(&mut self, bytes: usize) -> u64 {
        bytes as u64
    }
    unsafe fn release(&mut self, block: Block) {
        let at = block.start.as_ptr().cast_const().cast();
        let released = self.blocks.extract_if(.., |held| held.as_ptr() == at);
        self.released.extend(released);
    }
    fn sleep(&mut self, ahead: u64) -> Result<Wake, Reason> {
        let woke = ticks();
        self.sleeps += 1;
        match self.defect {
            Defect::SlowFirst if self.sleeps < 6 => Ok(Wake {
                due: woke - SLOW,
                woke,
            }),
            Defect::NoSleep => Err("this machine cannot sleep"),
            Defect::WakeEarly => Ok(Wake {
                due: woke + ahead,
                woke,
            }),
            _ => Ok(Wake {
                due: woke - 1,
                woke,
            }),
        }
    }
    fn check_timer(&mut self, source: TimerSource, _: WaitMode) -> Result<(), Reason> {
        match (self.defect, source) {
            (Defect::NoSleep, TimerSource::Host) => Err("the VMM has no timer"),
            _ => Ok(()),
        }
    }
    fn run_timer(
        &mut self,
        window: &TimerWindow,
        log: &mut InterruptLog<'_>,
    ) -> Result<(), Reason> {
        if self.defect != Defect::NeverTick {
            let mut timer = Spinning::new(self.defect, window);
            match window.source {
                TimerSource::Periodic => run_periodic_timer(&mut timer, window, log),
                _ => run_one_shot_timer(&mut timer, window, log),
            }
        }
        Ok(())
    }
    fn attach(&mut self, wish: MemoryRequest) {
        assert!(self.region.is_none(), "one region at a time");
        let length = match self.defect {
            Defect::NoRegion => return,
            Defect::ShortRegion => wish.bytes() / 2,
            _ => wish.bytes(),
        };
        let filling = u128::from(self.defect == Defect::UsedRegion) << 64;
        self.region = Some(vec![filling; length as usize / 16]);
    }
    fn attached_region(&mut self) -> Result<Block, Reason> {
        let region = self
            .region
            .as_mut()
            .ok_or("memory hotplug is not available")?;
        Ok(Block {
            start: NonNull::new(region.as_mut_ptr().cast()).ok_or("a null pointer")?,
            length: region.len() * 16,
        })
    }
    unsafe fn detach(&mut self) -> Result<(), Reason> {
        self.region = None;
        match self.defect {
            Defect::KeepRegion => Err("it is wanted"),
            _ => Ok(()),
        }
    }
    fn machine(&mut self) -> Result<&mut Self, Reason> {
        Ok(self)
    }
    fn open_disk(&mut self, _: &Job) -> Result<(), Reason> {
        match self.defect {
            Defect::NoDisk => Err("there is no disk"),
            _ => Ok(()),
        }
    }
    fn transfer(
        &mut self,
        _: &Transfer,
        _: &Job,
        slots: &mut [DiskRequest],
    ) -> Result<usize, Reason> {
        for (slot, start) in slots.iter_mut().zip(ticks()..) {
            let end = start + 1000;
            *slot = DiskRequest { start, end };
        }
        match self.defect {
            Defect::WrongUnit => Err("a unit is not what it must be"),
            Defect::NoRequest => Ok(0),
            _ => Ok(slots.len()),
        }
    }
    fn files(&mut self, _: &Job) -> Result<&mut dyn Files, Reason> {
        match self.defect {
            Defect::NoFiles => Err("there are no files"),
            _ => Ok(&mut self.opened),
        }
    }
    fn print_fact(&mut self, fact: fmt::Arguments<'_>) {
        self.records.push(fact.to_string());
    }
    fn open_network(&mut self, _: &Job, _: Exchange) -> Result<(), Reason> {
        match self.defect {
            Defect::NoNetwork => Err("there is no network"),
            _ => Ok(()),
        }
    }
    fn exchange(&mut self, _: Exchange) -> Result<(), Reason> {
        self.exchanges += 1;
        match self.defect {
            Defect::WrongAnswer if self.exchanges > 9 => Err("the answer is wrong"),
            _ => Ok(()),
        }
    }
    fn open_link(&mut self) -> Result<(), Reason> {
        match self.defect {
            Defect::NoNetwork => Err("there is no switch"),
            _ => Ok(()),
        }
    }
    fn send_packets(&mut self, _: Frames) -> Result<(), Reason> {
        self.exchanges += 1;
        match self.defect {
            Defect::WrongAnswer if self.exchanges > 9 => Err("a frame is wrong"),
            _ => Ok(()),
        }
    }
    fn processes(&mut self) -> Result<&mut Self, Reason> {
        match self.defect {
            Defect::NoProcesses => Err("this is no operating system"),
            _ => Ok(self),
        }
    }
}

/// A timer that is waited for by looking at the clock.
struct Spinning {
    /// Next expiry; if the timer is periodic, the last one that was waited for.
    due: u64,
    period: u64,
    handling: u64,
}

impl Spinning {
    /// A slow handler takes a little more than two periods.
    fn new(defect: Defect, window: &TimerWindow) -> Self {
        let slow = defect == Defect::SlowHandler;
        let handling = if slow {
            2 * window.period + window.period / 2
        } else {
            0
        };
        Self {
            due: 0,
            period: 0,
            handling,
        }
    }
}

impl Spinning {
    /// Handles the interrupt of the next expiry.
    fn handle(&self) -> Arrival {
        while ticks() < self.due {}
        let entered = ticks();
        while ticks() < entered + self.handling {}
        Arrival {
            entered,
            done: ticks(),
            resumed: ticks(),
            ..Arrival::default()
        }
    }
}

impl OneShotTimer for Spinning {
    fn set(&mut self, due: u64) -> u64 {
        self.due = due;
        0
    }
    fn wait(&mut self, _: WaitMode) -> Arrival {
        self.handle()
    }
}

impl PeriodicTimer for Spinning {
    fn start(&mut self, period: u64) -> (u64, Expiry) {
        (self.due, self.period) = (ticks(), period);
        let start = Expiry {
            due: self.due,
            uncertainty: 0,
        };
        (period, start)
    }
    fn wait(&mut self, _: WaitMode) -> Arrival {
        let passed = ticks().saturating_sub(self.due) / self.period;
        self.due += passed.max(1) * self.period;
        self.handle()
    }
    /// While an interrupt is handled the timer expires again.
    fn last_expiry(&self) -> Expiry {
        let passed = (ticks() - self.due) / self.period;
        Expiry {
            due: self.due + passed * self.period,
            uncertainty: 0,
        }
    }
}
