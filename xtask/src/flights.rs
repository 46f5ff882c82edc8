//! What the flights example wrote: read for people, and compared with the answers kept beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The results of one run.
pub(crate) struct Results {
    /// By carrier and airport, most departures first.
    delays: Vec<Delays>,
    alerts: usize,
    cancelled: usize,
    rejected: usize,
}

/// The delays of one carrier at one airport: the last row that the pipeline wrote for that key.
#[derive(Debug, PartialEq)]
struct Delays {
    key: String,
    departures: u64,
    mean_minutes: f64,
    worst_minutes: f64,
}

impl Results {
    /// Reads the files that the pipeline's sinks wrote into `folder`.
    ///
    /// # Errors
    ///
    /// If one is missing or a row of the statistics is not what the example writes.
    pub(crate) fn read(folder: &Path) -> Result<Results> {
        let lines = |name: &str| -> Result<usize> { Ok(text(&folder.join(name))?.lines().count()) };
        let statistics = folder.join("statistics.jsonl");
        Ok(Results {
            delays: last_per_key(&text(&statistics)?)
                .with_context(|| format!("failed to understand {}", statistics.display()))?,
            alerts: lines("alerts.jsonl")?,
            cancelled: lines("cancelled.jsonl")?,
            rejected: lines("rejected.jsonl")?,
        })
    }

    /// Records that were read: each is a departure, a cancelled flight or a rejected line.
    pub(crate) fn records(&self) -> usize {
        let departures: u64 = self.delays.iter().map(|delays| delays.departures).sum();
        departures as usize + self.cancelled + self.rejected
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<15}{:>12}{:>14}{:>15}",
            "carrier@origin", "departures", "mean delay", "worst delay"
        )?;
        for delays in &self.delays {
            writeln!(
                f,
                "{:<15}{:>12}{:>10.1} min{:>11.0} min",
                delays.key, delays.departures, delays.mean_minutes, delays.worst_minutes
            )?;
        }
        writeln!(
            f,
            "\n{} alerts, {} cancelled flights, {} rejected lines",
            self.alerts, self.cancelled, self.rejected
        )
    }
}

/// Compares what a run wrote with the expected files and returns the names of those compared: for the
/// week each file byte for byte, for the year each file's SHA-256 (the files themselves are large).
///
/// # Errors
///
/// If a file is missing or differs; the message then names the first line that does, where it can.
pub(crate) fn verify(output: &Path, expected: &Path, name: &str) -> Result<Vec<String>> {
    let mut compared = Vec::new();
    if name == "year" {
        for line in text(&expected.join("year.sha256"))?.lines() {
            let (digest, file) = line
                .split_once("  ")
                .with_context(|| format!("`{line}` is not a digest, two spaces and a name"))?;
            let found = sha256(&bytes(&output.join(file))?);
            if found != digest {
                bail!(
                    "{file} differs from the expected one: its SHA-256 is {found}, expected {digest}"
                );
            }
            compared.push(file.to_owned());
        }
    } else {
        let folder = expected
            .read_dir()
            .with_context(|| format!("failed to read {}", expected.display()))?;
        for entry in folder {
            let entry = entry.with_context(|| format!("failed to read {}", expected.display()))?;
            let file = entry.file_name().to_string_lossy().into_owned();
            if !file.ends_with(".jsonl") {
                continue;
            }
            same(&bytes(&output.join(&file))?, &bytes(&entry.path())?)
                .with_context(|| format!("{file} differs from the expected one"))?;
            compared.push(file);
        }
        compared.sort();
    }
    if compared.is_empty() {
        bail!("{} holds no answers to compare with", expected.display());
    }
    Ok(compared)
}

/// The rows of the statistics that no later one replaces.
fn last_per_key(statistics: &str) -> Result<Vec<Delays>> {
    let mut last = BTreeMap::new();
    for (index, line) in statistics.lines().enumerate() {
        let delays =
            Delays::from_json(line).with_context(|| format!("line {}: `{line}`", index + 1))?;
        last.insert(delays.key.clone(), delays);
    }
    let mut delays: Vec<_> = last.into_values().collect();
    delays.sort_by_key(|delays| std::cmp::Reverse(delays.departures));
    Ok(delays)
}

impl Delays {
    fn from_json(line: &str) -> Result<Delays> {
        let row: Value = serde_json::from_str(line).context("not a JSON value")?;
        let text = |name: &str| {
            row[name]
                .as_str()
                .with_context(|| format!("no text `{name}`"))
        };
        let number = |name: &str| {
            row[name]
                .as_f64()
                .with_context(|| format!("no number `{name}`"))
        };
        Ok(Delays {
            key: format!("{}@{}", text("carrier")?, text("origin")?),
            departures: row["departures"]
                .as_u64()
                .context("no count `departures`")?,
            mean_minutes: number("mean_delay")?,
            worst_minutes: number("worst_delay")?,
        })
    }
}

/// Whether two outputs are the same bytes.
fn same(found: &[u8], expected: &[u8]) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let mut found = found.split_inclusive(|byte| *byte == b'\n');
    let mut expected = expected.split_inclusive(|byte| *byte == b'\n');
    let mut number = 0;
    loop {
        number += 1;
        let (found, expected) = (found.next(), expected.next());
        if found != expected {
            let shown = |line: Option<&[u8]>| match line {
                Some(line) => format!("{:?}", String::from_utf8_lossy(line)),
                None => "the end of the file".to_owned(),
            };
            bail!(
                "line {number} is {}, expected {}",
                shown(found),
                shown(expected)
            );
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("failed to read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_each_key_counts_and_most_departures_come_first() {
        let rows = last_per_key(
            r#"{"carrier":"UA","origin":"EWR","departures":1,"mean_delay":2.0,"worst_delay":2}
{"carrier":"AA","origin":"JFK","departures":1,"mean_delay":9.0,"worst_delay":9}
{"carrier":"UA","origin":"EWR","departures":2,"mean_delay":3.5,"worst_delay":5}
"#,
        )
        .unwrap();
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.key.as_str(), row.departures, row.mean_minutes))
            .collect();
        assert_eq!(rows, [("UA@EWR", 2, 3.5), ("AA@JFK", 1, 9.0)]);
    }

    #[test]
    fn a_row_that_lacks_a_field_is_named_by_its_line() {
        let error = last_per_key(r#"{"carrier":"UA","origin":"EWR"}"#).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with("line 1:") && error.ends_with("no count `departures`"),
            "{error}"
        );
    }

    #[test]
    fn the_first_line_that_differs_is_shown() {
        assert!(same(b"a\nb\n", b"a\nb\n").is_ok());
        let check = |found: &[u8], expected: &[u8], message: &str| {
            assert_eq!(same(found, expected).unwrap_err().to_string(), message);
        };
        check(b"a\nb\n", b"a\nc\n", r#"line 2 is "b\n", expected "c\n""#);
        check(
            b"a\n",
            b"a\nb\n",
            r#"line 2 is the end of the file, expected "b\n""#,
        );
        check(b"a\nb", b"a\nb\n", r#"line 2 is "b", expected "b\n""#);
    }

    #[test]
    fn digests_are_those_of_sha256sum() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
