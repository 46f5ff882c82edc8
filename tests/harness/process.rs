//! A child process whose stderr is read line by line while it runs. Threads empty both pipes, so that a
//! child never stands still because nobody reads, unless a test wants just that; the end of both pipes is
//! the sign that it is gone.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take between its start and its end, or the line that a test waits for. Far
/// above what any test needs on a loaded machine: it ends a hang, it measures nothing.
const DEADLINE: Duration = Duration::from_secs(120);

/// How often a process is looked at that says nothing.
#[cfg(target_os = "linux")]
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// Lines and pipe ends that wait for the test; a reader stops reading at this many.
const EVENTS_MAX: usize = 1024;

/// A process that was started and not yet waited for. One that is dropped is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    events: Receiver<Event>,
    /// Pipes that have not ended.
    open_pipes: usize,
    /// A stdout that nobody reads yet, and where its end is to be told.
    unread_stdout: Option<(ChildStdout, SyncSender<Event>)>,
    deadline: Instant,
    stdout: Vec<u8>,
    stderr: Vec<String>,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All that it wrote to stdout.
    pub stdout: Vec<u8>,
    /// The lines that it wrote to stderr.
    pub stderr: Vec<String>,
}

#[derive(Debug)]
enum Event {
    Line(String),
    StderrEnd,
    StdoutEnd(Vec<u8>),
}

/// What a test waits for did not come in time.
#[derive(Debug, PartialEq, Eq)]
struct DeadlinePassed;

impl Running {
    /// Starts a process without stdin; its time begins to run.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Running {
        Running::start_with_deadline(command, DEADLINE)
    }

    /// The same, but what the process writes to stdout stays in the pipe until its end is waited for: one
    /// that writes more than a pipe holds stands still until then.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn start_with_stdout_unread(command: &mut Command) -> Running {
        Running::spawn(command, DEADLINE)
    }

    /// Starts a process that must end, or say what is waited for, within a time of its own.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn start_with_deadline(command: &mut Command, deadline: Duration) -> Running {
        let mut running = Running::spawn(command, deadline);
        running.read_stdout();
        running
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the deadline ends a child that hangs; no outcome is computed from the time"
    )]
    fn spawn(command: &mut Command, deadline: Duration) -> Running {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let (sender, events) = sync_channel(EVENTS_MAX);
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let lines = sender.clone();
        thread::spawn(move || read_lines(stderr, &lines));
        Running {
            child,
            events,
            open_pipes: 2,
            unread_stdout: Some((stdout, sender)),
            deadline: Instant::now() + deadline,
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn read_stdout(&mut self) {
        if let Some((stdout, sender)) = self.unread_stdout.take() {
            thread::spawn(move || read_whole(stdout, &sender));
        }
    }

    /// How many lines of stderr that hold `text` earlier waits have seen.
    #[must_use]
    pub fn count_lines(&self, text: &str) -> usize {
        let lines = self.stderr.iter();
        lines.filter(|line| line.contains(text)).count()
    }

    /// Waits until `count` lines of stderr that hold `text` have come since the start, and returns how many
    /// have: fewer only when the process ended before. Lines seen by earlier waits count.
    ///
    /// # Panics
    ///
    /// If the deadline passes.
    pub fn wait_for_lines(&mut self, text: &str, count: usize) -> usize {
        let mut seen = self.count_lines(text);
        while seen < count {
            match self.next_line() {
                Ok(Some(line)) => seen += usize::from(line.contains(text)),
                Ok(None) => break,
                Err(DeadlinePassed) => {
                    self.give_up(&format!("{count} lines with `{text}`, {seen} came"))
                }
            }
        }
        seen
    }

    /// Waits until the process has computed for so long without a word on stderr: it is deep in something. Whether it
    /// has; no when it ended before.
    ///
    /// # Panics
    ///
    /// If the deadline passes.
    #[cfg(target_os = "linux")]
    pub fn wait_until_absorbed(&mut self, computed: Duration) -> bool {
        let mut before = self.processor_time();
        while self.open_pipes > 0 {
            let line = self.next_line_within(LOOK_PERIOD);
            match line.map(|line| line.is_some()) {
                Ok(true) => before = self.processor_time(),
                Ok(false) => return false,
                Err(DeadlinePassed) if self.is_overdue() => self.give_up("it to compute silently"),
                Err(DeadlinePassed) => {
                    if self.processor_time().saturating_sub(before) >= computed {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// How long the process has computed so far, all threads together; nothing of one that is gone.
    #[cfg(target_os = "linux")]
    fn processor_time(&self) -> Duration {
        // Fields 14 and 15 of proc_pid_stat(5), in ticks of 10 ms; the second one may hold spaces.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let ticks = behind_name.split(' ').skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(10 * ticks)
    }

    #[expect(clippy::disallowed_methods, reason = "the rest of the deadline")]
    fn is_overdue(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Sends SIGKILL and reaps the process. One that had already ended keeps its own status, which is how
    /// a test tells that its kill hit.
    ///
    /// # Panics
    ///
    /// If the process cannot be killed.
    #[must_use]
    pub fn kill(mut self) -> Finished {
        self.child.kill().expect("a child of ours can be killed");
        self.wait()
    }

    /// Sends SIGINT, as a person does who has seen enough, and waits for the end.
    ///
    /// # Panics
    ///
    /// If it cannot be sent, or the deadline passes.
    #[must_use]
    pub fn interrupt(self) -> Finished {
        let process = self.id().to_string();
        let sent = Command::new("kill").args(["-INT", &process]).status();
        assert!(sent.expect("kill is there").success());
        self.wait()
    }

    /// Waits for the end.
    ///
    /// # Panics
    ///
    /// If the deadline passes.
    #[must_use]
    pub fn wait(mut self) -> Finished {
        self.read_stdout();
        loop {
            match self.next_line() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(DeadlinePassed) => self.give_up("its end"),
            }
        }
        Finished {
            status: self
                .child
                .wait()
                .expect("a child of ours can be waited for"),
            stdout: std::mem::take(&mut self.stdout),
            stderr: std::mem::take(&mut self.stderr),
        }
    }

    /// The next line of stderr; `None` when both pipes have ended.
    #[expect(clippy::disallowed_methods, reason = "the rest of the deadline")]
    fn next_line(&mut self) -> Result<Option<&str>, DeadlinePassed> {
        self.next_line_within(self.deadline.saturating_duration_since(Instant::now()))
    }

    fn next_line_within(&mut self, rest: Duration) -> Result<Option<&str>, DeadlinePassed> {
        while self.open_pipes > 0 {
            match self.events.recv_timeout(rest) {
                Ok(Event::Line(line)) => {
                    self.stderr.push(line);
                    return Ok(self.stderr.last().map(String::as_str));
                }
                Ok(Event::StderrEnd) => self.open_pipes -= 1,
                Ok(Event::StdoutEnd(bytes)) => {
                    self.open_pipes -= 1;
                    self.stdout = bytes;
                }
                Err(RecvTimeoutError::Timeout) => return Err(DeadlinePassed),
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("each reader sends the end of its pipe before it goes")
                }
            }
        }
        Ok(None)
    }

    fn give_up(&self, awaited: &str) -> ! {
        // The drop that follows kills the process.
        panic!(
            "the deadline passed while waiting for {awaited}; stderr until then:\n{}",
            self.stderr.join("\n")
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `wait` these find a process that is reaped, and do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Checks that the process ended with this exit code.
    ///
    /// # Panics
    ///
    /// If it did not; the message holds its stderr.
    pub fn expect_code(self, code: i32) -> Finished {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{}; stderr:\n{}",
            self.status,
            self.stderr_text()
        );
        self
    }

    /// All of stderr.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        self.stderr.join("\n")
    }

    /// All of stdout; what is not UTF-8 is replaced.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Whether SIGKILL ended it.
    #[cfg(unix)]
    #[must_use]
    pub fn was_killed(&self) -> bool {
        const SIGKILL: i32 = 9;
        std::os::unix::process::ExitStatusExt::signal(&self.status) == Some(SIGKILL)
    }
}

/// Sends each line, then the end. Sending fails only when the test has let go of the process.
fn read_lines(stderr: impl Read, events: &SyncSender<Event>) {
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line).into_owned();
        if events.send(Event::Line(line)).is_err() {
            return;
        }
    }
    let _ = events.send(Event::StderrEnd);
}

fn read_whole(mut stdout: impl Read, events: &SyncSender<Event>) {
    let mut bytes = Vec::new();
    // What was read before an error is what the process wrote; its end is what counts here.
    let _ = stdout.read_to_end(&mut bytes);
    let _ = events.send(Event::StdoutEnd(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// A process that says something and then neither goes on nor ends.
    const STANDS_STILL: &str = "echo begun >&2; kill -STOP $$";

    #[test]
    fn output_and_exit_code_of_a_finished_process_are_kept() {
        let finished =
            Running::start(&mut shell("echo out; echo one >&2; echo two >&2; exit 7")).wait();
        assert_eq!(finished.stdout_text(), "out\n");
        assert_eq!(finished.stderr, ["one", "two"]);
        assert_eq!(finished.status.code(), Some(7));
        assert!(!finished.was_killed());
    }

    #[test]
    fn a_process_that_stands_still_is_killed_after_its_line() {
        let mut running = Running::start(&mut shell(STANDS_STILL));
        assert_eq!(running.wait_for_lines("begun", 1), 1);
        assert!(running.kill().was_killed());
    }

    #[test]
    fn a_process_whose_stdout_is_unread_stands_still_until_it_is_waited_for() {
        let script = "echo begun >&2; head -c 1000000 /dev/zero; echo ended >&2";
        let mut running = Running::start_with_stdout_unread(&mut shell(script));
        assert_eq!(running.wait_for_lines("begun", 1), 1);
        assert_eq!(running.count_lines("ended"), 0);
        let finished = running.wait();
        assert_eq!(finished.stdout.len(), 1_000_000);
        assert_eq!(finished.stderr, ["begun", "ended"]);
    }

    #[test]
    fn waiting_for_lines_ends_with_the_process_and_counts_what_came() {
        let mut running = Running::start(&mut shell("for i in 1 2 3; do echo line $i >&2; done"));
        assert_eq!(running.wait_for_lines("line", 2), 2);
        assert_eq!(running.wait_for_lines("line", 5), 3);
        assert!(!running.kill().was_killed(), "it had ended by itself");
    }

    #[test]
    #[should_panic(expected = "waiting for its end; stderr until then:\nbegun")]
    fn a_process_that_hangs_fails_the_test_with_what_it_printed() {
        let mut command = shell(STANDS_STILL);
        let _ = Running::start_with_deadline(&mut command, Duration::from_millis(300)).wait();
    }

    #[test]
    fn more_lines_than_wait_for_the_test_do_not_block_its_end() {
        let script = format!(
            "i=0; while [ $i -lt {} ]; do echo $i >&2; i=$((i+1)); done",
            2 * EVENTS_MAX
        );
        let finished = Running::start(&mut shell(&script)).wait();
        assert_eq!(finished.stderr.len(), 2 * EVENTS_MAX);
    }
}
