//! The developer's manual in one command: `cargo xtask` prepares the machine, runs, tests and measures.
//!
//! Every step is an ordinary command, printed before it runs, so that it can be repeated by hand.

mod machine;
mod measure;
mod serve;
mod step;
mod suite;

use std::process::ExitCode;

use step::Failure;

const USAGE: &str = "\
cargo xtask COMMAND

  setup                   install the Debian packages that building needs
  run [-- ARGS]           build the gateway and serve ./data (or what ARGS say)
  test [--no-vm] [--full]  [--scenario NAME]...
                          format, lints, unit and integration tests, doc tests, and the
                          scenarios with the Linux NFS client in a virtual machine
  vm build                build the virtual machine (cached under ~/.cache/aqueduct-vm)
  vm suite quick|full|soak [NAME...]
                          only the scenarios; SERVER=knfsd runs them against the kernel's server
  vm run [OPTIONS] 'CMD'  run a shell command in the virtual machine
  fuzz SECONDS            libFuzzer (where cargo-fuzz is) and new cases for the property tests
  bench [-- ARGS]         run the benchmarks
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            failure.exit_code()
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), Failure> {
    let Some((command, rest)) = args.split_first() else {
        print!("{USAGE}");
        return Ok(());
    };
    match command.as_str() {
        "setup" => machine::setup(),
        "run" => serve::run(rest),
        "test" => suite::test(rest),
        "vm" => suite::vm(rest),
        "fuzz" => measure::fuzz(rest),
        "bench" => measure::bench(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(Failure::usage(format!("there is no command '{other}'\n\n{USAGE}"))),
    }
}
