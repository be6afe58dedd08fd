//! The exit ledger: where the instructions of one operation went.
//!
//! Pure: what the plugin counted between two marks ([`tally`], [`wire`]) and the
//! names of addresses ([`symbols`]) become a [`Ledger`], whose total is the measured figure
//! and whose residual is what the count does not explain; [`text`] shows it.

mod account;
mod charge;
mod fold;
pub mod follow;
pub mod page;
pub mod stages;
pub mod symbols;
pub mod tally;
pub mod text;
pub mod trace;
pub mod way;
pub mod wire;
mod worlds;

pub use account::{changes, Batch, Change, Item, Ledger, MEASUREMENT};
pub use fold::Stack;
pub use symbols::{Function, Symbols};
pub use wire::Window;
pub use worlds::{Machine, Space, XEN};
