//! Sections, sentences and JSON of rates of packets.

pub mod json;
mod table;

pub use table::{findings, sections};
#[cfg(test)]
mod tests;
