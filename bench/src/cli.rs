//! The command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::{
    load::{LoadSettings, Op},
    soft::Transport,
    target::Target,
};

/// Load for NFS servers.
#[derive(Debug, Parser)]
#[command(name = "aqueduct-bench", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Put load on a server and print one line of JSON.
    Load(LoadArgs),
    /// Start our own server in this process, put load on it and print one line of JSON.
    Soft(SoftArgs),
}

/// Arguments of `soft`.
#[derive(Debug, Args)]
pub struct SoftArgs {
    /// How the client reaches the server.
    #[arg(long, value_enum, default_value = "soft")]
    pub transport: Transport,
    /// Lanes of the server.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub lanes: u32,
    /// How long a lane looks for work before it sleeps, in microseconds. 0 keeps idle time out of the lanes'
    /// CPU time.
    #[arg(long, default_value_t = 0)]
    pub spin_us: u64,
    /// What the load does.
    #[command(flatten)]
    pub shape: LoadShape,
}

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The server: tcp:HOST:PORT or rdma:HOST:PORT.
    #[arg(long)]
    pub target: Target,
    /// The export to mount.
    #[arg(long, default_value = "/")]
    pub export: String,
    /// Port of MOUNT [default: the server's own port, then what its portmapper says].
    #[arg(long)]
    pub mount_port: Option<u16>,
    /// What the load does.
    #[command(flatten)]
    pub shape: LoadShape,
}

/// What a load does, whatever its target.
#[derive(Debug, Args)]
pub struct LoadShape {
    /// Operation.
    #[arg(long, value_enum)]
    pub op: Op,
    /// Bytes of one read or write: 4096, 4KiB, 1MiB.
    #[arg(long, default_value = "4KiB", value_parser = size)]
    pub size: u64,
    /// Calls under way on each connection.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Connections, each with its own thread and file.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub connections: u32,
    /// How long.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Stop after so many calls on each connection instead.
    #[arg(long)]
    pub calls: Option<u64>,
    /// Size of each file.
    #[arg(long, default_value = "256MiB", value_parser = size)]
    pub file_size: u64,
    /// Random offsets instead of sequential ones.
    #[arg(long)]
    pub random: bool,
    /// Check what is read, and write what can be checked.
    #[arg(long)]
    pub verify: bool,
    /// Have the system throw away the data of READs (TCP alone): what is measured then is the server, and not
    /// this client's copying of the data.
    #[arg(long, conflicts_with = "verify")]
    pub discard: bool,
    /// Ask for FILE_SYNC writes instead of UNSTABLE ones.
    #[arg(long)]
    pub stable: bool,
    /// User id of the calls.
    #[arg(long, default_value_t = 0)]
    pub uid: u32,
    /// Group id of the calls.
    #[arg(long, default_value_t = 0)]
    pub gid: u32,
}

impl LoadShape {
    /// The settings of a load on `target`.
    ///
    /// # Errors
    /// When the figures do not fit together.
    pub fn settings(
        &self,
        target: Target,
        export: String,
        mount_port: Option<u16>,
    ) -> Result<LoadSettings, String> {
        let size = usize::try_from(self.size).map_err(|e| e.to_string())?;
        if size == 0 || size > 4 << 20 {
            return Err("--size must be between 1 byte and 4 MiB".to_owned());
        }
        if self.file_size < self.size {
            return Err("--file-size must not be smaller than --size".to_owned());
        }
        let time =
            Duration::try_from_secs_f64(self.seconds).map_err(|e| format!("--seconds: {e}"))?;
        Ok(LoadSettings {
            target,
            export,
            mount_port,
            op: self.op,
            size,
            depth: self.depth as usize,
            connections: self.connections as usize,
            time,
            calls: self.calls,
            file_bytes: self.file_size,
            random: self.random,
            verify: self.verify,
            discard: self.discard,
            stable: self.stable,
            ids: (self.uid, self.gid),
        })
    }
}

/// A size with an optional unit.
fn size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 =
        number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let unit = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" | "m" => 1 << 20,
        "GiB" | "G" | "g" => 1 << 30,
        unit => return Err(format!("{unit:?} is not a unit: use KiB, MiB or GiB")),
    };
    number.checked_mul(unit).ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("4KiB"), Ok(4096));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert_eq!(size("2 GiB"), Ok(2 << 30));
        for bad in ["", "KiB", "4kb", "99999999999GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn figures_must_fit_together() {
        let parse = |more: &[&str]| {
            let args = ["aqueduct-bench", "load", "--target", "tcp:127.0.0.1:1", "--op", "read"];
            let cli = Cli::try_parse_from(args.iter().chain(more)).unwrap();
            let Command::Load(load) = cli.command else { panic!("not a load") };
            load.shape.settings(load.target, load.export, load.mount_port).map(|s| s.size)
        };
        assert_eq!(parse(&[]), Ok(4096));
        assert!(parse(&["--size", "1MiB", "--file-size", "4KiB"]).is_err());
        assert!(parse(&["--size", "8MiB"]).is_err());
    }
}
