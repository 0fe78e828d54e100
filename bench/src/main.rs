//! `aqueduct-bench`: see `--help` and the README beside it.

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use bench::{
    cli::{Cli, Command, SoftArgs},
    load,
    report::Report,
    soft::{EXPORT, Server, measure, memory_bytes},
    target::Target,
};
use clap::Parser;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => args
            .shape
            .settings(args.target, args.export, args.mount_port)
            .and_then(|settings| load::run(&settings, || ()).map_err(|e| e.to_string())),
        Command::Soft(args) => soft(&args),
    };
    match result {
        Ok(report) => print(&report),
        Err(error) => {
            eprintln!("aqueduct-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A load on a server in this process.
fn soft(args: &SoftArgs) -> Result<Report, String> {
    // The target is not known before the server runs, and the server's size not before the load.
    let nowhere = Target::Tcp(SocketAddr::from(([0; 4], 0)));
    let mut settings = args.shape.settings(nowhere, EXPORT.to_owned(), None)?;
    let spin = Duration::from_micros(args.spin_us);
    let bytes = memory_bytes(&settings);
    let server = Server::start(args.transport, args.lanes as usize, spin, bytes)
        .map_err(|e| e.to_string())?;
    settings.target = server.target.clone();
    let report = measure(&settings).map_err(|e| e.to_string())?;
    drop(settings);
    server.stop().map_err(|e| e.to_string())?;
    Ok(report)
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
