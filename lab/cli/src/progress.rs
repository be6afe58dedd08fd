//! Shows the events of a run on standard error: remarks, and a progress bar, or without a terminal a line at
//! the start and every ten seconds.

use crate::{outcome, terminal};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trapline_environments::{Activity, Progress as GuestProgress};
use trapline_model::{names, Clock, PlannedBoot};
use trapline_protocol::Window;
use trapline_report::figures;
use trapline_runner::{EventHandler, RunEvent};

/// Handles events.
pub struct Progress {
    is_hidden: bool,
    bar: Arc<Mutex<ProgressBar>>,
    /// Expected time, as text behind the elapsed time.
    expected: OnceLock<String>,
    ticker: Option<Ticker>,
}

/// Thread that shows activities, and without a terminal the progress. Dropping it ends the thread.
struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which an activity is shown on a terminal.
const ACTIVITY_INTERVAL: Duration = Duration::from_millis(500);

impl Ticker {
    /// Starts the thread. Without a terminal it shows activities, and other progress if `shows_all` is set.
    fn start(bar: Arc<Mutex<ProgressBar>>, shows_all: bool) -> Self {
        let (stop, stopped) = mpsc::channel();
        let begin = Instant::now();
        let interval = match terminal::is_watched() {
            true => ACTIVITY_INTERVAL,
            false => LINE_INTERVAL,
        };
        let thread = std::thread::Builder::new().spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
                match (Activity::current(), terminal::is_watched()) {
                    (Some(activity), true) => {
                        bar.set_message(terminal::printable(&activity).into_owned())
                    }
                    (None, true) => {}
                    (None, false) if !shows_all => {}
                    (activity, false) => {
                        let message = activity.unwrap_or_else(|| bar.message());
                        let seconds = begin.elapsed().as_secs();
                        let done = match bar.length() {
                            Some(boots) => format!("{}/{boots} boots, ", bar.position()),
                            None => String::new(),
                        };
                        let prefix = bar.prefix();
                        terminal::print_error(&format!("{seconds}s{prefix}: {done}{message}"));
                    }
                }
            }
        });
        Self {
            stop: Some(stop),
            // Where no thread can be started, nothing is shown.
            thread: thread.ok(),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by itself.
            let _ = thread.join();
        }
    }
}

/// Fits 80 columns with the longest names of an environment and an operation.
const TEMPLATE: &str = "{spinner} {elapsed:>4}{prefix} [{bar:20}] {pos}/{len} boots  {wide_msg}";

/// Interval at which the elapsed time is updated.
const TICK: Duration = Duration::from_millis(200);

impl Progress {
    /// Creates a handler that shows remarks only if `quiet` is set.
    pub fn new(quiet: bool) -> Self {
        Self {
            is_hidden: quiet,
            bar: Arc::new(Mutex::new(ProgressBar::hidden())),
            expected: OnceLock::new(),
            ticker: None,
        }
    }

    /// Shows activities such as downloads until the handler is dropped.
    pub fn show_activities(&mut self) {
        if !self.is_hidden {
            self.ticker = Some(Ticker::start(Arc::clone(&self.bar), false));
        }
    }

    /// Shows `text` at once, and activities until the handler is dropped.
    pub fn begin(&mut self, text: &str) {
        if self.is_hidden {
            return;
        }
        if terminal::is_watched() {
            self.handle(RunEvent::TaskStarted(text));
        } else {
            terminal::print_error(&format!("0s: {text}"));
            self.bar()
                .set_message(terminal::printable(text).into_owned());
        }
        self.ticker = Some(Ticker::start(Arc::clone(&self.bar), true));
    }

    fn bar(&self) -> MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, bar: ProgressBar) {
        if terminal::is_watched() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(TICK);
        }
        let previous = std::mem::replace(&mut *self.bar(), bar);
        previous.finish_and_clear();
    }

    fn started(&self, boots: usize) {
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is valid");
        let bar = ProgressBar::with_draw_target(Some(boots as u64), ProgressDrawTarget::hidden());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(self.expected.get().cloned().unwrap_or_default());
        self.start(bar);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar().finish_and_clear();
    }
}

impl EventHandler for Progress {
    fn handle(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Note(text) => terminal::print_error(&format!("note: {text}")),
            _ if self.is_hidden => {}
            RunEvent::Expected(time) => {
                // Of the first run, if a command has several.
                let _ = self
                    .expected
                    .set(format!(" of ~{}s", time.as_secs().max(1)));
            }
            RunEvent::Started { boots } => self.started(boots),
            RunEvent::TaskStarted(task) => {
                let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
                let style = ProgressStyle::with_template("{spinner} {wide_msg}");
                let style = style.expect("the template is valid");
                self.start(spinner.with_style(style).with_message(task.to_owned()));
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
            RunEvent::TrialStarted(trial) => {
                let line = format!("{}: {}", trial.path, trial.frames);
                self.bar()
                    .set_message(terminal::printable(&line).into_owned());
            }
            RunEvent::BootDone => self.bar().inc(1),
            RunEvent::Finished => self.bar().finish_and_clear(),
        }
    }
}

fn line(boot: &PlannedBoot, text: &str) -> String {
    let line = format!("{} #{}: {text}", boot.config(), boot.replicate + 1);
    terminal::printable(&line).into_owned()
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
