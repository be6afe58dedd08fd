//! Engine of threads with ordinary system calls, for hosts without io_uring.

use super::job::Job;
use super::{DiskFile, Engine};
use crate::poll::readable;
use crate::sandbox::Role;
use crate::threads::Worker;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use trapline_interface::Doorbell;
use trapline_monitor::virtio::block::{Order, Status, MAX};
use trapline_monitor::virtio::Memory;

/// Number of threads. More seldom helps a disk in a file.
const THREADS: usize = 4;

/// The disk thread's side.
pub struct Pool {
    shared: Arc<Shared>,
    jobs: Vec<Job>,
    /// Requests to be handed to the threads.
    begun: Vec<u16>,
    landed: Vec<(u16, Status)>,
    bell: Doorbell,
}

struct Shared {
    queue: Mutex<Queue>,
    waiting: Condvar,
    /// Rung at a completion.
    done: Doorbell,
    file: DiskFile,
}

struct Queue {
    waiting: VecDeque<(u16, Job)>,
    landed: Vec<(u16, Job, Status)>,
}

impl Pool {
    /// Creates the engine and its threads.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(name: &str, file: DiskFile, bell: OwnedFd) -> io::Result<(Self, Vec<Worker>)> {
        let max = usize::from(MAX);
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                waiting: VecDeque::with_capacity(max),
                landed: Vec::with_capacity(max),
            }),
            waiting: Condvar::new(),
            done: Doorbell::unregistered()?,
            file,
        });
        let workers = (0..THREADS).map(|number| {
            let shared = Arc::clone(&shared);
            Worker {
                name: format!("{name}-{number}"),
                role: Role::DiskWorker,
                work: Box::new(move || shared.work()),
            }
        });
        let workers = workers.collect();
        let pool = Self {
            shared,
            jobs: (0..MAX).map(|_| Job::default()).collect(),
            begun: Vec::with_capacity(max),
            landed: Vec::with_capacity(max),
            bell: Doorbell(bell),
        };
        Ok((pool, workers))
    }

    fn hand_over(&mut self) {
        if self.begun.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        for tag in self.begun.drain(..) {
            let job = std::mem::take(&mut self.jobs[usize::from(tag)]);
            queue.waiting.push_back((tag, job));
        }
        drop(queue);
        self.shared.waiting.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic ends the process.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> ! {
        loop {
            let (tag, mut job) = self.next();
            let status = job.run(&self.file);
            let mut queue = self.lock();
            queue.landed.push((tag, job, status));
            let is_first = queue.landed.len() == 1;
            drop(queue);
            if is_first {
                self.done.ring();
            }
        }
    }

    fn next(&self) -> (u16, Job) {
        let mut queue = self.lock();
        loop {
            if let Some(next) = queue.waiting.pop_front() {
                return next;
            }
            let waited = self.waiting.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Engine for Pool {
    fn submit(&mut self, order: &Order<'_>, memory: &Memory) {
        let job = &mut self.jobs[usize::from(order.tag)];
        if job.begin(order, memory, &self.shared.file) {
            self.begun.push(order.tag)
        } else {
            self.landed.push((order.tag, Status::Failed))
        }
    }

    fn wait(&mut self, more: bool) -> bool {
        self.hand_over();
        let mut requests = [&self.bell, &self.shared.done].map(|bell| readable(bell.0.as_raw_fd()));
        let at_once = more || !self.landed.is_empty();
        let timeout = if at_once { 0 } else { -1 };
        // SAFETY: the array has the length that is passed.
        unsafe { libc::poll(requests.as_mut_ptr(), requests.len() as u64, timeout) };
        requests[0].revents != 0 && self.bell.take()
    }

    fn reap(&mut self, landed: &mut dyn FnMut(u16, Status)) {
        for (tag, status) in self.landed.drain(..) {
            landed(tag, status);
        }
        if !self.shared.done.take() {
            return;
        }
        let mut queue = self.shared.lock();
        for (tag, job, status) in queue.landed.drain(..) {
            self.jobs[usize::from(tag)] = job;
            landed(tag, status);
        }
    }
}
