//! `cargo xtask fuzz` and `cargo xtask bench`.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::step::{self, Failure};

/// Cases for each property in one round.
const CASES_PER_ROUND: &str = "4096";

/// Gives libFuzzer, where cargo-fuzz is installed, and the property tests half of the time each.
///
/// The properties draw new cases in every round; proptest writes the seed of a failure beside the test.
pub fn fuzz(args: &[String]) -> Result<(), Failure> {
    let [seconds] = args else {
        return Err(Failure::usage("fuzz: how many seconds?"));
    };
    let seconds: u64 = seconds
        .parse()
        .map_err(|_| Failure::usage(format!("fuzz: '{seconds}' is not a number of seconds")))?;
    if step::succeeds(step::cargo().args(["fuzz", "--version"])) {
        libfuzzer(seconds / 2)?;
        return properties(seconds - seconds / 2);
    }
    eprintln!(
        "xtask: cargo-fuzz is not installed (cargo install cargo-fuzz): property tests alone"
    );
    properties(seconds)
}

fn libfuzzer(seconds: u64) -> Result<(), Failure> {
    let targets = fuzz_targets()?;
    let each = seconds / targets.len().max(1) as u64 + 1;
    for target in &targets {
        let options =
            ["fuzz", "run", "--fuzz-dir", "tests/fuzz", "--sanitizer", "none", target, "--"];
        // cargo-fuzz passes unstable options of the compiler; a stable compiler takes them with this.
        let mut command = step::cargo();
        command.env("RUSTC_BOOTSTRAP", "1").args(options);
        step::run(command.arg(format!("-max_total_time={each}")))?;
    }
    Ok(())
}

/// The names of the files in `tests/fuzz/fuzz_targets`.
fn fuzz_targets() -> Result<Vec<String>, Failure> {
    let folder = step::root().join("tests/fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", folder.display())))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".rs").map(String::from))
        .collect();
    names.sort();
    Ok(names)
}

fn properties(seconds: u64) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        step::run(&mut round())?;
        rounds += 1;
    }
    println!("{rounds} rounds with {CASES_PER_ROUND} cases for each property, no failure");
    Ok(())
}

fn round() -> Command {
    let mut command = step::cargo();
    command.env("PROPTEST_CASES", CASES_PER_ROUND).args([
        "test",
        "--workspace",
        "--release",
        "--quiet",
        "--lib",
        "--tests",
    ]);
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
    fn every_fuzz_target_is_found() {
        let targets = fuzz_targets().unwrap();
        assert!(targets.contains(&"rpc_call".to_owned()), "{targets:?}");
    }

    #[test]
    fn fuzz_wants_one_number() {
        assert!(fuzz(&[]).unwrap_err().to_string().contains("how many seconds"));
        assert!(fuzz(&["soon".to_owned()]).unwrap_err().to_string().contains("'soon'"));
    }
}
