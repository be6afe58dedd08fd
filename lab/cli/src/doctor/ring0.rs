//! How fast the guest's ring 0 runs: timed, because flags may lie. Our own VMM
//! starts the image at ring 0 and the image times an empty loop, as it does
//! before every measurement.

use crate::parts;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trapline_abi::{Decoder, Item, Record};

/// How long the guest may take. Emulated ring 0 needs a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the guest is asked: one batch of the cheapest operation.
const JOB: &str = "trapline.run=basic/getpid trapline.batches=1 trapline.batch-ticks=1 \
                   trapline.console=port trapline.ports=yes trapline.ring=0";

/// Turns that [`Record::Begin`] tells the ticks of.
const TURNS: f64 = 1024.0;

/// Turns of an empty loop per second at ring 0, for a counter of `hertz`. `None`
/// where a part is missing or the guest did not get that far.
pub fn measure(hertz: f64) -> Option<f64> {
    let console = run_guest()?;
    let ticks = loop_cost(&console)?;
    (ticks > 0).then(|| TURNS * hertz / ticks as f64)
}

fn run_guest() -> Option<Vec<u8>> {
    let parts = parts::directory();
    let mut child = Command::new(parts.join("trapline-vmm"))
        .arg("--image")
        .arg(parts.join("trapline-image"))
        .args(["--memory", "64M", "--ring", "0", "--cmdline", JOB])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stream = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut console = Vec::new();
        // What was read until an error is all there is.
        let _ = stream.read_to_end(&mut console);
        console
    });
    end_in_time(&mut child);
    reader.join().ok()
}

/// Waits for the child, and kills it if it takes too long.
fn end_in_time(child: &mut Child) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            _ => return,
        }
    }
    // It may just have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

fn loop_cost(console: &[u8]) -> Option<u64> {
    let mut cost = None;
    Decoder::new().feed(console, &mut |item| {
        if let Item::Record(Record::Begin { loop_cost, .. }, _) = item {
            cost = Some(loop_cost);
        }
    });
    cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::frame::{encode, MAX_FRAME};
    use trapline_abi::{Job, Op};

    #[test]
    fn the_job_is_one_the_image_understands() {
        let job = Job::parse(JOB.split_whitespace()).expect("every word is known");
        assert_eq!((job.run, job.ring), (Op::Getpid.bit(), 0));
    }

    #[test]
    fn the_cost_of_the_loop_is_found_among_other_words() {
        let begin = Record::Begin {
            op: Op::Getpid,
            clock_cost: 40,
            loop_cost: 2048,
            exits: None,
        };
        let mut frame = [0; MAX_FRAME];
        let length = encode(&begin, 1, &mut frame).expect("it fits");
        let console = [b"greeting\n", &frame[..length], b"\xf5T garbage"].concat();
        assert_eq!(loop_cost(&console), Some(2048));
        assert_eq!(loop_cost(b"nothing"), None);
    }
}
