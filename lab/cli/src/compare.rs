//! `trapline compare`: two contenders, measured now in the same blocks or taken from the
//! store, and for each operation whether it changed.

use crate::args::{CompareArgs, Format, Rival};
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::resume::Asked;
use crate::run::{self, Means};
use crate::{duet, outcome, seed, terminal};
use std::collections::BTreeSet;
use std::time::Instant;
use trapline_model::{names, Contender, Observation, Request};
use trapline_report::chance;
use trapline_report::versus::{self, Versus};
use trapline_stats::chance::Chance;
use trapline_stats::contest::{self, Contest, Match, Sequel};
use trapline_stats::judge::{Comparison, Design, Settings, Tail, Verdict};
use trapline_store::{Run, RunId, Store};

/// Measures where anything has to be measured, judges and shows.
///
/// # Errors
/// A part is missing, the store cannot be read or written, the two cannot be compared, or
/// output cannot be written.
pub fn compare(args: &CompareArgs) -> Result<Status, Failure> {
    let compared = match (&args.a, &args.b) {
        (Rival::New(a), Rival::New(b)) => measured(args, a, b)?,
        (Rival::Stored { run: a, .. }, Rival::Stored { run: b, .. }) => stored(args, *a, *b)?,
        _ => return Err(mixed()),
    };
    print(&compared.versus, args.format)?;
    Ok(compared.status)
}

/// A comparison, and how the command ends.
struct Compared {
    versus: Versus,
    status: Status,
}

fn mixed() -> Failure {
    let told = "one of these is stored and the other is to be measured: what changed on the \
                host in between would look like a difference of theirs";
    let help = "name two environments, or two runs that 'trapline show --list' lists";
    Failure::new(told).help(help).status(Status::Usage)
}

fn judgement(args: &CompareArgs, seed: u64) -> Settings {
    Settings {
        alpha: args.alpha / 100.0,
        margin: args.margin / 100.0,
        seed,
        most_blocks: match args.until_sure {
            true => args.most_blocks() as usize,
            false => Settings::default().most_blocks,
        },
        ..Settings::default()
    }
}

/// Both in blocks of one run.
fn measured(args: &CompareArgs, a: &Contender, b: &Contender) -> Result<Compared, Failure> {
    same_clock(a, b)?;
    // The same twice: the second is told apart from the first in the store.
    let twin = a == b;
    let b = if twin { &a.again() } else { b };
    let mut store = run::open_store(&args.manner)?;
    let interrupt = Interrupt::watch()?;
    let both = [a.clone(), b.clone()];
    let lab = Lab::open(&args.manner.simulated)?.with_files_of(&both)?;
    let means = Means {
        deadline: Instant::now().checked_add(args.budget),
        duet: args.duet,
        ..Means::new(&lab, &interrupt, &args.manner)
    };
    for contender in &both {
        require_ready(&lab, contender)?;
    }
    if args.duet {
        require_duet(args, a)?;
    }
    let settings = judgement(args, args.seed.unwrap_or_else(seed::drawn));
    let (run, matches) = looked_at(args, &settings, [a, b], &mut store, &means)?;
    let mut remarks = remarks(&matches, twin.then_some(a), &settings);
    if means.deadline.is_some_and(|end| Instant::now() >= end) {
        let blocks = boots(&run, a).len();
        remarks.push(format!(
            "The time was over after {blocks} blocks (--budget)."
        ));
    }
    let versus = Versus {
        version: run.info.version.clone(),
        facts: run.info.facts.clone(),
        a: a.to_string(),
        b: b.to_string(),
        settings,
        remarks,
        matches,
    };
    let status = match interrupt.signal() {
        Some(signal) => Status::Interrupted(signal),
        None => status(&run),
    };
    Ok(Compared { versus, status })
}

/// Measures as many blocks as are needed to be sure, or all there are to be; with the last
/// look at them.
fn looked_at(
    args: &CompareArgs,
    settings: &Settings,
    [a, b]: [&Contender; 2],
    store: &mut Store,
    means: &Means<'_>,
) -> Result<(Run, Vec<Match>), Failure> {
    let mut request = Request {
        seed: settings.seed,
        ..request(args, &[a.clone(), b.clone()], means.lab)
    };
    let asked = Asked::of(&request, means.lab);
    let number = run::begin(store, &request, asked, means)?;
    let mut sequel = Sequel::new(settings);
    let looks = args.looks();
    for (blocks, is_final) in looks.iter().map(|look| (*look, Some(look) == looks.last())) {
        request.boots = Some(blocks);
        let run = run::go_on(store, number, &request, means)?;
        let out_of_time = means.deadline.is_some_and(|end| Instant::now() >= end);
        let is_last = is_final || out_of_time || means.interrupt.is_asked();
        let (of_a, of_b) = (boots(&run, a), boots(&run, b));
        let contest = Contest {
            a: &of_a,
            b: &of_b,
            design: Design::Blocks,
        };
        let told = match args.until_sure {
            true => sequel.look(&contest, of_a.len().max(of_b.len()), is_last),
            false => contest::judged(&[contest], settings),
        };
        if is_last || sequel.is_sure() {
            return Ok((run, told));
        }
    }
    unreachable!("there is a last look")
}

fn request(args: &CompareArgs, both: &[Contender], lab: &Lab) -> Request {
    let (operations, named) = run::selected(&args.workloads);
    Request {
        contenders: both.to_vec(),
        ready: both.to_vec(),
        operations,
        named,
        preset: args.preset.into(),
        boots: Some(args.most_blocks()),
        scheduling: lab.scheduling(),
        ..Request::default()
    }
}

fn require_ready(lab: &Lab, contender: &Contender) -> Result<(), Failure> {
    match lab.why_not_with(contender) {
        None => Ok(()),
        Some(reason) => {
            let told = format!("{contender} cannot be measured here: {reason}");
            let help = "'trapline list' says what can be";
            Err(Failure::new(told).help(help).status(Status::Unmeasured))
        }
    }
}

/// That the two can be measured at the same time.
fn require_duet(args: &CompareArgs, contender: &Contender) -> Result<(), Failure> {
    let usage = |told: String, help: &str| Err(Failure::new(told).help(help).status(Status::Usage));
    if contender.environment.clock().is_exact() {
        let told = "--duet means nothing on an exact clock, which nothing disturbs";
        return usage(told.to_owned(), "leave it out");
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match duet::misfit(run::selected(&args.workloads).0, processors) {
        None => Ok(()),
        Some((told, help)) => usage(told, help),
    }
}

fn same_clock(a: &Contender, b: &Contender) -> Result<(), Failure> {
    let (of_a, of_b) = (a.environment.clock(), b.environment.clock());
    if of_a == of_b {
        return Ok(());
    }
    let told = format!("{a} has the clock {of_a} and {b} {of_b}: figures of two clocks never meet");
    let help = "compare environments of one clock; 'trapline list' names them";
    Err(Failure::new(told).help(help).status(Status::Usage))
}

/// Two runs of the store, or two contenders of one.
fn stored(args: &CompareArgs, a: u32, b: u32) -> Result<Compared, Failure> {
    let file = crate::keep::file(&args.manner.store)?;
    let failed = |error: trapline_store::StoreError| Failure::from_error(&error);
    let mut store = Store::open_existing(&file).map_err(failed)?;
    let mut load = |run: u32| store.load(RunId(i64::from(run))).map_err(failed);
    let (run_a, run_b) = (load(a)?, load(b)?);
    let design = match a == b {
        true => Design::Blocks,
        false => Design::Apart,
    };
    let pairs = pairs(args, &run_a, &run_b)?;
    for (of_a, of_b) in &pairs {
        same_clock(of_a, of_b)?;
    }
    let settings = judgement(args, args.seed.unwrap_or(run_b.info.seed));
    let observed: Vec<_> = pairs
        .iter()
        .map(|(of_a, of_b)| (boots(&run_a, of_a), boots(&run_b, of_b)))
        .collect();
    let contests: Vec<Contest<'_>> = observed
        .iter()
        .map(|(a, b)| Contest { a, b, design })
        .collect();
    let matches = contest::judged(&contests, &settings);
    let name = |run: u32, contenders: &mut dyn Iterator<Item = &Contender>| {
        let names: Vec<_> = contenders.map(ToString::to_string).collect();
        format!("run {run}: {}", names.join(", "))
    };
    let versus = Versus {
        version: run_b.info.version.clone(),
        facts: run_b.info.facts.clone(),
        a: name(a, &mut pairs.iter().map(|(a, _)| a)),
        b: name(b, &mut pairs.iter().map(|(_, b)| b)),
        settings,
        remarks: Vec::new(),
        matches,
    };
    Ok(Compared {
        versus,
        status: Status::Done,
    })
}

/// Who of the first run is compared with whom of the second.
fn pairs(args: &CompareArgs, a: &Run, b: &Run) -> Result<Vec<(Contender, Contender)>, Failure> {
    let named = |rival: &Rival| match rival {
        Rival::Stored { contender, .. } => contender.clone(),
        Rival::New(contender) => Some(contender.clone()),
    };
    let both = match (named(&args.a), named(&args.b)) {
        (Some(a), Some(b)) => vec![(a, b)],
        (Some(one), None) | (None, Some(one)) => vec![(one.clone(), one)],
        (None, None) => {
            let of_b = contenders(b);
            let common = contenders(a).into_iter().filter(|one| of_b.contains(one));
            common.map(|one| (one.clone(), one)).collect()
        }
    };
    for (of_a, of_b) in &both {
        require_stored(a, of_a)?;
        require_stored(b, of_b)?;
    }
    match both.is_empty() {
        false => Ok(both),
        true => Err(Failure::new(format!(
            "runs {} and {} have no environment in common",
            a.info.id, b.info.id
        ))
        .help("'trapline show --list' says what each run asked for")
        .status(Status::Usage)),
    }
}

fn contenders(run: &Run) -> BTreeSet<Contender> {
    let all = run.observations.iter().map(Observation::contender);
    all.filter(|contender| !contender.variant.again).collect()
}

fn require_stored(run: &Run, contender: &Contender) -> Result<(), Failure> {
    let has = contenders(run);
    if has.contains(contender) {
        return Ok(());
    }
    let names: Vec<_> = has.iter().map(ToString::to_string).collect();
    let told = format!("run {} has no boot of {contender}", run.info.id);
    let help = format!("choose from {}", names.join(", "));
    Err(Failure::new(told).help(help).status(Status::Usage))
}

fn boots(run: &Run, contender: &Contender) -> Vec<Observation> {
    contest::boots(&run.observations, contender)
}

/// What has to be said of a comparison as a whole.
fn remarks(matches: &[Match], twin: Option<&Contender>, settings: &Settings) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(contender) = twin {
        remarks.push("Both are the same: whatever is called changed is a false alarm.".to_owned());
        let chance = Chance::told(contender.clone(), matches, settings);
        remarks.extend(chance.iter().flat_map(chance::sentences));
    }
    remarks.extend(tails(matches));
    remarks.extend(unseen_tail(matches));
    if twin.is_none() && matches.iter().any(has_changed) {
        remarks.push(LAYOUT.to_owned());
    }
    let judged = matches.iter().filter_map(|one| one.outcome.as_ref().ok());
    let more = |told: &Comparison| Some((versus::more_boots(told)?, told.blocks));
    if let Some((more, blocks)) = judged.filter_map(more).max() {
        let boots = blocks + more;
        remarks.push(format!(
            "--boots {boots} would probably settle what is unsure and can be settled."
        ));
    }
    remarks
}

/// The limit that no number of boots removes (Mytkowicz and others 2009, "Producing Wrong Data Without
/// Doing Anything Obviously Wrong!"; Curtsinger and Berger 2013, "STABILIZER").
const LAYOUT: &str =
    "Memory layout is not randomised: between two builds, a change of a few percent \
     may come from where code and data lie.";

fn has_changed(one: &Match) -> bool {
    let is_changed = |told: &Comparison| told.verdict == Verdict::Changed;
    !one.clock().is_exact() && one.outcome.as_ref().is_ok_and(is_changed)
}

/// Explains "n of m outside", with the block farthest outside.
fn tails(matches: &[Match]) -> Option<String> {
    let with_tail = matches
        .iter()
        .filter_map(|one| Some((one.op, one.outcome.as_ref().ok()?.tail?)));
    let distance = |tail: &Tail| tail.farthest.ln().abs();
    let (op, tail) = with_tail.max_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1)))?;
    Some(format!(
        "Outside: the typical block is within the margin, these blocks are not; the farthest is {:.2} \
         times ({}).",
        tail.farthest,
        names::path(op)
    ))
}

/// The share of boots that may differ without any of them being seen: with a probability of 5% none of
/// `n` blocks shows a tail of `1 - 0.05^(1/n)`.
fn unseen_tail(matches: &[Match]) -> Option<String> {
    let noisy = matches.iter().filter(|one| !one.clock().is_exact());
    let told = noisy.filter_map(|one| one.outcome.as_ref().ok());
    let equivalent = told.filter(|told| told.verdict == Verdict::Equivalent);
    let blocks = equivalent.map(|told| told.blocks).min()?;
    let share = 1.0 - 0.05_f64.powf(1.0 / blocks as f64);
    Some(format!(
        "Equivalent in {blocks} blocks: a tail in up to {:.0}% of boots can stay unseen (95%).",
        share * 100.0
    ))
}

/// A failure or unequal digits of either side are one of the command.
fn status(run: &Run) -> Status {
    outcome::status_of(&outcome::reports_of_all(run))
}

fn print(versus: &Versus, format: Format) -> Result<(), Failure> {
    let text = match format {
        Format::Table => versus::terminal(versus, &outcome::style()),
        Format::Json => versus::json(versus),
        Format::Csv => versus::csv(versus),
        Format::Markdown => versus::markdown(versus),
        Format::Junit => versus::junit(versus).map_err(|error| Failure::from_error(&error))?,
        Format::Bencher => versus::bencher(versus),
    };
    terminal::print_text(&text)
}
