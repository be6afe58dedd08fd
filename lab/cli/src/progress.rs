//! Shows the events of a run: a progress bar and remarks on standard error.

use crate::{outcome, terminal};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use trapline_environments::Progress as GuestProgress;
use trapline_model::{names, Clock, PlannedBoot};
use trapline_protocol::Window;
use trapline_report::figures;
use trapline_runner::{EventHandler, RunEvent};

/// Handles events. The bar is shown only on a terminal.
pub struct Progress {
    is_hidden: bool,
    bar: Mutex<ProgressBar>,
}

/// Fits 80 columns with the longest names of an environment and an operation.
const TEMPLATE: &str = "{spinner} {elapsed:>4} [{bar:20}] {pos}/{len} boots  {wide_msg}";

/// Interval at which the elapsed time is updated.
const TICK: Duration = Duration::from_millis(200);

impl Progress {
    /// Creates a handler whose bar is hidden if `quiet` is set or standard error is not a terminal.
    pub fn new(quiet: bool) -> Self {
        Self {
            is_hidden: quiet || !terminal::is_watched(),
            bar: Mutex::new(ProgressBar::hidden()),
        }
    }

    fn bar(&self) -> MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, bar: ProgressBar) {
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.enable_steady_tick(TICK);
        *self.bar() = bar;
    }

    fn started(&self, boots: usize) {
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is valid");
        let bar = ProgressBar::with_draw_target(Some(boots as u64), ProgressDrawTarget::hidden());
        bar.set_style(style.progress_chars("=> "));
        self.start(bar);
    }
}

impl EventHandler for Progress {
    fn handle(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Note(text) => anstream::eprintln!("note: {text}"),
            _ if self.is_hidden => {}
            RunEvent::Started { boots } => self.started(boots),
            RunEvent::TaskStarted(task) => {
                let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
                self.start(spinner.with_message(task.to_owned()));
            }
            RunEvent::BootStarted(boot) => self.bar().set_message(line(boot, "starting")),
            RunEvent::BootProgress(boot, progress) => {
                let line = line(boot, &describe(boot, progress));
                if matches!(progress, GuestProgress::Window(_)) {
                    self.bar().println(&line);
                }
                self.bar().set_message(line);
            }
            RunEvent::BuildStarted(environment, column) => {
                self.bar().set_message(format!("{environment} {column}"));
            }
            RunEvent::BootDone => self.bar().inc(1),
            RunEvent::Finished => self.bar().finish_and_clear(),
        }
    }
}

fn line(boot: &PlannedBoot, text: &str) -> String {
    format!("{} #{}: {text}", boot.config(), boot.replicate + 1)
}

fn describe(boot: &PlannedBoot, progress: GuestProgress) -> String {
    match progress {
        GuestProgress::Launch { number, of } => format!("launch {} of {of}", number + 1),
        GuestProgress::Operation(op) => names::path(op),
        GuestProgress::Window(window) => describe_window(boot.environment.clock(), &window),
    }
}

fn describe_window(clock: Clock, window: &Window) -> String {
    let Window { op, number, of, .. } = window;
    let title = format!("{} window {}/{of}", names::path(*op), number + 1);
    let time = |value: u64| outcome::style().text(&figures::time(value as f64, clock));
    match window.lateness {
        None => title,
        Some(late) => format!(
            "{title}: mean {}, p99 {}, max so far {}",
            time(late.mean),
            time(late.p99),
            time(late.max)
        ),
    }
}
