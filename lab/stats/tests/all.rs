//! All integration tests in one program, which is linked once.

mod hosts;
mod irq;
mod summarise;
mod verdict;
