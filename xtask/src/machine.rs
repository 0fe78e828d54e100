//! Prepares the machine: the Debian packages that building the gateway needs.
//!
//! What the virtual machine needs beyond these is installed by `tests/vm/build`.

use std::process::Command;

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
    step::run(apt(privilege).args(["update", "-qq"]))?;
    let install = ["install", "-y", "-qq", "--no-install-recommends"];
    step::run(apt(privilege).args(install).args(missing))
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
    // `env` first, so that sudo does not drop the variable.
    let words = [privilege, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]].concat();
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
    fn a_package_that_does_not_exist_is_not_installed() {
        assert!(!installed("aqueduct-package-that-does-not-exist"));
    }
}
