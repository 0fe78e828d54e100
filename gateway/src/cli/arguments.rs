//! What can be written on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const AFTER_HELP: &str = "\
Examples:
  Serve /srv/data as /data, without a configuration file:
    aqueduct serve --export /data=/srv/data

  Mount it, over RDMA and over TCP:
    mount -t nfs -o vers=3,proto=rdma,port=20049,mountport=2049,mountproto=tcp,nolock SERVER:/data /mnt
    mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock SERVER:/data /mnt

  Begin a configuration file, check it, serve it, reload its exports:
    aqueduct example-config > aqueduct.toml
    aqueduct check-config aqueduct.toml
    aqueduct serve --config aqueduct.toml
    kill -HUP PID

At its start the gateway prints the mount command for each export and transport.";

const SERVE_HELP: &str = "\
Examples:
  aqueduct serve --export /data=/srv/data
  aqueduct serve --export /data=/srv/data --export /scratch=memory --squash all
  aqueduct serve --export /models=/srv/models --read-only --io direct --clients 10.1.0.0/16
  aqueduct serve --config /etc/aqueduct/aqueduct.toml --lanes 4

Without other options: TCP port 2049 and, where there is an RDMA device, RDMA port 20049 on all addresses;
clients from private networks; root squashed; the handle key in the state directory.

Arguments go before the file. --squash, --read-only, --io and --clients are for every export, --export adds to
those of the file. RDMA and handles of local files need CAP_DAC_READ_SEARCH, in practice the superuser.

Mount:
  mount -t nfs -o vers=3,proto=rdma,port=20049,mountport=2049,mountproto=tcp,nolock SERVER:/data /mnt
  mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock SERVER:/data /mnt
  mountport= is the TCP port for both. Where rpcbind was told the ports, or with --portmap serve, less will do:
  -o vers=3,proto=rdma,port=20049,nolock and -o vers=3,nolock";

/// NFS over RDMA and TCP from userspace.
#[derive(Debug, Parser)]
#[command(name = "aqueduct", version, about, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve exports until SIGTERM; SIGHUP reloads them, SIGUSR1 logs the totals
    #[command(after_help = SERVE_HELP)]
    Serve(Box<ServeArguments>),
    /// Check a configuration file exactly as `serve` does, and print the sum of its limits
    CheckConfig {
        /// The file, or `-` for standard input
        file: PathBuf,
    },
    /// Print a configuration file with every key explained
    ExampleConfig,
    /// Show what this machine offers: RDMA devices, limits, io_uring
    Doctor,
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArguments {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve a directory under a name; DIR may be the word `memory`. Can be repeated
    #[arg(long = "export", value_name = "/NAME=DIR")]
    pub exports: Vec<String>,
    /// Whose identity becomes the anonymous one: none, root or all [default: root]
    #[arg(long, value_name = "WHOSE")]
    pub squash: Option<String>,
    /// Let nobody write
    #[arg(long)]
    pub read_only: bool,
    /// How data moves: buffered, dontcache or direct [default: buffered]
    #[arg(long, value_name = "MODE")]
    pub io: Option<String>,
    /// Who may use the exports: address, network, host name, `private` or `*`. Can be repeated
    #[arg(long, value_name = "CLIENT")]
    pub clients: Vec<String>,
    /// Listen for TCP here, or `off`. Can be repeated [default: [::]:2049]
    #[arg(long, value_name = "ADDR:PORT")]
    pub tcp: Vec<String>,
    /// Listen for RDMA here, or `off`. Can be repeated [default: [::]:20049]
    #[arg(long, value_name = "ADDR:PORT")]
    pub rdma: Vec<String>,
    /// Portmapper: register, serve or off [default: register]
    #[arg(long, value_name = "MODE")]
    pub portmap: Option<String>,
    /// Threads that serve connections [default: one per processor, at most 8]
    #[arg(long, value_name = "N")]
    pub lanes: Option<i64>,
    /// Where the key of the file handles is kept
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Log level or filter [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Log format: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_teaches_to_mount() {
        let mut command = Arguments::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_long_help().to_string();
        for line in ["--export", "proto=rdma,port=20049", "aqueduct serve --config"] {
            assert!(help.contains(line), "{line}");
        }
    }

    #[test]
    fn serve_needs_no_configuration_file() {
        let parsed =
            Arguments::try_parse_from(["aqueduct", "serve", "--export", "/data=/srv/data"]);
        let Command::Serve(serve) = parsed.unwrap().command else { panic!() };
        assert_eq!(serve.exports, ["/data=/srv/data"]);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for arguments in [
            &["aqueduct"][..],
            &["aqueduct", "serve", "--exports", "/a=/b"],
            &["aqueduct", "check-config"],
            &["aqueduct", "serve", "--lanes", "many"],
        ] {
            assert!(Arguments::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}
