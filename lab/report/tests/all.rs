//! All integration tests in one program, which is linked once.

mod common;
#[path = "common/formats.rs"]
mod formats;
#[path = "common/irq.rs"]
mod made_up;
#[path = "common/snapshot.rs"]
mod snapshot;

mod co_tenants;
mod compare;
mod forms;
mod irq;
mod page;
mod services;
mod settings;
