//! The subcommands.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use clap::Parser;

use super::{
    arguments::{Arguments, Command},
    doctor,
    source::Source,
};
use crate::{
    config::{Config, Machine, Problems, check, load::name_of, value::format_size},
    lifecycle,
};

/// The example, with every key explained.
pub const EXAMPLE_CONFIG: &str = include_str!("../../../config/example.toml");

/// Something went wrong while running.
const EXIT_FAILED: u8 = 1;
/// The configuration or the arguments are wrong; clap ends with this code too.
const EXIT_USAGE: u8 = 2;

/// Do what the command line says.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Serve(serve) => serve_with(Source::new(*serve)),
        Command::CheckConfig { file } => check_config(&file),
        Command::ExampleConfig => print(EXAMPLE_CONFIG),
        Command::Doctor => print(&doctor::report(&Machine::detect())),
    }
}

fn serve_with(source: Source) -> ExitCode {
    let machine = Machine::detect();
    match source.load(&machine) {
        Err(problems) => refuse(&problems),
        Ok(config) => match lifecycle::run::run(source, machine, config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("aqueduct: {error}");
                ExitCode::from(EXIT_FAILED)
            }
        },
    }
}

fn check_config(file: &Path) -> ExitCode {
    let machine = Machine::detect();
    match Source::of_file(file).load(&machine) {
        Err(problems) => refuse(&problems),
        Ok(config) => {
            for warning in check::warnings(&config, &machine) {
                eprintln!("warning: {}: {warning}", name_of(file));
            }
            print(&summary(file, &config))
        }
    }
}

fn summary(file: &Path, config: &Config) -> String {
    let mut text = format!("{}: good\n", name_of(file));
    for export in &config.exports {
        let settings = &export.settings;
        text += &format!("export {} (id {}): {}\n", settings.path, settings.id, settings.origin);
    }
    let most = format_size(config.server.memory_max);
    text + &format!(
        "memory when all limits are reached (at most {most}):\n{}\n",
        config.memory.table()
    )
}

fn refuse(problems: &Problems) -> ExitCode {
    let count = problems.0.len();
    eprintln!("{problems}");
    eprintln!(
        "aqueduct: {count} problem{} in the configuration",
        if count == 1 { "" } else { "s" }
    );
    ExitCode::from(EXIT_USAGE)
}

/// Print, and take a reader that has gone away (`| head`) for what it is.
fn print(text: &str) -> ExitCode {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("aqueduct: cannot print: {error}");
            ExitCode::from(EXIT_FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}
