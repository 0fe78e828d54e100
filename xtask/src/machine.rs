//! Prepares the machine: the Debian packages that building the gateway needs.
//!
//! What the virtual machine needs beyond these is installed by `tests/vm/build`.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::step::{self, Failure};

/// Packages for the build: the RDMA libraries with their headers, and what compiles the bindings.
const PACKAGES: &[&str] = &[
    "clang",
    "cmake",
    "ibverbs-providers",
    "libclang-dev",
    "libibverbs-dev",
    "libnl-3-dev",
    "libnl-route-3-dev",
    "librdmacm-dev",
    "make",
    "pkg-config",
    "rdma-core",
];

/// How long another package manager may be at work; one usually is on a machine that has just started.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(5);

/// Installs what is missing; says how when it may not.
pub fn setup() -> Result<(), Failure> {
    if !step::succeeds(Command::new("dpkg-query").arg("--version")) {
        eprintln!(
            "xtask: this is not Debian or a relative of it: please see that these are installed \
             (Debian's names): {}",
            PACKAGES.join(" ")
        );
        return Ok(());
    }
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let Some(privilege) = privilege() else {
        return Err(Failure::new(format!(
            "these packages are missing, and installing them needs root:\n  apt-get install {}",
            missing.join(" ")
        )));
    };
    // apt's own patience is for the lock of dpkg alone, not for that of the lists.
    patiently(apt(privilege).args(["update", "-qq"]), PATIENCE, PAUSE)?;
    let patience = format!("DPkg::Lock::Timeout={}", PATIENCE.as_secs());
    let install = ["-o", &patience, "install", "-y", "-qq", "--no-install-recommends"];
    step::run(apt(privilege).args(install).args(missing))
}

/// Runs apt-get again and again while the only thing that is wrong is that another one is at work.
fn patiently(command: &mut Command, patience: Duration, pause: Duration) -> Result<(), Failure> {
    let shown = step::shown(command);
    eprintln!("+ {shown}");
    let until = Instant::now() + patience;
    loop {
        let output = command
            .output()
            .map_err(|error| Failure::new(format!("cannot start {shown}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("Could not get lock") || Instant::now() >= until {
            return Err(Failure::new(format!("{shown}: {}\n{}", output.status, said.trim_end())));
        }
        eprintln!("xtask: another package manager is at work: waiting for it");
        thread::sleep(pause);
    }
}

fn missing() -> Vec<&'static str> {
    PACKAGES.iter().copied().filter(|package| !installed(package)).collect()
}

fn installed(package: &str) -> bool {
    let query = ["-W", "-f", "${db:Status-Status}", package];
    Command::new("dpkg-query")
        .args(query)
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"installed"))
}

/// The words that go before a command which needs root, or `None` when root cannot be had.
fn privilege() -> Option<&'static [&'static str]> {
    let user = Command::new("id").arg("-u").output().ok()?;
    if user.stdout.trim_ascii() == b"0" {
        return Some(&[]);
    }
    step::succeeds(Command::new("sudo").arg("--version")).then_some(&["sudo"])
}

fn apt(privilege: &[&str]) -> Command {
    // `env` first, so that sudo does not drop the variables. C: its messages are read here.
    let words =
        [privilege, &["env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "apt-get"]].concat();
    let (first, rest) = words.split_first().map_or(("apt-get", &[][..]), |(f, r)| (*f, r));
    let mut command = step::program(first);
    command.args(rest);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_is_called_through_sudo_only_when_needed() {
        assert_eq!(apt(&[]).get_program(), "env");
        let with_sudo = apt(&["sudo"]);
        assert_eq!(with_sudo.get_program(), "sudo");
        assert_eq!(with_sudo.get_args().last().unwrap(), "apt-get");
    }

    #[test]
    fn a_lock_is_waited_for_and_nothing_else() {
        let run = |script: &str, patience| {
            patiently(Command::new("sh").args(["-c", script]), patience, Duration::from_millis(1))
        };
        let file = std::env::temp_dir().join(format!("aqueduct-xtask-{}", std::process::id()));
        let path = file.display();
        let locked = "echo 'E: Could not get lock /l. It is held by process 7' >&2; exit 100";
        let soon = format!("[ -e {path} ] && exit 0; touch {path}; {locked}");
        let waited = run(&soon, PATIENCE);
        std::fs::remove_file(&file).unwrap();
        waited.unwrap();
        assert!(run(locked, Duration::ZERO).unwrap_err().to_string().contains("process 7"));
        let began = Instant::now();
        let network = run("echo 'E: Temporary failure resolving' >&2; exit 100", PATIENCE);
        assert!(network.unwrap_err().to_string().contains("resolving"));
        assert!(began.elapsed() < PATIENCE / 2);
    }

    #[test]
    fn a_package_that_does_not_exist_is_not_installed() {
        assert!(!installed("aqueduct-package-that-does-not-exist"));
    }
}
