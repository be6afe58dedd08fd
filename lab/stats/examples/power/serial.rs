//! The flag of autocorrelated boots.

use crate::autoregressive::{autoregressive, Innovations, BURN_IN};
use crate::series::name;
use crate::{percent, Trials};
use trapline_stats::rng::rng;
use trapline_stats::serial::is_autocorrelated;

const PHIS: [f64; 4] = [0.0, 0.3, 0.5, 0.9];

pub fn print(trials: Trials) {
    let trials = trials.of(4000);
    println!("Figures whose boots have AR(1) noise: how many are flagged (of independent ones at");
    println!("most 1%). {trials} figures each.");
    println!("noise   boots  phi 0.0     0.3     0.5     0.9");
    for kind in Innovations::ALL {
        for boots in [10, 20, 40] {
            let mut rng = rng(boots as u64, 70 + kind as u64);
            let mut noise = Vec::new();
            let shares = PHIS.map(|phi| {
                let flagged = (0..trials).filter(|_| {
                    let draws = (0..boots + BURN_IN).map(|_| kind.draw(&mut rng));
                    autoregressive(&draws.collect::<Vec<_>>(), phi, &mut noise);
                    is_autocorrelated(&noise)
                });
                format!("{:>8}", percent(flagged.count(), trials, 1))
            });
            println!("{:6} {boots:6} {}", name(kind), shares.concat());
        }
    }
    println!();
}
