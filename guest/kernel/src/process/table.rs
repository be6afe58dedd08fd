//! The table of processes: states, address spaces, pipes.
//!
//! Entry 0 is the kernel's own thread, which waits until process 1 ends. There is one CPU and no
//! preemption: a process runs until it waits or ends.
//!
//! Unused type parameters are those of [`super::address_space`].
#![allow(clippy::extra_unused_type_parameters)]

use super::address_space::AddressSpace;
use super::pipe::Pipe;
use super::pool::Pool;

/// Number of processes, including the kernel's thread.
pub const PROCESSES: usize = 8;

/// Number of pipes.
const PIPES: usize = 8;

/// Number of the kernel's thread.
pub const KERNEL: usize = 0;

/// Event that a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// The end of a child.
    Child(usize),
    /// A change of a pipe.
    Pipe(usize),
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// There is no process.
    Free,
    /// It runs or can run.
    Runnable,
    /// It waits.
    Waiting(Event),
    /// It ended with a status, which its parent has not read.
    Ended(u64),
}

/// Result of [`ProcessTable::reap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// The process is no child of the current one.
    None,
    /// It has not ended.
    Alive,
    /// It ended with this status, and its entry is free.
    Ended(u64),
}

/// Process.
pub struct Process {
    state: State,
    parent: usize,
    /// The last wait ended because all processes waited.
    is_interrupted: bool,
    /// Address space; that of the kernel's thread is the kernel's.
    pub space: Option<AddressSpace>,
    /// Bit set of open pipes.
    pipes: u8,
    /// Number of waits, which are switches to another process.
    switches: u64,
}

impl Process {
    const NONE: Self = Self {
        state: State::Free,
        parent: KERNEL,
        is_interrupted: false,
        space: None,
        pipes: 0,
        switches: 0,
    };
}

/// All processes and what they share.
pub struct ProcessTable {
    pub pool: Pool,
    processes: [Process; PROCESSES],
    current: usize,
    pipes: [Pipe; PIPES],
    /// Page of zeros.
    pub zeros: u64,
}

impl ProcessTable {
    /// Creates a table without processes. It is all zero, so that it is not part of the image file.
    pub const fn new() -> Self {
        Self {
            pool: Pool::new(),
            processes: [const { Process::NONE }; PROCESSES],
            current: KERNEL,
            pipes: [const { Pipe::new() }; PIPES],
            zeros: 0,
        }
    }

    /// Removes all processes and pipes, and makes the kernel's thread the current one.
    pub fn clear(&mut self) {
        self.processes = [const { Process::NONE }; PROCESSES];
        self.pipes = [const { Pipe::new() }; PIPES];
        self.current = KERNEL;
        self.processes[KERNEL].state = State::Runnable;
    }

    /// Returns the number of the current process.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Returns a process.
    pub fn process(&mut self, number: usize) -> &mut Process {
        &mut self.processes[number]
    }

    /// Returns the current process's address space and what it needs to change; `None` for the
    /// kernel's thread.
    pub fn space(&mut self) -> Option<(&mut AddressSpace, u64, &mut Pool)> {
        let space = self.processes[self.current].space.as_mut()?;
        Some((space, self.zeros, &mut self.pool))
    }

    /// Adds a runnable child of the current process. Returns `space` if the table is full.
    pub fn add(&mut self, space: AddressSpace) -> Result<usize, AddressSpace> {
        let mut numbers = 1..PROCESSES;
        let Some(number) = numbers.find(|number| self.processes[*number].state == State::Free)
        else {
            return Err(space);
        };
        self.processes[number] = Process {
            state: State::Runnable,
            parent: self.current,
            space: Some(space),
            ..Process::NONE
        };
        Ok(number)
    }

    /// Adds a copy of the current process; `None` if the table is full or frames are exhausted.
    pub fn fork<R>(&mut self) -> Option<usize> {
        let (space, _, pool) = self.space()?;
        let copy = space.copy::<R>(pool)?;
        let child = match self.add(copy) {
            Ok(child) => child,
            Err(copy) => {
                copy.free(&mut self.pool);
                return None;
            }
        };
        let open = self.processes[self.current].pipes;
        self.processes[child].pipes = open;
        for pipe in (0..PIPES).filter(|pipe| open & 1 << pipe != 0) {
            self.pipes[pipe].open();
        }
        Some(child)
    }

    /// Ends the current process. Its children become those of the kernel's thread. The caller frees
    /// the address space.
    pub fn end<R>(&mut self, status: u64) -> Option<AddressSpace> {
        for pipe in 0..PIPES {
            self.close(pipe);
        }
        let ended = self.current;
        for process in &mut self.processes {
            if process.parent == ended {
                process.parent = KERNEL;
            }
        }
        self.processes[ended].state = State::Ended(status);
        self.wake(Event::Child(ended));
        self.processes[ended].space.take()
    }

    /// Returns the status of a child that has ended, and frees its entry.
    pub fn reap(&mut self, number: usize) -> Child {
        let current = self.current;
        let child = self.processes.get_mut(number);
        let Some(child) = child.filter(|child| child.parent == current && number != KERNEL) else {
            return Child::None;
        };
        match child.state {
            State::Free => Child::None,
            State::Ended(status) => {
                *child = Process::NONE;
                Child::Ended(status)
            }
            _ => Child::Alive,
        }
    }

    /// Creates a pipe, open for the current process; `None` if the table is full.
    pub fn create_pipe(&mut self) -> Option<usize> {
        let pipe = self.pipes.iter().position(|pipe| pipe.users() == 0)?;
        self.pipes[pipe].open();
        self.processes[self.current].pipes |= 1 << pipe;
        Some(pipe)
    }

    /// Returns a pipe that the current process has open.
    pub fn pipe(&mut self, pipe: usize) -> Option<&mut Pipe> {
        let is_open = pipe < PIPES && self.processes[self.current].pipes & 1 << pipe != 0;
        is_open.then(|| &mut self.pipes[pipe])
    }

    /// Closes a pipe of the current process.
    pub fn close(&mut self, pipe: usize) -> Option<()> {
        self.pipe(pipe)?.close();
        self.processes[self.current].pipes &= !(1 << pipe);
        self.wake(Event::Pipe(pipe));
        Some(())
    }

    /// Makes all processes runnable that wait for `event`.
    pub fn wake(&mut self, event: Event) {
        for process in &mut self.processes {
            if process.state == State::Waiting(event) {
                process.state = State::Runnable;
            }
        }
    }

    /// Makes all waiting processes runnable, because no other can wake them. Their waits fail.
    pub fn interrupt_all(&mut self) {
        for process in &mut self.processes {
            if let State::Waiting(_) = process.state {
                process.state = State::Runnable;
                process.is_interrupted = true;
            }
        }
    }

    /// Makes the current process wait. Returns false if no other process can run.
    pub fn begin_wait<R>(&mut self, event: Event) -> bool {
        let current = self.current;
        let can_wait = self.next().is_some_and(|next| next != current);
        if can_wait {
            self.processes[current].state = State::Waiting(event);
            self.processes[current].switches += 1;
        }
        can_wait
    }

    /// Returns true if the last wait of the current process ended by its event.
    pub fn end_wait(&mut self) -> bool {
        !core::mem::take(&mut self.processes[self.current].is_interrupted)
    }

    /// Returns the next runnable process after the current one, which may be the current one.
    pub fn next(&self) -> Option<usize> {
        let mut number = self.current;
        for _ in 0..PROCESSES {
            number = (number + 1) % PROCESSES;
            if self.processes[number].state == State::Runnable {
                return Some(number);
            }
        }
        None
    }

    /// Makes `number` the current process.
    pub fn select(&mut self, number: usize) {
        self.current = number;
    }

    /// Returns the number of waits of the current process.
    pub fn switches(&self) -> u64 {
        self.processes[self.current].switches
    }
}

#[cfg(test)]
mod tests;
