//! All integration tests in one program, which is linked once.

mod common;
mod formats;
mod hosts;
mod killed;
mod round_trip;
mod trouble;
