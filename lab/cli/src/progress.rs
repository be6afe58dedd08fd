//! What a person sees who waits: a bar on standard error, only if that is a
//! terminal. Everything else sees nothing.

use crate::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;
use trapline_model::PlannedBoot;

/// The bar of one run, counting boots.
#[derive(Clone)]
pub struct Bar {
    bar: ProgressBar,
}

/// Fits 80 columns with the longest name of an environment and an operation.
const TEMPLATE: &str = "{spinner} {elapsed:>4} [{bar:20}] {pos}/{len} boots  {wide_msg}";

/// How often the elapsed time is shown anew.
const TICK: Duration = Duration::from_millis(200);

impl Bar {
    /// A bar for so many boots; hidden where nobody watches or `quiet` is wanted.
    pub fn new(boots: usize, quiet: bool) -> Self {
        if quiet || !terminal::is_watched() {
            return Self::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(boots as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// This is done now.
    pub fn step(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Tells what is waited for, where there is but one thing.
    pub fn of_one(what: &str) -> Self {
        if !terminal::is_watched() {
            return Self::hidden();
        }
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// A bar that nobody sees.
    fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
        }
    }

    /// A boot does this now.
    pub fn doing(&self, boot: &PlannedBoot, what: &str) {
        let number = boot.replicate + 1;
        self.bar
            .set_message(format!("{} #{number}: {what}", boot.contender()));
    }

    /// Something to remember of a boot: a line that stays, above the bar.
    pub fn note(&self, boot: &PlannedBoot, what: &str) {
        let number = boot.replicate + 1;
        self.bar
            .println(format!("{} #{number}: {what}", boot.contender()));
    }

    /// A boot is over.
    pub fn done(&self) {
        self.bar.inc(1);
    }

    /// The run is over; the bar goes.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
