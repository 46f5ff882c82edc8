//! What bad messages cost: a pipeline over many messages of which none, one, or up to a tenth fail, each kind of failure by
//! itself, with the failed ones kept. What the good ones lead to and the dead letters are checked each time.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tidelock::cli::open_embedded_storage;
use tidelock::storage::letter_rows::read_letters;
use tidelock::storage::scan::ScanLimit;
use tidelock::types::dead_letter::LetterItem;
use tidelock::types::ids::PartitionId;

use crate::IsolationArguments;

/// Partitions of a fresh store among which letters are looked for.
const PARTITIONS: u64 = 8;

/// Runs it for each kind and share, with a clean run beside each kind.
///
/// # Errors
///
/// If a run fails, or anything is missing or wrong in what it leaves.
pub(crate) fn run(arguments: &IsolationArguments) -> Result<()> {
    println!(
        "{} messages, batches of up to 1,000; time against the clean run beside it",
        arguments.records
    );
    print!("{:<8}{:>12}", "kind", "clean, s");
    for bad in &arguments.bad {
        print!("{:>14}", format!("{bad} bad"));
    }
    println!();
    for kind in &arguments.kinds {
        let clean = measure(arguments, kind, 0)?;
        print!("{kind:<8}{:>12.2}", clean.as_secs_f64());
        for bad in &arguments.bad {
            let time = measure(arguments, kind, *bad)?;
            print!(
                "{:>14}",
                format!("{:.2}", time.as_secs_f64() / clean.as_secs_f64())
            );
            let _ = std::io::stdout().flush();
        }
        println!();
    }
    println!(
        "every good message was counted once and in order, every bad one is a dead letter with its bytes"
    );
    Ok(())
}

/// One run in a folder of its own.
fn measure(arguments: &IsolationArguments, kind: &str, bad: u64) -> Result<Duration> {
    let folder = arguments.engine.folder.join("isolation");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("failed to remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    let is_bad = |number: u64| bad > 0 && number.is_multiple_of(arguments.records / bad);
    let input = folder.join("lines.txt");
    let mut lines = BufWriter::new(fs::File::create(&input)?);
    for number in 1..=arguments.records {
        match is_bad(number) {
            true => writeln!(lines, "{kind} {number}")?,
            false => writeln!(lines, "line {number}")?,
        }
    }
    lines.flush()?;
    let component = arguments
        .engine
        .components
        .join("examples/behaves_as_transform.wasm");
    fs::write(
        folder.join("tidelock.toml"),
        format!(
            "name = \"isolation\"\n[components]\nobeys = {component:?}\n\
             [sources.in]\ntype = \"file\"\npath = \"lines.txt\"\nformat = \"lines\"\n\
             [computations.obey]\ncomponent = \"obeys\"\nkind = \"transform\"\ninputs = [\"in\"]\noutputs = [\"out\"]\n\
             parameters = {{ behaviour = \"obeys-payloads\" }}\non_failure = \"dead_letter\"\n\
             limits = {{ fuel = 20_000_000, memory = \"8MiB\", output = \"1MiB\" }}\n\
             [sinks.out]\ntype = \"file\"\npath = \"out.txt\"\ninputs = [\"out\"]\n"
        ),
    )?;
    let begun = now();
    let output = Command::new(&arguments.engine.tidelock)
        .args(["run", "tidelock.toml", "-o", "json"])
        .current_dir(&folder)
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("failed to run {}", arguments.engine.tidelock.display()))?;
    let time = begun.elapsed();
    ensure!(
        output.status.success(),
        "the run with {bad} of {kind} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    ensure!(
        document["dead_letters"] == bad,
        "the run with {bad} of {kind} tells of other dead letters: {document}"
    );
    check_good(&folder, arguments.records, is_bad)?;
    check_letters(&folder, kind, arguments.records, is_bad)?;
    Ok(time)
}

fn check_good(folder: &Path, records: u64, is_bad: impl Fn(u64) -> bool) -> Result<()> {
    let out = fs::read_to_string(folder.join("out.txt"))?;
    let mut found = out.lines();
    let good = (1..=records).filter(|number| !is_bad(*number));
    for (count, number) in (1..).zip(good) {
        let expected = format!("{count} line {number}");
        match found.next() {
            Some(line) if line == expected => {}
            line => bail!("{line:?} was found for {expected:?}"),
        }
    }
    ensure!(
        found.next().is_none(),
        "there are more results than good messages"
    );
    Ok(())
}

fn check_letters(
    folder: &Path,
    kind: &str,
    records: u64,
    is_bad: impl Fn(u64) -> bool,
) -> Result<()> {
    let storage = open_embedded_storage(&folder.join(".tidelock"))?;
    let mut expected = (1..=records).filter(|number| is_bad(*number));
    for partition in (1..=PARTITIONS).map(PartitionId) {
        let mut behind = None;
        loop {
            let page = read_letters(&*storage, partition, behind, ScanLimit::rows(1_000))?;
            let Some((last, _)) = page.last() else { break };
            behind = Some(*last);
            for (id, letter) in page {
                let LetterItem::Message { payload, .. } = letter?.item else {
                    bail!("dead letter {id} holds no message");
                };
                let number = expected
                    .next()
                    .context("there are more letters than bad messages")?;
                let expected = format!("{kind} {number}");
                ensure!(
                    payload == expected.as_bytes(),
                    "dead letter {id} is not {expected:?}"
                );
            }
        }
    }
    ensure!(expected.next().is_none(), "dead letters are missing");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}
