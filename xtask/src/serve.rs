//! `cargo xtask run`: build the gateway and serve a directory.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use crate::machine;
use crate::step::{self, Failure};

/// Builds, and becomes the gateway; arguments after `--` replace the whole default command line.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let arguments = match args.split_first() {
        None => default_arguments()?,
        Some((dashes, rest)) if dashes == "--" => rest.to_vec(),
        Some((other, _)) => {
            return Err(Failure::usage(format!(
                "run: '{other}': put the gateway's arguments after --"
            )));
        }
    };
    machine::setup()?;
    step::run(step::cargo().args(["build", "--release", "--package", "aqueduct-gateway"]))?;
    if args.is_empty() {
        println!("{}", mount_lines(has_rdma_device()));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| step::root().join("target"), Into::into);
    Err(step::become_it(step::program(target.join("release/aqueduct")).args(arguments)))
}

fn default_arguments() -> Result<Vec<String>, Failure> {
    let root = step::root();
    make_folders(&root)
        .map_err(|error| Failure::new(format!("cannot make ./data or target/state: {error}")))?;
    let export = format!("/data={}", root.join("data").display());
    let state = root.join("target/state").display().to_string();
    let words = [
        "serve",
        "--export",
        &export,
        "--tcp",
        "0.0.0.0:2049",
        "--rdma",
        "0.0.0.0:20049",
        "--state-dir",
        &state,
    ];
    Ok(words.map(String::from).to_vec())
}

/// A new `./data` is like `/tmp`: the first thing that people try is to write into it as a client's root, whom the
/// gateway takes for nobody in particular.
fn make_folders(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root.join("target/state"))?;
    let data = root.join("data");
    match fs::create_dir(&data) {
        Ok(()) => fs::set_permissions(&data, fs::Permissions::from_mode(0o1777)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn has_rdma_device() -> bool {
    fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

fn mount_lines(rdma: bool) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "SERVER" } else { host.trim() };
    let mut lines = format!(
        "./data becomes {host}:/data; on a client, as soon as the gateway is ready:\n  \
         TCP:  mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock {host}:/data /mnt"
    );
    if rdma {
        lines += &format!(
            "\n  RDMA: mount -t nfs -o vers=3,proto=rdma,port=20049,mountport=2049,mountproto=tcp,nolock {host}:/data /mnt"
        );
    } else {
        lines += "\n  RDMA: there is no device here; README.md says how to try it without hardware";
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_arguments_are_refused_before_anything_is_built() {
        let failure = run(&["--export".to_owned()]).unwrap_err();
        assert!(failure.to_string().contains("after --"), "{failure}");
    }

    #[test]
    fn everybody_may_write_into_new_data_and_old_data_stays_as_it_is() {
        let root = std::env::temp_dir().join(format!("aqueduct-xtask-data-{}", std::process::id()));
        let mode = || fs::metadata(root.join("data")).unwrap().permissions().mode() & 0o7777;
        make_folders(&root).unwrap();
        let new = mode();
        fs::set_permissions(root.join("data"), fs::Permissions::from_mode(0o750)).unwrap();
        make_folders(&root).unwrap();
        let old = mode();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!((new, old), (0o1777, 0o750));
    }

    #[test]
    fn mount_lines_are_printed_for_what_is_served() {
        let lines = mount_lines(true);
        assert!(lines.contains("proto=tcp,port=2049") && lines.contains("proto=rdma,port=20049"));
        let lines = mount_lines(false);
        assert!(lines.contains("proto=tcp,port=2049") && !lines.contains("proto=rdma"));
    }
}
