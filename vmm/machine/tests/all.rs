//! All integration tests in one program, which is linked once.

mod common;
mod confinement;
mod console;
mod guests;
mod process;
mod socket;
