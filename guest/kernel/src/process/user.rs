//! [`System`] for programs: system calls.
//!
//! All code here runs at ring 3, and accesses no static variable of the kernel.

use super::number;
use super::ring::Ring;
use super::system_calls::{call, execute, exit, fork, wait, Pipe};
use crate::devices;
use core::ptr::NonNull;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::job::WaitMode;
use trapline_abi::platform::PAGE;
use trapline_abi::populate::MemoryRequest;
use trapline_abi::{Job, Op, Record};
use trapline_workloads::irq::{InterruptLog, TimerSource, TimerWindow};
use trapline_workloads::system::MAPPED_PAGES;
use trapline_workloads::{
    run_in_process, ticks, Block, NoMachine, Processes, Reason, System, Wake,
};

/// Measures workload `system`. The function of process 1.
pub extern "C" fn measure<R: Ring>(job: *const Job) -> u8 {
    // SAFETY: launch.rs has written the job to the stack of this program.
    run_in_process(&mut Program::<R>::default(), unsafe { &*job });
    0
}

/// Child with a pipe in each direction.
struct Child<R> {
    number: u64,
    to: Pipe<R>,
    from: Pipe<R>,
}

impl<R: Ring> Child<R> {
    /// Forks a child that runs `body` with a pipe from this process and one to it.
    fn start(body: impl FnOnce(Pipe<R>, Pipe<R>) -> Option<()>) -> Option<Self> {
        let (to, from) = (Pipe::new()?, Pipe::new()?);
        let number = fork::<R>()?;
        if number == 0 {
            body(to, from);
            exit::<R>(0);
        }
        Some(Self { number, to, from })
    }

    /// Sends `byte` and waits for the answer.
    #[inline(always)]
    fn ask(&self, byte: u8) -> Option<u8> {
        self.to.put(byte)?;
        self.from.get()
    }

    /// Ends the child: its pipe has no writer any more.
    fn end(self) {
        self.to.close();
        wait::<R>(self.number);
        self.from.close();
    }
}

/// Resources of an operation.
#[derive(Default)]
pub struct Program<R> {
    pipe: Option<Pipe<R>>,
    /// Pipe that the program of a step writes to.
    output: Option<Pipe<R>>,
    child: Option<Child<R>>,
    page: Option<Block>,
}

impl<R: Ring> Program<R> {
    fn make(&mut self, op: Op) -> Option<()> {
        match op {
            Op::ContextSwitch => self.child = Some(Child::start(complement_bytes)?),
            Op::Pipe => self.pipe = Some(Pipe::new()?),
            Op::Make => {
                let input = *self.pipe.insert(Pipe::new()?);
                let output = *self.output.insert(Pipe::new()?);
                let numbers = (input.number(), output.number());
                (numbers == (number::INPUT, number::OUTPUT)).then_some(())?;
            }
            Op::PageTableUpdate => {
                self.pipe = Some(Pipe::new()?);
                let page = allocate::<R>(PAGE as usize)?;
                // SAFETY: a page of this program's memory.
                unsafe { page.start.write(1) };
                self.page = Some(page);
            }
            _ => {}
        }
        Some(())
    }
}

fn allocate<R: Ring>(bytes: usize) -> Option<Block> {
    let start = call::<R>(number::ALLOCATE, bytes as u64, 0, 0)?;
    Some(Block {
        start: NonNull::new(start as *mut u8)?,
        length: bytes.next_multiple_of(PAGE as usize),
    })
}

fn release<R: Ring>(block: Block) -> bool {
    let start = block.start.as_ptr() as u64;
    call::<R>(number::RELEASE, start, block.length as u64, 0).is_some()
}

/// Answers each byte with its complement.
fn complement_bytes<R: Ring>(from: Pipe<R>, to: Pipe<R>) -> Option<()> {
    loop {
        to.put(!from.get()?)?;
    }
}

/// Sends one byte when ready. Then answers each index with that byte of the sum of the first words of
/// all pages of `block`.
fn send_sum<R: Ring>(block: &Block, from: Pipe<R>, to: Pipe<R>) -> Option<()> {
    to.put(0)?;
    let mut at = from.get()?;
    let mut sum = 0_u64;
    for page in (0..block.length).step_by(PAGE as usize) {
        let word = block.start.as_ptr().wrapping_add(page).cast::<u64>();
        // SAFETY: the first word of a page of the block, of which this process has a copy.
        sum = sum.wrapping_add(unsafe { word.read_volatile() });
    }
    loop {
        to.put(*sum.to_le_bytes().get(usize::from(at))?)?;
        at = from.get()?;
    }
}

/// Returns the status of a program that exited by itself.
#[inline(always)]
fn exit_status(status: Option<u64>) -> Option<u8> {
    u8::try_from(status?).ok()
}

impl<R: Ring> Processes for Program<R> {
    fn prepare(&mut self, op: Op) -> Result<(), Reason> {
        let made = self.make(op);
        if made.is_none() {
            self.finish();
        }
        made.ok_or("the kernel has no process, pipe or memory left")
    }

    fn finish(&mut self) {
        if let Some(child) = self.child.take() {
            child.end();
        }
        for pipe in [self.pipe.take(), self.output.take()].into_iter().flatten() {
            pipe.close();
        }
        if let Some(page) = self.page.take() {
            release::<R>(page);
        }
    }

    #[inline(always)]
    fn fork(&mut self, status: u8) -> Option<u8> {
        match fork::<R>()? {
            0 => exit::<R>(status),
            child => exit_status(wait::<R>(child)),
        }
    }

    #[inline(always)]
    fn exec(&mut self, status: u8) -> Option<u8> {
        match fork::<R>()? {
            0 => execute::<R>(number::EXIT_PROGRAM, &status),
            child => exit_status(wait::<R>(child)),
        }
    }

    #[inline(always)]
    fn step(&mut self, number: u64, status: u8) -> Option<u64> {
        self.pipe?.put_bytes(number.to_ne_bytes())?;
        let ended = match fork::<R>()? {
            0 => execute::<R>(number::STEP_PROGRAM, &status),
            child => wait::<R>(child)?,
        };
        // A program that failed may have written nothing.
        (ended == u64::from(status)).then_some(())?;
        self.output?.get_bytes().map(u64::from_ne_bytes)
    }

    #[inline(always)]
    fn pipe(&mut self, byte: u8) -> Option<u8> {
        let pipe = self.pipe?;
        pipe.put(byte)?;
        pipe.get()
    }

    #[inline(always)]
    fn ping(&mut self, byte: u8) -> Option<u8> {
        self.child.as_ref()?.ask(byte)
    }

    fn switch_count(&mut self) -> u64 {
        call::<R>(number::SWITCHES, 0, 0, 0).unwrap_or(0)
    }

    #[inline(always)]
    fn map(&mut self) -> Option<Block> {
        let start = call::<R>(number::MAP, 0, 0, 0)?;
        Some(Block {
            start: NonNull::new(start as *mut u8)?,
            length: (MAPPED_PAGES * PAGE) as usize,
        })
    }

    #[inline(always)]
    unsafe fn unmap(&mut self, mapped: Block) -> bool {
        release::<R>(mapped)
    }

    #[inline(always)]
    fn protect(&mut self, writable: bool) -> bool {
        let Some(page) = self.page else {
            return false;
        };
        let start = page.start.as_ptr() as u64;
        call::<R>(number::PROTECT, start, writable.into(), 0).is_some()
    }

    fn is_writable(&mut self) -> Option<bool> {
        let (page, pipe) = (self.page?, self.pipe?);
        pipe.put(1)?;
        let read = call::<R>(number::READ, pipe.number(), page.start.as_ptr() as u64, 1);
        if read.is_none() {
            pipe.get()?;
        }
        Some(read.is_some())
    }

    fn fork_with_copy(&mut self, block: Block) -> Result<(), Reason> {
        let child = Child::start(move |from, to| send_sum(&block, from, to));
        let child = child.ok_or("no child can be started")?;
        let is_ready = child.from.get().is_some();
        self.child = Some(child);
        is_ready.then_some(()).ok_or("the child does not answer")
    }

    fn copy_sum(&mut self) -> Result<u64, Reason> {
        let child = self.child.take().ok_or("there is no child")?;
        let mut sum = [0; 8];
        let mut is_complete = true;
        for (byte, at) in sum.iter_mut().zip(0..) {
            let answer = child.ask(at);
            is_complete &= answer.is_some();
            *byte = answer.unwrap_or(0);
        }
        child.end();
        let sum = is_complete.then_some(u64::from_le_bytes(sum));
        sum.ok_or("the child did not send the sum of its pages")
    }
}

const IN_KERNEL: Reason = "not an operation of processes";

impl<R: Ring> System for Program<R> {
    type Machine = NoMachine;
    type Processes = Self;

    /// Not inlined, because it is called often and not measured.
    #[inline(never)]
    fn send(&mut self, record: &Record<'_>) {
        let mut frame = [0; MAX_FRAME];
        if let Ok(length) = encode(record, ticks(), &mut frame) {
            call::<R>(number::SEND, frame.as_ptr() as u64, length as u64, 0);
        }
    }

    fn wait_for_go(&mut self) {}

    fn exits(&mut self) -> Option<u64> {
        call::<R>(number::EXITS, 0, 0, 0)
    }

    #[inline(always)]
    fn getpid(&mut self) -> u32 {
        call::<R>(number::GETPID, 0, 0, 0).map_or(u32::MAX, |number| number as u32)
    }

    fn open_null(&mut self) -> Result<(), Reason> {
        Ok(())
    }

    #[inline(always)]
    fn write_null(&mut self, bytes: &[u8]) -> usize {
        let (start, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        call::<R>(number::WRITE, devices::NULL, start, length)
            .map_or(usize::MAX, |written| written as usize)
    }

    #[inline(always)]
    fn read_null(&mut self, buffer: &mut [u8]) -> usize {
        let (start, length) = (buffer.as_mut_ptr() as u64, buffer.len() as u64);
        call::<R>(number::READ, devices::NULL, start, length)
            .map_or(usize::MAX, |read| read as usize)
    }

    fn start_peer(&mut self) -> Result<(), Reason> {
        Err(IN_KERNEL)
    }

    fn yield_now(&mut self) {}

    fn peer_turns(&mut self) -> u64 {
        0
    }

    fn stop_peer(&mut self) {}

    fn allocate(&mut self, bytes: usize) -> Option<Block> {
        allocate::<R>(bytes)
    }

    unsafe fn release(&mut self, block: Block) {
        release::<R>(block);
    }

    fn sleep(&mut self, _: u64) -> Result<Wake, Reason> {
        Err(IN_KERNEL)
    }

    fn check_timer(&mut self, _: TimerSource, _: WaitMode) -> Result<(), Reason> {
        Err(IN_KERNEL)
    }

    fn run_timer(&mut self, _: &TimerWindow, _: &mut InterruptLog<'_>) -> Result<(), Reason> {
        Err(IN_KERNEL)
    }

    fn attach(&mut self, _: MemoryRequest) {}

    fn attached_region(&mut self) -> Result<Block, Reason> {
        Err(IN_KERNEL)
    }

    unsafe fn detach(&mut self) -> Result<(), Reason> {
        Err(IN_KERNEL)
    }

    fn machine(&mut self) -> Result<&mut NoMachine, Reason> {
        Err(IN_KERNEL)
    }

    fn processes(&mut self) -> Result<&mut Self, Reason> {
        Ok(self)
    }
}
