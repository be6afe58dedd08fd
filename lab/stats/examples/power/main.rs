//! `make power`: error rates and power of the statistics, from simulated boots of known truth on hosts
//! with noise of several kinds. Prints the tables of docs/internals/statistics.md, with the same digits each time.
//! An argument multiplies the number of trials.

mod agreement;
mod alternatives;
mod autoregressive;
mod builds;
mod hosts;
mod in_time;
mod intervals;
mod mixed;
mod modes;
mod required;
mod sequential;
mod series;
mod single;
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
    single::independent(trials);
    tables::print(trials);
    mixed::print(trials);
    tails::print(trials);
    sequential::print(trials);
    required::print(trials);
    alternatives::print(trials);
    series::print(trials);
    builds::print(trials);
    modes::print(trials);
    agreement::print(trials);
    in_time::print(trials);
}

/// Formats a share in percent with `digits` decimals.
fn percent(count: usize, of: usize, digits: usize) -> String {
    format!("{:.digits$}%", 100.0 * count as f64 / of as f64)
}
