//! `cargo xtask test` and `cargo xtask vm`: everything that decides whether a change may land.

use std::process::Command;

use crate::machine;
use crate::step::{self, Failure};

/// What `cargo xtask test` was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// Leave the virtual machine out.
    no_vm: bool,
    /// The long form of each scenario: hours on an emulated machine.
    full: bool,
    /// Only these scenarios, and nothing else.
    scenarios: Vec<String>,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, Failure> {
        let mut request = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--no-vm" => request.no_vm = true,
                "--full" => request.full = true,
                "--scenario" => {
                    let name = words
                        .next()
                        .ok_or_else(|| Failure::usage("test: --scenario wants a name"))?;
                    request.scenarios.push(name.clone());
                }
                other => return Err(Failure::usage(format!("test: unknown option '{other}'"))),
            }
        }
        if request.no_vm && !request.scenarios.is_empty() {
            return Err(Failure::usage("test: scenarios run in the virtual machine: drop --no-vm"));
        }
        Ok(request)
    }

    fn level(&self) -> &'static str {
        if self.full { "full" } else { "quick" }
    }
}

/// Runs the tests.
pub fn test(args: &[String]) -> Result<(), Failure> {
    let request = Request::parse(args)?;
    machine::setup()?;
    if request.scenarios.is_empty() {
        step::run(step::cargo().args(["fmt", "--all", "--check"]))?;
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        step::run(step::cargo().args(clippy))?;
        step::run(&mut unit_tests())?;
        step::run(step::cargo().args(["test", "--workspace", "--doc"]))?;
    }
    if request.no_vm {
        return Ok(());
    }
    scenarios(request.level(), &request.scenarios)
}

/// Runs one of the virtual machine's own commands.
pub fn vm(args: &[String]) -> Result<(), Failure> {
    let Some((command, rest)) = args.split_first() else {
        return Err(Failure::usage("vm: build, suite or run?"));
    };
    match (command.as_str(), rest.split_first()) {
        ("build", None) => step::run(&mut script("build")),
        ("suite", Some((level, names))) => scenarios(level, names),
        ("run", Some(_)) => {
            step::run(&mut script("build"))?;
            step::run(script("run").args(rest))
        }
        _ => Err(Failure::usage(
            "vm: build | suite quick|full|soak [NAME...] | run [OPTIONS] 'COMMAND'",
        )),
    }
}

fn scenarios(level: &str, names: &[String]) -> Result<(), Failure> {
    step::run(&mut script("build"))?;
    if std::env::var_os("SERVER").is_none_or(|server| server != "knfsd") {
        let build = ["build", "--profile", "vm", "--package", "aqueduct-gateway"];
        step::run(step::cargo().args(build))?;
    }
    step::run(script("suite").arg(level).args(names))
}

fn script(name: &str) -> Command {
    step::program(step::root().join("tests/vm").join(name))
}

fn unit_tests() -> Command {
    let mut command = step::cargo();
    if step::succeeds(step::cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
    } else {
        command.args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]);
    }
    // The run that decides is the same each time; `cargo xtask fuzz` looks for new cases.
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        command.env("PROPTEST_RNG_SEED", "20240613");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn options_are_understood() {
        assert_eq!(Request::parse(&[]).unwrap(), Request::default());
        let request = Request::parse(&words("--full --scenario smoke --scenario crash")).unwrap();
        assert_eq!(request.level(), "full");
        assert_eq!(request.scenarios, ["smoke", "crash"]);
    }

    #[test]
    fn contradictions_and_typing_errors_are_refused() {
        assert!(Request::parse(&words("--quik")).is_err());
        assert!(Request::parse(&words("--scenario")).is_err());
        assert!(Request::parse(&words("--no-vm --scenario smoke")).is_err());
        assert!(vm(&words("suite")).is_err());
    }
}
