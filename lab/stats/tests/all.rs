//! All integration tests in one program, which is linked once.

mod irq;
mod summarise;
mod verdict;
