//! How other commands reach the process that has a data directory: a Unix socket in it. One line asks, lines
//! answer, each a JSON document.
//!
//! Only the directory's user gets an answer. Who holds the directory's lock owns the socket, so what a killed
//! process left of one is replaced.
//!
//! **Invariant:** no request keeps the one who has the store from anything but what a commit does: a few
//! milliseconds of the committer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::cli::dlq::question::{LettersAnswer, LettersQuestion, ListedLetter};
use crate::cli::store::backup::{BackupReport, take_backup};
use crate::cli::store::size::{SizeReport, measure};
use crate::clock::{Clock, SystemClock};
use crate::storage::Storage;
use crate::storage::backup::BackupProgress;
use crate::telemetry::LogOutput;
use crate::worker::WorkerHandle;

/// Name of the socket in the data directory.
const SOCKET_NAME: &str = "control.sock";

/// Requests that are worked on at once; others wait.
const REQUESTS_MAX: usize = 4;

/// Longest request, in bytes: one may name [`crate::cli::dlq::IDS_PER_REQUEST`] dead letters.
const REQUEST_BYTES_MAX: u64 = 2 << 20;

/// How long the other side may take to say or to take a line.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often progress is told.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// Write a backup of the store.
    Backup {
        /// To this file, an absolute path.
        to: PathBuf,
    },
    /// Say how large the store is.
    Size,
    /// Look into its dead letters, or ask for something to be done with them.
    Letters {
        /// What.
        question: LettersQuestion,
    },
}

/// A line of the answer; the last one is neither progress nor a page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Progress(BackupProgress),
    Page(Vec<ListedLetter>),
    Backup(BackupReport),
    Size(SizeReport),
    Letters(LettersAnswer),
    Error(String),
}

/// What is told before the answer is complete.
#[derive(Debug)]
pub enum Told {
    /// How far it is.
    Progress(BackupProgress),
    /// Some of the letters that a list is of.
    Page(Vec<ListedLetter>),
}

/// What came of a request.
#[derive(Debug)]
pub enum Answered {
    /// The backup is there.
    Backup(BackupReport),
    /// The store's size.
    Size(SizeReport),
    /// What was asked about dead letters.
    Letters(LettersAnswer),
}

// ------------------------------------------------------------------------- who has the store

/// The socket of a process that has the store, and what it works on.
pub struct ControlSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
    requests: JoinSet<()>,
    storage: Arc<dyn Storage>,
    worker: WorkerHandle,
}

impl ControlSocket {
    /// Makes the socket in a data directory whose lock this process holds, and whose jobs `worker` runs. Where that fails the
    /// store can't be reached, which a line says.
    pub fn open(
        directory: &Path,
        storage: &Arc<dyn Storage>,
        worker: WorkerHandle,
        logs: &LogOutput,
    ) -> ControlSocket {
        let path = directory.join(SOCKET_NAME);
        let listener = listen(&path).inspect_err(|error| {
            logs.print_line(&format!(
                "warning: no socket at {} ({error}); nothing can be asked of this run, so a backup has to wait for its end",
                path.display()
            ));
        });
        ControlSocket {
            listener: listener.ok(),
            path,
            requests: JoinSet::new(),
            storage: Arc::clone(storage),
            worker,
        }
    }

    /// Takes requests and works on them. Never returns; it may be dropped at any moment and called again.
    pub async fn serve(&mut self) {
        loop {
            let is_full = self.requests.len() >= REQUESTS_MAX;
            tokio::select! {
                Some(_) = self.requests.join_next() => {}
                accepted = accept(self.listener.as_ref()), if !is_full => match accepted {
                    Ok(stream) => self.take(stream),
                    Err(error) => {
                        tracing::warn!(path = %self.path.display(), %error, "control socket closed");
                        self.listener = None;
                    }
                },
            }
        }
    }

    fn take(&mut self, stream: tokio::net::UnixStream) {
        let storage = Arc::clone(&self.storage);
        let path = self.path.clone();
        let worker = self.worker.clone();
        self.requests.spawn_blocking(move || {
            let served = serve_request(stream, &path, &*storage, &worker);
            if let Err(error) = served {
                tracing::debug!(error = format!("{error:#}"), "request failed");
            }
        });
    }

    /// How many requests are worked on.
    pub fn busy(&self) -> usize {
        self.requests.len()
    }

    /// Takes no more requests and waits for those that are worked on.
    pub async fn finish(&mut self) {
        self.listener = None;
        while self.requests.join_next().await.is_some() {}
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // One that stays is replaced by the next run.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn accept(listener: Option<&UnixListener>) -> std::io::Result<tokio::net::UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

fn listen(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Reads one request, does it, answers.
fn serve_request(
    stream: tokio::net::UnixStream,
    path: &Path,
    storage: &dyn Storage,
    worker: &WorkerHandle,
) -> anyhow::Result<()> {
    // Before the mode of the socket was set, others could reach it.
    let (owner, peer) = (std::fs::metadata(path)?.uid(), stream.peer_cred()?.uid());
    anyhow::ensure!(peer == owner || peer == 0, "user {peer} asked, not {owner}");
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LINE_TIMEOUT))?;
    stream.set_write_timeout(Some(LINE_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(&stream)
        .take(REQUEST_BYTES_MAX)
        .read_line(&mut line)?;
    let clock = SystemClock::start();
    let mut last_told = Duration::ZERO;
    let mut tell = |progress: BackupProgress| {
        if clock.elapsed() < last_told + PROGRESS_PERIOD {
            return ControlFlow::Continue(());
        }
        last_told = clock.elapsed();
        match send(&stream, &Answer::Progress(progress)) {
            Ok(()) => ControlFlow::Continue(()),
            // Nobody waits for the answer any more.
            Err(_) => ControlFlow::Break(()),
        }
    };
    let answer = serde_json::from_str(&line)
        .context("the request is none that this release knows")
        .and_then(|request| {
            tracing::debug!(?request, "request taken");
            Ok(match request {
                Request::Backup { to } => {
                    Answer::Backup(take_backup(storage, &to, &clock, &mut tell)?)
                }
                Request::Size => Answer::Size(measure(storage, &mut |done, total| {
                    tell(BackupProgress {
                        done,
                        total,
                        file_bytes: 0,
                    })
                })?),
                Request::Letters { question } => {
                    let hand_on = |requests: &[_]| worker.request_letters(requests);
                    Answer::Letters(question.answer(storage, Some(&hand_on), &mut |page| {
                        send(&stream, &Answer::Page(page))
                    })?)
                }
            })
        });
    let answer = answer.unwrap_or_else(|error| Answer::Error(format!("{error:#}")));
    send(&stream, &answer)
}

fn send(mut stream: &UnixStream, answer: &Answer) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    Ok(stream.write_all(&line)?)
}

// ------------------------------------------------------------------------------- who asks

/// Asks the process that has the store in `directory` and waits for its answer. Asking ends where `observe` fails.
///
/// # Errors
///
/// When it can't be reached or says that it could not do it, and what `observe` fails with.
pub fn ask(
    directory: &Path,
    request: &Request,
    observe: &mut dyn FnMut(Told) -> anyhow::Result<()>,
) -> anyhow::Result<Answered> {
    let path = directory.join(SOCKET_NAME);
    let mut stream = UnixStream::connect(&path).with_context(|| {
        format!(
            "the process that has {} can't be asked through {}",
            directory.display(),
            path.display()
        )
    })?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the process that has the store went away")?;
        match serde_json::from_str(&line).context("the answer is none that this release knows")? {
            Answer::Progress(progress) => observe(Told::Progress(progress))?,
            Answer::Page(page) => observe(Told::Page(page))?,
            Answer::Backup(report) => return Ok(Answered::Backup(report)),
            Answer::Size(report) => return Ok(Answered::Size(report)),
            Answer::Letters(answer) => return Ok(Answered::Letters(answer)),
            Answer::Error(error) => anyhow::bail!(error),
        }
    }
    anyhow::bail!(
        "the process that has the store ended before it had answered, or gave up as nobody took its answer for {} s",
        LINE_TIMEOUT.as_secs()
    )
}
