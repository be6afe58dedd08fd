//! The exit ledger: where the instructions of one operation went.
//!
//! Pure: what the plugin counted between two marks ([`tally`], [`wire`]) and the
//! names of addresses ([`symbols`]) become a [`Ledger`], whose total is the measured figure
//! and whose residual is what the count does not explain; [`text`] shows it.

mod account;
mod charge;
mod fold;
pub mod stages;
pub mod symbols;
pub mod tally;
pub mod text;
pub mod wire;

pub use account::{changes, Batch, Change, Item, Ledger, Machine, MEASUREMENT};
pub use fold::Stack;
pub use symbols::{Function, Space, Symbols};
pub use wire::Window;
