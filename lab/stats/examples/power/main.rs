//! `make power`: how often are verdicts right? Boots of known truth are simulated, on hosts
//! with noise of several kinds, and judged as measured ones are. Prints the tables of
//! docs/statistics.md; the same digits each time. An argument multiplies the number of trials.

mod agreement;
mod autoregressive;
mod builds;
mod heaps;
mod hosts;
mod intervals;
mod late;
mod mixed;
mod outlooks;
mod rivals;
mod series;
mod single;
mod tables;
mod tails;
mod until_sure;

/// Trials of everything, times so many.
#[derive(Clone, Copy)]
struct Trials(f64);

impl Trials {
    fn of(self, usual: usize) -> usize {
        ((usual as f64 * self.0) as usize).max(1)
    }
}

fn main() {
    let asked = std::env::args().nth(1).map(|text| text.parse());
    let trials = match asked {
        None => Trials(1.0),
        Some(Ok(times)) if times > 0.0 => Trials(times),
        Some(_) => {
            eprintln!("error: the argument is a number by which trials are multiplied, as in 0.5");
            std::process::exit(2);
        }
    };
    hosts::explain();
    intervals::print(trials);
    intervals::unequal(trials);
    single::in_blocks(trials);
    single::apart(trials);
    tables::print(trials);
    mixed::print(trials);
    tails::print(trials);
    until_sure::print(trials);
    outlooks::print(trials);
    rivals::print(trials);
    series::print(trials);
    builds::print(trials);
    heaps::print(trials);
    agreement::print(trials);
    late::print(trials);
}

/// A share in percent, in a column of so many characters.
fn percent(count: usize, of: usize, digits: usize) -> String {
    format!("{:.digits$}%", 100.0 * count as f64 / of as f64)
}
