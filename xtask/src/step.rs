//! One step of a task: an external command, shown before it runs, whose failure ends the task.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Why a task ended early; the text is for the person at the terminal.
#[derive(Debug)]
pub struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// The task itself failed.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 1 }
    }

    /// The command line was wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 2 }
    }

    /// The exit status to end with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The top folder of the repository.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A command that starts in the top folder.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Shows the command, runs it, and fails when it does.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = shown(command);
    eprintln!("+ {shown}");
    let status =
        command.status().map_err(|error| Failure::new(format!("cannot start {shown}: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{shown}: {status}")))
}

/// Shows the command and becomes it, so that signals to this process reach it and its status is this one's.
/// Returns only when it cannot be started.
pub fn become_it(command: &mut Command) -> Failure {
    let shown = shown(command);
    eprintln!("+ {shown}");
    let error = command.exec();
    Failure::new(format!("cannot start {shown}: {error}"))
}

/// Whether the command exists and succeeds; its output is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as one would type it.
pub fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| {
        let word = word.to_string_lossy();
        if word.contains(char::is_whitespace) { format!("'{word}'") } else { word.into_owned() }
    }));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_names_the_command() {
        let failure = run(Command::new("false").arg("two words")).unwrap_err();
        assert!(failure.to_string().contains("false 'two words'"), "{failure}");
    }

    #[test]
    fn a_missing_program_is_a_failure_and_not_a_panic() {
        let failure = run(&mut Command::new("/nonexistent/program")).unwrap_err();
        assert!(failure.to_string().contains("cannot start"), "{failure}");
        assert!(!succeeds(&mut Command::new("/nonexistent/program")));
    }

    /// Ctrl-C ended xtask and left the gateway behind.
    #[test]
    fn a_program_takes_the_place_of_this_one() {
        // This test again, in another process, which then is the shell.
        if std::env::var_os("AQUEDUCT_BECOME").is_some() {
            panic!("{}", become_it(Command::new("sh").args(["-c", "echo shell $$"])));
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        let name = "step::tests::a_program_takes_the_place_of_this_one";
        again.args(["--exact", "--nocapture", name]).env("AQUEDUCT_BECOME", "yes");
        let child = again.stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("shell {pid}")), "{text}");
    }

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("Cargo.toml").exists());
        assert!(root().join("xtask").is_dir());
    }
}
