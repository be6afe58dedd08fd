//! The table of processes: states, address spaces, pipes.
//!
//! Entry 0 is the kernel's own thread, which waits until process 1 ends. There is one CPU and no
//! preemption: a process runs until it waits or ends.

use super::address_space::AddressSpace;
use super::pipe::Pipe;
use super::pool::Pool;
use trapline_workloads::system::MAPPED_PAGES;

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
    /// Kernel stack pointer, while it does not run.
    pub stack: *mut u64,
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
        stack: core::ptr::null_mut(),
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
    /// Page of the program that `exec` executes.
    pub program: u64,
    /// Pages of the mapped file.
    pub file: [u64; MAPPED_PAGES as usize],
    /// See [`super::address_space::kernel_part`].
    pub kernel_part: u64,
    /// The machine has Trapline's own ports.
    pub has_ports: bool,
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
            program: 0,
            file: [0; MAPPED_PAGES as usize],
            kernel_part: 0,
            has_ports: false,
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
    pub fn fork(&mut self) -> Option<usize> {
        let (space, _, pool) = self.space()?;
        let copy = space.copy(pool)?;
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
    pub fn end(&mut self, status: u64) -> Option<AddressSpace> {
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
    pub fn begin_wait(&mut self, event: Event) -> bool {
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
mod tests {
    use super::super::pool::tests::with_pool;
    use super::*;
    use std::boxed::Box;

    /// Runs `test` as process 1 of a table.
    fn with_table(test: impl FnOnce(&mut ProcessTable)) {
        with_pool(|pool| {
            let mut table = Box::new(ProcessTable::new());
            core::mem::swap(&mut table.pool, pool);
            table.clear();
            let space = AddressSpace::new(0, &mut table.pool).unwrap();
            assert_eq!(table.add(space).ok(), Some(1));
            table.select(1);
            test(&mut table);
            for process in 0..PROCESSES {
                if let Some(space) = table.process(process).space.take() {
                    space.free(&mut table.pool);
                }
            }
            core::mem::swap(&mut table.pool, pool);
        });
    }

    fn end(table: &mut ProcessTable, status: u64) {
        let space = table.end(status).unwrap();
        space.free(&mut table.pool);
    }

    #[test]
    fn a_parent_reads_the_status_of_its_child_once() {
        with_table(|table| {
            let child = table.fork().unwrap();
            assert_eq!(table.reap(child), Child::Alive);
            assert!(table.begin_wait(Event::Child(child)));
            assert_eq!(table.next(), Some(child));
            table.select(child);
            assert_eq!(table.reap(child), Child::None, "not its own child");
            assert_eq!(table.reap(1), Child::None);
            end(table, 7);
            assert_eq!(table.next(), Some(1), "woken");
            table.select(1);
            assert!(table.end_wait());
            assert_eq!(table.reap(child), Child::Ended(7));
            assert_eq!(table.reap(child), Child::None);
            assert_eq!(table.switches(), 1);
            for number in [0, PROCESSES, usize::MAX] {
                assert_eq!(table.reap(number), Child::None);
            }
        });
    }

    #[test]
    fn a_full_table_forks_nothing() {
        with_table(|table| {
            let pipe = table.create_pipe().unwrap();
            let forks = std::iter::from_fn(|| table.fork()).count();
            assert_eq!(forks, PROCESSES - 2);
            assert_eq!(table.pipe(pipe).unwrap().users(), PROCESSES - 1);
        });
    }

    #[test]
    fn a_pipe_is_open_until_its_last_process_ends() {
        with_table(|table| {
            let pipe = table.create_pipe().unwrap();
            let child = table.fork().unwrap();
            assert!(table.begin_wait(Event::Pipe(pipe)));
            table.select(child);
            table.pipe(pipe).unwrap().push(3);
            assert!(table.pipe(pipe + 1).is_none() && table.pipe(99).is_none());
            end(table, 0);
            table.select(1);
            assert_eq!(table.next(), Some(1), "woken by the close");
            assert_eq!(table.pipe(pipe).unwrap().pop(), 3);
            assert_eq!(table.pipe(pipe).unwrap().users(), 1);
            table.close(pipe).unwrap();
            assert_eq!(table.close(pipe), None);
            assert_eq!(table.create_pipe(), Some(pipe));
        });
    }

    #[test]
    fn a_wait_that_no_process_can_end_fails() {
        with_table(|table| {
            table.select(KERNEL);
            assert!(table.begin_wait(Event::Child(1)));
            table.select(1);
            assert!(!table.begin_wait(Event::Pipe(0)), "nothing else runs");
            let child = table.fork().unwrap();
            assert!(table.begin_wait(Event::Pipe(0)));
            table.select(child);
            end(table, 0);
            assert_eq!(table.next(), None);
            table.interrupt_all();
            assert_eq!(table.next(), Some(KERNEL));
            table.select(1);
            assert!(!table.end_wait());
            assert!(table.end_wait(), "once");
        });
    }

    #[test]
    fn children_of_an_ended_process_are_not_its_parents() {
        with_table(|table| {
            let child = table.fork().unwrap();
            table.select(child);
            let grandchild = table.fork().unwrap();
            end(table, 0);
            table.select(1);
            assert_eq!(table.reap(grandchild), Child::None);
            table.select(KERNEL);
            assert_eq!(table.reap(grandchild), Child::Alive);
        });
    }
}
