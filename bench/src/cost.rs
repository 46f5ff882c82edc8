//! One run of one program: how long it took from its start to its end, how long processors worked for it,
//! the most memory it had, and the bytes that it had the disk write. All but the first come from Linux's
//! /proc; elsewhere they are unknown.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often the peak of the memory is looked at: a process that is gone tells it no more.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Linux counts processor time for programs in these, whatever it does inside.
const TICK: Duration = Duration::from_millis(10);

/// Fields of /proc/self/stat between the program's name and the times of its children.
const FIELDS_BEFORE_CHILDREN: usize = 13;

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) elapsed: Duration,
    /// Time of all processors together, the kernel's included.
    pub(crate) processors: Option<Duration>,
    /// Resident memory at its peak.
    pub(crate) memory_bytes: Option<u64>,
    /// Bytes of pages that were made to be written.
    pub(crate) written_bytes: Option<u64>,
}

/// Runs the command to its end.
///
/// # Errors
///
/// If it cannot be started or does not succeed.
#[expect(clippy::disallowed_methods, reason = "to tell the time is its purpose")]
pub(crate) fn run(command: &mut Command) -> Result<Cost> {
    let shown = format!("{command:?}");
    let before = (processors_of_children(), written_by_children());
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to start {shown}"))?;
    let status = format!("/proc/{}/status", child.id());
    let (sender, ended) = sync_channel(1);
    std::thread::spawn(move || {
        let end = child.wait().map(|status| (status, start.elapsed()));
        // The receiver waits until this comes.
        let _ = sender.send(end);
    });
    let mut memory_bytes = None;
    let (status, elapsed) = loop {
        memory_bytes = memory_bytes.max(peak_memory(&status));
        match ended.recv_timeout(LOOK_PERIOD) {
            Ok(end) => break end.with_context(|| format!("failed to wait for {shown}"))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("nobody waits for {shown}"),
        }
    };
    if !status.success() {
        bail!("{status} from {shown}");
    }
    let processors = before.0.zip(processors_of_children());
    let written = before.1.zip(written_by_children());
    Ok(Cost {
        elapsed,
        processors: processors.map(|(before, after)| after - before),
        memory_bytes,
        written_bytes: written.map(|(before, after)| after - before),
    })
}

fn peak_memory(status: &str) -> Option<u64> {
    let kibibytes = field(&fs::read_to_string(status).ok()?, "VmHWM:")?;
    Some(kibibytes * 1024)
}

/// How long processors worked for the children that this process has waited for.
fn processors_of_children() -> Option<Duration> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, which may hold anything but this.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut ticks = fields.split_whitespace().skip(FIELDS_BEFORE_CHILDREN);
    let mut next = || ticks.next()?.parse::<u64>().ok();
    let (user, system) = (next()?, next()?);
    Some(TICK * u32::try_from(user + system).ok()?)
}

/// What this process and the children that it has waited for wrote; the process itself hardly does.
fn written_by_children() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "write_bytes:")
}

/// The number behind a name that begins a line.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn memory_of_a_program_and_bytes_that_it_wrote_are_seen() {
        // Not the temporary folder: it may lie in memory, which nothing is written from.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = folder.path().join("written");
        // It works on for a while, so that its memory is looked at more than once.
        let script = format!(
            "dd if=/dev/zero of={} bs=1M count=8 2>/dev/null; \
             i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done",
            file.display()
        );
        let cost = run(&mut shell(&script)).unwrap();
        assert!(cost.memory_bytes.unwrap() > 100_000, "{cost:?}");
        assert!(cost.written_bytes.unwrap() >= 8 << 20, "{cost:?}");
    }

    #[test]
    fn the_work_of_a_program_is_seen() {
        let cost = run(&mut shell(
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
        ))
        .unwrap();
        assert!(cost.processors.unwrap() >= TICK, "{cost:?}");
    }

    #[test]
    fn a_program_that_fails_is_no_run() {
        let error = run(&mut shell("exit 3")).unwrap_err();
        assert!(error.to_string().starts_with("exit status: 3"), "{error}");
    }
}
