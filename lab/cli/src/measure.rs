//! Doing a plan's boots. On the wall clock one after the other, for a second
//! guest would disturb the first; on the instruction clock, which nothing
//! disturbs, as many at a time as there are processors. Each observation is
//! stored as soon as its boot is over.

use crate::duet;
use crate::failure::Failure;
use crate::followers::Followers;
use crate::interrupt::Interrupt;
use crate::lab::{Lab, Place};
use crate::ledgers::Counters;
use crate::place;
use crate::progress::Bar;
use crate::terminal;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use trapline_abi::job::Wait;
use trapline_abi::{block, Op};
use trapline_environments::transcript::Window;
use trapline_environments::{EnvError, Environment, Facts, GuestImage, Progress, Watch};
use trapline_model::{
    irq, names, populate, Clock, Contender, Observation, Operation, Outcome, Plan, PlannedBoot,
};
use trapline_report::figures;
use trapline_store::{RunId, Store};

/// What has to be done, and with what.
pub struct Task<'a> {
    /// The boots, in order.
    pub plan: &'a Plan,
    /// The environments.
    pub lab: &'a Lab,
    /// Who may end it early.
    pub interrupt: &'a Interrupt,
    /// Who is told how far it is.
    pub progress: &'a Bar,
    /// The most time that one boot may take; if not said, as long as its
    /// environment usually needs, many times over.
    pub timeout: Option<Duration>,
    /// Who counts instructions in the boots, if anybody does.
    pub counters: Option<&'a Counters>,
    /// Who follows interrupts, if anybody does.
    pub followers: Option<&'a Followers>,
    /// No block on the wall clock is begun later, if it is said when.
    pub deadline: Option<Instant>,
    /// Whether the boots of a block on the wall clock are done at the same time.
    pub duet: bool,
}

/// Keeps what was observed.
pub trait Keeper {
    /// Keeps a boot.
    ///
    /// # Errors
    /// It cannot be kept: nothing more will be measured.
    fn observed(&mut self, seen: Observation) -> Result<(), Failure>;

    /// Keeps why a contender cannot be booted. May be told more than once.
    ///
    /// # Errors
    /// As [`Self::observed`].
    fn skipped(&mut self, contender: &Contender, reason: &str) -> Result<(), Failure>;
}

/// Keeps it in a store.
pub struct Storekeeper<'a> {
    store: &'a mut Store,
    run: RunId,
    /// Those whose reason to be skipped was stored.
    skipped: BTreeSet<Contender>,
}

/// What came of a boot.
pub enum Booted {
    /// It was observed, whole or in part.
    Observed(Observation),
    /// It failed in a way that another boot would only repeat.
    Hopeless(Observation),
    /// It could not even be tried.
    Skipped(Contender, String),
    /// Somebody wanted it to end.
    Stopped,
}

/// Does all boots of the task's plan and keeps what was observed.
///
/// # Errors
/// Nothing can be stored any more.
pub fn measure(task: &Task<'_>, keeper: &mut dyn Keeper) -> Result<(), Failure> {
    let (wall, insn): (Vec<_>, Vec<_>) = task
        .plan
        .boots
        .iter()
        .partition(|boot| boot.environment.clock() == Clock::Wall);
    match task.duet {
        true => duet::in_pairs(task, &wall, keeper)?,
        false => one_by_one(task, &wall, keeper)?,
    }
    side_by_side(task, &insn, keeper)
}

fn one_by_one(
    task: &Task<'_>,
    boots: &[&PlannedBoot],
    keeper: &mut dyn Keeper,
) -> Result<(), Failure> {
    let mut given_up = BTreeSet::new();
    let mut block = None;
    for &boot in boots {
        let begins = block.replace(boot.block) != Some(boot.block);
        if begins && task.deadline.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        if given_up.contains(&boot.contender()) {
            task.progress.done();
            continue;
        }
        let booted = do_boot(task, boot);
        if booted.is_hopeless() {
            given_up.insert(boot.contender());
        }
        if !keep(keeper, booted)? {
            break;
        }
    }
    Ok(())
}

/// Each worker takes the next boot that nobody has taken. Guests live in the
/// worker that started them; only what was observed leaves it.
fn side_by_side(
    task: &Task<'_>,
    boots: &[&PlannedBoot],
    keeper: &mut dyn Keeper,
) -> Result<(), Failure> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for number in 0..workers.min(boots.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                place::stay_on_one(number);
                work(task, boots, next, &sender);
            });
        }
        drop(sender);
        let mut kept = Ok(());
        for booted in receiver {
            // After a failure the rest is awaited, but not kept.
            if kept.is_ok() {
                kept = keep(keeper, booted).map(drop);
                if kept.is_err() {
                    task.interrupt.ask();
                }
            }
        }
        kept
    })
}

fn work(task: &Task<'_>, boots: &[&PlannedBoot], next: &AtomicUsize, sender: &Sender<Booted>) {
    while let Some(boot) = boots.get(next.fetch_add(1, Ordering::Relaxed)) {
        let booted = do_boot(task, boot);
        let stopped = matches!(booted, Booted::Stopped);
        if sender.send(booted).is_err() || stopped {
            return;
        }
    }
}

/// Does one boot.
pub fn do_boot(task: &Task<'_>, boot: &PlannedBoot) -> Booted {
    let lab = task.lab.of(&boot.variant);
    let Some(place) = lab.place(boot.environment) else {
        return Booted::Skipped(boot.contender(), "no such environment here".to_owned());
    };
    // Without it, every environment that needs it said so and was left out.
    let image = lab.image().unwrap_or_else(|_| GuestImage {
        path: PathBuf::new(),
        sha256: String::new(),
    });
    if task.interrupt.is_asked() {
        return Booted::Stopped;
    }
    let watch = Watch {
        patience: task.timeout.unwrap_or(patience(boot)),
        stop: task.interrupt.flag(),
    };
    task.progress.doing(boot, "starting");
    let booted = boot_in(task, place, &image, boot, &watch);
    task.progress.done();
    match booted {
        Ok(booted) => Booted::from(booted),
        Err(EnvError::Stopped) => Booted::Stopped,
        Err(error) if is_missing(&error) => Booted::Skipped(boot.contender(), error.to_string()),
        Err(error) => Booted::Hopeless(failed(boot, place.environment.facts(), &error)),
    }
}

/// Boots, and lets be counted what is executed if that is wanted.
fn boot_in(
    task: &Task<'_>,
    place: &Place,
    image: &GuestImage,
    boot: &PlannedBoot,
    watch: &Watch,
) -> Result<trapline_environments::Booted, EnvError> {
    let mut tell = |progress| {
        let words = describe(boot, progress);
        task.progress.doing(boot, &words);
        if matches!(progress, Progress::Window(_)) {
            task.progress.note(boot, &words);
        }
    };
    let mut boot_in = |environment: &dyn Environment| {
        trapline_environments::boot(environment, image, boot, watch, &mut tell)
    };
    if let Some(followers) = task.followers {
        let followed = followers.watch(boot.environment)?;
        let environment = followed
            .as_ref()
            .map_or(&place.environment, |f| &f.environment);
        let mut booted = boot_in(environment.as_ref())?;
        followers.stamp(&mut booted.observation, followed.as_ref());
        return Ok(booted);
    }
    let Some(counters) = task.counters else {
        return boot_in(place.environment.as_ref());
    };
    let watched = counters.watch(boot.environment)?;
    let booted = boot_in(watched.environment.as_ref());
    counters.keep(boot, &watched);
    booted
}

/// Whether something is not there, rather than broken.
fn is_missing(error: &EnvError) -> bool {
    matches!(
        error,
        EnvError::Missing(_) | EnvError::PartMissing { .. } | EnvError::Kernel(_)
    )
}

/// What there is to say of a boot in which nothing could be started.
fn failed(boot: &PlannedBoot, facts: Facts, error: &EnvError) -> Observation {
    let asked = Op::ALL
        .into_iter()
        .filter(|&op| boot.job.wants(op) || boot.boot_job.wants(op));
    let operations = asked.map(|op| Operation {
        op,
        outcome: Outcome::Failed(error.to_string()),
    });
    Observation {
        environment: boot.environment,
        variant: boot.variant.clone(),
        clock: boot.environment.clock(),
        replicate: boot.replicate,
        unit_per_tick: 1.0,
        operations: operations.collect(),
        launches: Vec::new(),
        facts,
        log: String::new(),
        problems: Vec::new(),
    }
}

/// The most time that one run of the simulated machine may take: many times what it
/// does take.
pub const PATIENCE_INSN: Duration = Duration::from_secs(600);

/// The same for a boot on the wall clock.
const PATIENCE_WALL: Duration = Duration::from_secs(180);

fn patience(boot: &PlannedBoot) -> Duration {
    let usual = match boot.environment.clock() {
        Clock::Wall => PATIENCE_WALL,
        Clock::Insn | Clock::InsnVmx => PATIENCE_INSN,
    };
    usual + interrupts(boot) + memory(boot) + disk(boot)
}

/// The most time that a disk may take: to be filled and read back at 10 MB/s for each
/// operation, and 10 s for its requests.
fn disk(boot: &PlannedBoot) -> Duration {
    let operations = (boot.job.run & block::operations()).count_ones();
    let all = Duration::from_secs(u64::from(boot.job.disk_mib) / 10 + 10);
    all * operations
}

/// The most time that giving a guest large regions may take.
fn memory(boot: &PlannedBoot) -> Duration {
    let large = (boot.job.run & populate::large()).count_ones() * boot.job.large_regions;
    match boot.environment.clock().is_exact() {
        true => PATIENCE_INSN * large.min(8),
        false => Duration::from_secs(20) * large,
    }
}

/// The fewest instructions that a simulated machine executes in a second.
const INSN_A_SECOND: u64 = 20_000_000;

/// The most time that interrupts may take: on the wall clock twice as long as their
/// timers; on an exact clock a guest that halts takes none, but one that is awake
/// executes all of it.
fn interrupts(boot: &PlannedBoot) -> Duration {
    let job = &boot.job;
    let timers = u64::from((job.run & irq::operations()).count_ones());
    let expiries = timers * u64::from(job.expiries);
    let all = expiries.saturating_mul(job.period);
    let idle = job.between == Wait::Halt && boot.conditions.loads.is_none();
    match (boot.environment.clock().is_exact(), idle) {
        (false, _) => Duration::from_nanos(all.saturating_mul(2)),
        (true, true) => Duration::from_millis(expiries.saturating_mul(5)),
        (true, _) => Duration::from_secs(all / INSN_A_SECOND),
    }
}

fn describe(boot: &PlannedBoot, progress: Progress) -> String {
    match progress {
        Progress::Launch { number, of } => format!("launch {} of {of}", number + 1),
        Progress::Operation(op) => names::path(op),
        Progress::Window(window) => describe_window(boot.environment.clock(), &window),
    }
}

fn describe_window(clock: Clock, window: &Window) -> String {
    let Window { op, number, of, .. } = window;
    let words = format!("{} window {}/{of}", names::path(*op), number + 1);
    let time = |value: u64| figures::time(value as f64, clock, terminal::shows_unicode());
    match window.lateness {
        None => words,
        Some(late) => format!(
            "{words}: mean {}, p99 {}, max so far {}",
            time(late.mean),
            time(late.p99),
            time(late.max)
        ),
    }
}

impl From<trapline_environments::Booted> for Booted {
    fn from(booted: trapline_environments::Booted) -> Self {
        match booted.trouble {
            // What was not reached because somebody wanted an end is no failure.
            Some(EnvError::Stopped) => Self::Stopped,
            Some(EnvError::Hung { .. } | EnvError::Lingered { .. }) => {
                Self::Hopeless(booted.observation)
            }
            _ => Self::Observed(booted.observation),
        }
    }
}

impl Booted {
    /// What was observed, if anything was.
    pub fn observation(&mut self) -> Option<&mut Observation> {
        match self {
            Self::Observed(seen) | Self::Hopeless(seen) => Some(seen),
            Self::Skipped(..) | Self::Stopped => None,
        }
    }

    /// Whether another boot of the same environment would only take time.
    fn is_hopeless(&self) -> bool {
        matches!(self, Self::Skipped(..) | Self::Hopeless(_))
    }
}

/// Keeps what came of a boot; whether to go on.
///
/// # Errors
/// It cannot be kept.
pub fn keep(keeper: &mut dyn Keeper, booted: Booted) -> Result<bool, Failure> {
    match booted {
        Booted::Stopped => return Ok(false),
        Booted::Observed(seen) | Booted::Hopeless(seen) => keeper.observed(seen)?,
        Booted::Skipped(contender, reason) => keeper.skipped(&contender, &reason)?,
    }
    Ok(true)
}

impl<'a> Storekeeper<'a> {
    /// Keeps what is observed as part of `run`.
    pub fn new(store: &'a mut Store, run: RunId) -> Self {
        Self {
            store,
            run,
            skipped: BTreeSet::new(),
        }
    }
}

impl Keeper for Storekeeper<'_> {
    fn observed(&mut self, seen: Observation) -> Result<(), Failure> {
        let stored = self.store.add_observation(self.run, &seen);
        stored.map_err(|error| Failure::from_error(&error))
    }

    fn skipped(&mut self, contender: &Contender, reason: &str) -> Result<(), Failure> {
        if !self.skipped.insert(contender.clone()) {
            return Ok(());
        }
        let stored = self.store.add_skip(self.run, contender, reason);
        stored.map_err(|error| Failure::from_error(&error))
    }
}
