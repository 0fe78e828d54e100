//! `cargo xtask fuzz` and `cargo xtask bench`.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::step::{self, Failure};

/// Cases for each property in one round: a round stays below a minute, so the time asked for is kept.
const CASES_PER_ROUND: &str = "20000";

/// Runs every test whose name has `prop_` or `fuzz_` in it, again and again, until the time is up.
///
/// proptest draws new cases in each round and writes the seed of a failure beside the test.
pub fn fuzz(args: &[String]) -> Result<(), Failure> {
    let [seconds] = args else {
        return Err(Failure::usage("fuzz: how many seconds?"));
    };
    let seconds: u64 = seconds
        .parse()
        .map_err(|_| Failure::usage(format!("fuzz: '{seconds}' is not a number of seconds")))?;
    let end = Instant::now() + Duration::from_secs(seconds);
    step::run(step::cargo().args(["test", "--workspace", "--release", "--no-run"]))?;
    let mut rounds = 0;
    loop {
        step::run(&mut round())?;
        rounds += 1;
        if Instant::now() >= end {
            break;
        }
    }
    println!("{rounds} rounds of {CASES_PER_ROUND} cases for each property, no failure");
    Ok(())
}

fn round() -> Command {
    let mut command = step::cargo();
    command
        .env("PROPTEST_CASES", CASES_PER_ROUND)
        .args(["test", "--workspace", "--release", "--quiet", "--lib", "--tests", "--"])
        .args(["prop_", "fuzz_"]);
    command
}

/// Runs the benchmarks; arguments after `--` choose among them.
pub fn bench(args: &[String]) -> Result<(), Failure> {
    step::run(step::cargo().args(["bench", "--package", "aqueduct-bench"]).args(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_wants_one_number() {
        assert!(fuzz(&[]).unwrap_err().to_string().contains("how many seconds"));
        assert!(fuzz(&["soon".to_owned()]).unwrap_err().to_string().contains("'soon'"));
    }
}
