//! Shows the events of a run on standard error: remarks, and a progress bar, or without a terminal a line at
//! the start, where an activity such as a download begins, and every ten seconds.

use crate::{outcome, terminal};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trapline_environments::Window;
use trapline_environments::{Activity, Progress as GuestProgress};
use trapline_model::{names, Clock, Config, Observation, OperationResult, PlannedBoot};
use trapline_report::{figures, first_sentence, Report};
use trapline_runner::{EventHandler, RunEvent};

/// Handles events.
pub struct Progress {
    is_hidden: bool,
    bar: Arc<Mutex<ProgressBar>>,
    /// Expected time, as text behind the elapsed time.
    expected: Arc<OnceLock<String>>,
    /// Boots that run, with their lines. Several run at once on exact clocks; the first of them is shown.
    running: Mutex<BTreeMap<BootKey, String>>,
    /// The sentence of the boots so far, if it is to be shown.
    findings: Option<Mutex<Findings>>,
    begin: Instant,
    ticker: Option<Ticker>,
}

/// Replicate and configuration of a boot.
type BootKey = (u32, Config);

/// Observations with default settings, and the last sentence about them.
#[derive(Default)]
struct Findings {
    observations: Vec<Observation>,
    shown: String,
}

impl Findings {
    /// Adds an observation. Returns the first sentence of all of them, if it is a new one.
    fn add(&mut self, observation: &Observation) -> Option<&str> {
        // Builds and packets have sentences of their own reports.
        let is_long = |result: &OperationResult| result.op.guest().is_none();
        let has_long = observation.operations.iter().any(is_long);
        if has_long || !observation.config.overrides.is_default() {
            return None;
        }
        self.observations.push(observation.clone());
        let report = Report {
            summary: trapline_stats::summarise(&self.observations),
            ..Report::default()
        };
        let sentence = first_sentence(&report)?;
        if sentence == self.shown {
            return None;
        }
        self.shown = sentence;
        Some(&self.shown)
    }
}

/// Thread that shows activities, and without a terminal the progress as lines. Dropping it ends the thread.
struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which activities are looked for.
const INTERVAL: Duration = Duration::from_millis(500);

impl Ticker {
    fn start(bar: Arc<Mutex<ProgressBar>>, known: Arc<OnceLock<String>>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let mut lines = Lines::new();
        let thread = std::thread::Builder::new().spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
                // Until an earlier run of the request gives the expected time, the steps that are done do.
                if known.get().is_none() {
                    bar.set_prefix(expected(bar.elapsed(), bar.position(), bar.length()));
                }
                if !terminal::is_watched() {
                    if lines.is_due(Activity::title()) {
                        terminal::print_error(&line_of(&bar, lines.begin.elapsed()));
                    }
                } else if let Some(activity) = Activity::current() {
                    bar.set_message(terminal::printable(&activity).into_owned());
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

/// Returns the progress as a line.
fn line_of(bar: &ProgressBar, elapsed: Duration) -> String {
    let message = Activity::current().unwrap_or_else(|| bar.message());
    let done = match bar.length() {
        Some(boots) => format!("{}/{boots} boots, ", bar.position()),
        None => String::new(),
    };
    format!("{}s{}: {done}{message}", elapsed.as_secs(), bar.prefix())
}

/// Times of lines without a terminal: when an activity begins, and every ten seconds.
struct Lines {
    begin: Instant,
    last: Instant,
    activity: Option<String>,
}

impl Lines {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            begin: now,
            last: now,
            activity: None,
        }
    }

    fn is_due(&mut self, activity: Option<String>) -> bool {
        let is_new = activity.is_some() && activity != self.activity;
        self.activity = activity;
        let is_due = is_new || self.last.elapsed() >= LINE_INTERVAL;
        if is_due {
            self.last = Instant::now();
        }
        is_due
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
            expected: Arc::default(),
            running: Mutex::default(),
            findings: None,
            begin: Instant::now(),
            ticker: None,
        }
    }

    /// Shows the sentence of the boots so far from now on, whenever it changes.
    pub fn show_findings(&mut self) {
        self.findings = Some(Mutex::default());
    }

    fn show_finding(&self, observation: &Observation) {
        let Some(findings) = &self.findings else {
            return;
        };
        let mut findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sentence) = findings.add(observation) else {
            return;
        };
        let text = outcome::style().text(&format!("so far: {sentence}"));
        if terminal::is_watched() {
            self.bar().println(terminal::printable(&text))
        } else {
            terminal::print_error(&format!("{}s: {text}", self.begin.elapsed().as_secs()))
        }
    }

    /// Shows progress and activities such as downloads until the handler is dropped.
    pub fn watch(&mut self) {
        if !self.is_hidden {
            self.ticker = Some(Ticker::start(
                Arc::clone(&self.bar),
                Arc::clone(&self.expected),
            ));
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
        self.watch();
    }

    fn bar(&self) -> MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the line of a boot, if it is the first of those that run; without one, the boot is over.
    fn show_boot(&self, boot: &PlannedBoot, line: Option<String>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (boot.replicate, boot.config.clone());
        match line {
            Some(line) => _ = running.insert(key, line),
            None => _ = running.remove(&key),
        }
        if let Some(first) = running.values().next() {
            self.bar().set_message(first.clone());
        }
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
                let _ = self.expected.set(of_seconds(time));
            }
            RunEvent::Started { boots } => self.started(boots),
            RunEvent::TaskStarted(task) => {
                let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
                let style = ProgressStyle::with_template("{spinner} {wide_msg}");
                let style = style.expect("the template is valid");
                self.start(spinner.with_style(style).with_message(task.to_owned()));
            }
            RunEvent::BootStarted(boot) => self.show_boot(boot, Some(line(boot, "starting"))),
            RunEvent::BootProgress(boot, progress) => {
                let line = line(boot, &describe(boot, progress));
                if matches!(progress, GuestProgress::Window(_)) {
                    self.bar().println(&line);
                }
                self.show_boot(boot, Some(line));
            }
            RunEvent::BootDone(boot) => {
                self.bar().inc(1);
                self.show_boot(boot, None);
            }
            RunEvent::Observed(observation) => self.show_finding(observation),
            RunEvent::Finished => self.bar().finish_and_clear(),
        }
    }
}

fn of_seconds(time: Duration) -> String {
    format!(" of ~{}s", time.as_secs().max(1))
}

/// Returns the expected time of all steps, which take as long as those that are done did until now.
fn expected(elapsed: Duration, done: u64, of: Option<u64>) -> String {
    match of {
        Some(of) if done > 0 && done < of => of_seconds(elapsed.mul_f64(of as f64 / done as f64)),
        _ => String::new(),
    }
}

fn line(boot: &PlannedBoot, text: &str) -> String {
    let line = format!("{} #{}: {text}", boot.config, boot.replicate + 1);
    terminal::printable(&line).into_owned()
}

fn describe(boot: &PlannedBoot, progress: GuestProgress) -> String {
    match progress {
        GuestProgress::Launch { number, of } => format!("launch {} of {of}", number + 1),
        GuestProgress::Operation(op) => op.path(),
        GuestProgress::Window(window) => describe_window(boot.config.environment.clock(), &window),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_time_follows_from_the_steps_that_are_done() {
        let after = |done| expected(Duration::from_secs(20), done, Some(8));
        assert_eq!(after(0), "");
        assert_eq!(after(2), " of ~80s");
        assert_eq!(after(8), "");
        assert_eq!(expected(Duration::from_secs(20), 1, None), "");
    }

    #[test]
    fn a_new_activity_is_a_line_at_once() {
        let mut lines = Lines::new();
        let boots = || Some("boots a machine".to_owned());
        assert!(!lines.is_due(None));
        assert!(lines.is_due(boots()));
        assert!(!lines.is_due(boots()));
        assert!(!lines.is_due(None));
        assert!(lines.is_due(boots()));
        lines.last -= LINE_INTERVAL;
        assert!(lines.is_due(boots()));
    }

    #[test]
    fn each_new_sentence_of_the_boots_so_far_is_shown_once() {
        use trapline_model::testing::{batches, boot, measured};
        use trapline_model::EnvironmentId;
        let mut findings = Findings::default();
        let mut add = |environment, replicate, cost| {
            let exits = measured(batches(&[cost, cost], 1));
            let observation = boot(environment, replicate, [(trapline_abi::Op::PortOut, exits)]);
            findings.add(&observation).map(str::to_owned)
        };
        let (ours, qemu) = (EnvironmentId::SIM_KVM, EnvironmentId::SIM_QEMU_KVM);
        let shown = [
            add(ours, 0, 100),
            add(ours, 1, 100),
            add(qemu, 0, 200),
            add(qemu, 1, 200),
        ];
        expect_test::expect![[r#"
            [
                Some(
                    "An exit costs 100 instructions in trapline-vmm.",
                ),
                None,
                None,
                Some(
                    "In instructions (AMD) a port write costs 2.00 times as much in QEMU as in trapline-vmm.",
                ),
            ]
        "#]]
        .assert_debug_eq(&shown);
    }

    #[test]
    fn the_first_boot_of_those_that_run_is_shown() {
        let plan = trapline_model::expand(&trapline_model::Request {
            configs: vec![trapline_model::EnvironmentId::SIM.into()],
            ready: vec![trapline_model::EnvironmentId::SIM.into()],
            operations: trapline_model::request::usual_operations(),
            ..trapline_model::Request::default()
        });
        let [first, second] = plan.boots.as_slice() else {
            panic!("two boots are planned");
        };
        let progress = Progress::new(false);
        progress.handle(RunEvent::Started { boots: 2 });
        for boot in [second, first] {
            progress.handle(RunEvent::BootStarted(boot));
        }
        let message = || progress.bar().message();
        assert_eq!(message(), "sim #1: starting");
        progress.handle(RunEvent::BootDone(first));
        assert_eq!(message(), "sim #2: starting");
    }
}
