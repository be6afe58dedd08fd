//! All integration tests in one program, which is linked once.

mod common;
mod confinement;
mod guests;
mod process;
mod socket;
