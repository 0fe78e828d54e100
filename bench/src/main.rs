//! `aqueduct-bench`: see `--help` and the README beside it.

use std::process::ExitCode;

use bench::{
    cli::{Cli, Command},
    load,
    report::Report,
};
use clap::Parser;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => args
            .shape
            .settings(args.target, args.export, args.mount_port)
            .and_then(|settings| load::run(&settings, || ()).map_err(|e| e.to_string())),
    };
    match result {
        Ok(report) => print(&report),
        Err(error) => {
            eprintln!("aqueduct-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Print the report; failed calls make the run a failure too.
fn print(report: &Report) -> ExitCode {
    match serde_json::to_string(report) {
        Ok(line) => println!("{line}"),
        Err(error) => {
            eprintln!("aqueduct-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
