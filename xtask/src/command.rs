//! Running other programs: each is shown before it runs, and a failure names its whole command line.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The cargo that runs us, so that the toolchain stays the same one.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// Runs a command with our own stdin, stdout and stderr.
///
/// # Errors
///
/// If it cannot be started or does not succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = announce(command);
    let status = command
        .status()
        .with_context(|| format!("failed to start: {line}"))?;
    if !status.success() {
        bail!("{status} from: {line}");
    }
    Ok(())
}

/// Runs a command, passes its stdout on line by line, and returns the lines that begin with `prefix`.
///
/// # Errors
///
/// If it cannot be started or does not succeed.
pub(crate) fn run_and_keep(
    command: &mut Command,
    prefix: &str,
    kept: &mut Vec<String>,
) -> Result<()> {
    let line = announce(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start: {line}"))?;
    let stdout = child.stdout.take().context("its stdout was not piped")?;
    for output in BufReader::new(stdout).split(b'\n') {
        let output = output.with_context(|| format!("failed to read the output of: {line}"))?;
        let output = String::from_utf8_lossy(&output);
        println!("{output}");
        if output.starts_with(prefix) {
            kept.push(output.into_owned());
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("failed to wait for: {line}"))?;
    if !status.success() {
        bail!("{status} from: {line}");
    }
    Ok(())
}

/// Runs a command quietly and returns what it printed.
///
/// # Errors
///
/// If it cannot be started or does not succeed; the message then holds its stderr.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command
        .output()
        .with_context(|| format!("failed to start: {line}"))?;
    if !output.status.success() {
        bail!(
            "{} from: {line}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("not UTF-8 from: {line}"))
}

/// Shows the command on stderr and returns how it was shown.
fn announce(command: &Command) -> String {
    let line = command_line(command);
    eprintln!("$ {line}");
    line
}

/// The command as one could type it. Compiler flags in cargo's own encoding are left out: nobody
/// could read them.
fn command_line(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value.filter(|_| name != "CARGO_ENCODED_RUSTFLAGS") {
            words.push(format!(
                "{}={}",
                name.to_string_lossy(),
                quoted(&value.to_string_lossy())
            ));
        }
    }
    let program = command.get_program();
    let program = if std::env::var_os("CARGO").as_deref() == Some(program) {
        "cargo".into()
    } else {
        program.to_string_lossy()
    };
    words.push(quoted(&program));
    words.extend(
        command
            .get_args()
            .map(|argument| quoted(&argument.to_string_lossy())),
    );
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_named_with_its_arguments_and_status() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "exit status: 3 from: sh -c 'exit 3'");
    }

    #[test]
    fn what_a_failed_command_printed_is_in_the_error() {
        let error = read(Command::new("sh").args(["-c", "echo no room >&2; exit 1"])).unwrap_err();
        assert!(error.to_string().ends_with("\nno room"), "{error}");
    }

    #[test]
    fn lines_with_the_prefix_are_kept_in_order() {
        let mut kept = Vec::new();
        let script = "echo test result: a; echo other; echo test result: b";
        run_and_keep(
            Command::new("sh").args(["-c", script]),
            "test result:",
            &mut kept,
        )
        .unwrap();
        assert_eq!(kept, ["test result: a", "test result: b"]);
    }
}
