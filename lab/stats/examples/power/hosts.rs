//! Hosts that are simulated: how a boot's figure is off, as a logarithm.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::judge::{BootValues, Design, Question};

/// A kind of noise.
#[derive(Clone, Copy, PartialEq)]
pub enum Host {
    Normal,
    Tail,
    Modes,
    Drift,
}

impl Host {
    pub const ALL: [Self; 4] = [Self::Normal, Self::Tail, Self::Modes, Self::Drift];

    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Tail => "tail",
            Self::Modes => "modes",
            Self::Drift => "drift",
        }
    }

    pub fn noise(self, chance: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Normal | Self::Drift => 0.01 * normal(chance),
            Self::Tail => {
                let late = chance.random::<f64>() < 0.1;
                0.007 * normal(chance)
                    + if late {
                        0.05 * exponential(chance)
                    } else {
                        0.0
                    }
            }
            Self::Modes => {
                let slow = chance.random::<f64>() < 0.3;
                0.003 * normal(chance) + if slow { 0.04 } else { 0.0 }
            }
        }
    }

    /// What all boots of a block share, from one block to the next.
    fn step(self, chance: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Drift => 0.05 * normal(chance) + 0.01,
            _ => 0.0,
        }
    }

    /// Boots of A and of B, which costs `1 + effect` times as much.
    pub fn measured(
        self,
        blocks: usize,
        effect: f64,
        design: Design,
        chance: &mut ChaCha8Rng,
    ) -> Question {
        let mut question = Question {
            clock: Clock::Wall,
            design,
            a: Vec::with_capacity(blocks),
            b: Vec::with_capacity(blocks),
        };
        let mut level = 1000.0_f64.ln();
        for block in 0..blocks as u32 {
            level += self.step(chance);
            let a = level + self.noise(chance);
            let b = level + self.noise(chance) + effect.ln_1p();
            question.a.push(boot(block, a));
            question.b.push(boot(block, b));
        }
        question
    }
}

pub fn boot(block: u32, logarithm: f64) -> BootValues {
    BootValues {
        block,
        batches: vec![logarithm.exp()],
        mean: Some(logarithm.exp()),
    }
}

/// Box and Muller (1958).
pub fn normal(chance: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - chance.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * chance.random::<f64>()).cos()
}

pub fn exponential(chance: &mut ChaCha8Rng) -> f64 {
    -(1.0 - chance.random::<f64>()).ln()
}

pub fn explain() {
    println!("Simulated hosts: how boots of one contender differ");
    println!("  normal  normal on the logarithm, 1%");
    println!("  tail    0.7%; one boot in ten is later by 5% on average, exponentially");
    println!("  modes   0.3%; three boots in ten are 4% slower");
    println!("  drift   1%; besides, from block to block all boots move by 5%\n");
}
