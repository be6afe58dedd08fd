//! `make power`: error rates and power of the statistics, from simulated boots of known truth on hosts
//! with noise of several kinds. Prints the tables of docs/internals/statistics.md, with the same digits each time.
//! An argument multiplies the number of trials; further ones name simulations.

mod alternatives;
mod autoregressive;
mod batches;
mod builds;
mod hosts;
mod in_time;
mod intervals;
mod mixed;
mod modes;
mod over_hosts;
mod packets;
mod patterns;
mod required;
mod runs;
mod sentences;
mod sequential;
mod serial;
mod series;
mod single;
mod stages;
mod tables;
mod tails;

/// Factor of all numbers of trials.
#[derive(Clone, Copy)]
struct Trials(f64);

impl Trials {
    fn of(self, usual: usize) -> usize {
        ((usual as f64 * self.0) as usize).max(1)
    }
}

/// Prints a table.
type Simulation = fn(Trials);

/// The simulations by name, in order of the document.
const SIMULATIONS: [(&str, Simulation); 22] = [
    ("intervals", intervals::print),
    ("unequal", intervals::unequal),
    ("serial", serial::print),
    ("single", single::in_blocks),
    ("apart", single::independent),
    ("runs", runs::print),
    ("over-hosts", over_hosts::print),
    ("tables", tables::print),
    ("mixed", mixed::print),
    ("tails", tails::print),
    ("sequential", sequential::print),
    ("batches", batches::print),
    ("required", required::print),
    ("sentences", sentences::print),
    ("alternatives", alternatives::print),
    ("series", series::print),
    ("patterns", patterns::print),
    ("builds", builds::print),
    ("packets", packets::print),
    ("stages", stages::print),
    ("modes", modes::print),
    ("in-time", in_time::print),
];

fn main() {
    let mut words = std::env::args().skip(1);
    let trials = match words.next().map(|text| text.parse()) {
        None => Trials(1.0),
        Some(Ok(times)) if times > 0.0 => Trials(times),
        Some(_) => fail("the first argument is a number by which trials are multiplied, as in 0.5"),
    };
    let names: Vec<String> = words.collect();
    let is_known = |name: &String| SIMULATIONS.iter().any(|(known, _)| known == name);
    if !names.iter().all(is_known) {
        let known = SIMULATIONS.map(|(name, _)| name);
        fail(&format!(
            "further arguments are simulations: {}",
            known.join(", ")
        ));
    }
    hosts::explain();
    for (name, simulate) in SIMULATIONS {
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            simulate(trials);
        }
    }
}

fn fail(message: &str) -> ! {
    eprintln!("error: {message}");
    std::process::exit(2);
}

/// Formats a share in percent with `digits` decimals.
fn percent(count: usize, of: usize, digits: usize) -> String {
    format!("{:.digits$}%", 100.0 * count as f64 / of as f64)
}
