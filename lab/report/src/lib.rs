//! Reports: figures and comparisons as a [`Document`], rendered as text, Markdown, JSON, CSV, JUnit XML
//! or Bencher Metric Format, and a run as a page of HTML.
//!
//! Everything but [`mod@export`], which writes files of raw samples, is pure: the same input gives the same text on any machine.
//! A workload family is a builder of sections ([`builder`]); the renderers ([`document`]) depend on no family. [`figures`]
//! formats numbers, [`notes`] the footnotes of a table. [`check`] has the output formats of comparisons with a baseline.
#![forbid(unsafe_code)]

pub mod aa_control;
mod bencher;
mod block;
mod brief;
mod builder;
mod cell_columns;
pub mod check;
mod co_tenants;
mod columns;
mod common_factor;
mod compact;
pub mod compare;
mod components;
mod contenders;
mod document;
pub mod export;
pub mod figures;
mod findings;
#[cfg(test)]
mod fixture;
mod formats;
pub mod history;
pub mod host_noise;
mod host_use;
mod hosts;
mod irq;
mod json;
mod junit;
mod kernel_build;
mod layouts;
mod notes;
mod packets;
pub mod page;
mod plot;
mod populate;
pub mod rates;
mod ratios;
mod references;
mod report;
mod series;
mod table;
mod timelines;

pub use document::style::Style;
pub use document::{render, Document, Format};
pub use findings::first_sentence;
pub use formats::JunitError;
pub use irq::{verdicts, Verdict};
pub use plot::plot;
pub use report::{CoTenant, HostOfRun, Report};

use document::printable;
