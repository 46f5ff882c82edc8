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

/// Which answers a run is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The week's, byte for byte.
    Week,
    /// The year's, by digest: its files are too large to keep.
    Year,
}

impl Answers {
    /// Compares what a run wrote with the answers in `expected` and returns the names of the files compared.
    ///
    /// # Errors
    ///
    /// If a file is missing or differs.
    pub(crate) fn verify(self, output: &Path, expected: &Path) -> Result<Vec<String>> {
        let compared = match self {
            Answers::Week => verify_bytes(output, expected)?,
            Answers::Year => verify_digests(output, &expected.join("full.json"))?,
        };
        if compared.is_empty() {
            bail!("{} holds no answers to compare with", expected.display());
        }
        Ok(compared)
    }
}

fn verify_bytes(output: &Path, expected: &Path) -> Result<Vec<String>> {
    let folder = expected
        .read_dir()
        .with_context(|| format!("failed to read {}", expected.display()))?;
    let mut compared = Vec::new();
    for entry in folder {
        let entry = entry.with_context(|| format!("failed to read {}", expected.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".jsonl") {
            same(&bytes(&output.join(&name))?, &bytes(&entry.path())?)
                .with_context(|| format!("{name} is not the expected one"))?;
            compared.push(name);
        }
    }
    compared.sort();
    Ok(compared)
}

/// `digests` is a JSON object whose `files` give each file's `rows` and `sha256`.
fn verify_digests(output: &Path, digests: &Path) -> Result<Vec<String>> {
    let lacking = || format!("{} lacks a field", digests.display());
    let answers: Value = serde_json::from_str(&text(digests)?)
        .with_context(|| format!("failed to understand {}", digests.display()))?;
    let mut compared = Vec::new();
    for (name, answer) in answers["files"].as_object().with_context(lacking)? {
        let rows = answer["rows"].as_u64().with_context(lacking)?;
        let digest = answer["sha256"].as_str().with_context(lacking)?;
        let found = bytes(&output.join(name))?;
        let found_rows = found.iter().filter(|byte| **byte == b'\n').count();
        let found_digest = sha256(&found);
        if found_digest != digest {
            bail!(
                "{name} is not the expected one: {found_rows} rows with the SHA-256 {found_digest}, \
                 expected {rows} rows with {digest}"
            );
        }
        compared.push(name.clone());
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
        let number = |name: &str| {
            row[name]
                .as_f64()
                .with_context(|| format!("no number `{name}`"))
        };
        Ok(Delays {
            key: row["key"].as_str().context("no text `key`")?.to_owned(),
            departures: row["count"].as_u64().context("no number `count`")?,
            mean_minutes: number("mean_minutes")?,
            worst_minutes: number("worst_minutes")?,
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
            r#"{"key":"UA@EWR","count":1,"mean_minutes":2.0,"worst_minutes":2}
{"key":"AA@JFK","count":1,"mean_minutes":9.0,"worst_minutes":9}
{"key":"UA@EWR","count":2,"mean_minutes":3.5,"worst_minutes":5}
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
        let error = last_per_key(r#"{"key":"UA@EWR"}"#).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with("line 1:") && error.ends_with("no number `count`"),
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
    fn an_output_with_another_digest_is_refused_with_both() {
        let folder = std::env::temp_dir().join(format!("xtask-digests-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let answers = format!(r#"{{"files": {{"a.jsonl": {{"rows": 0, "sha256": "{abc}"}}}}}}"#);
        fs::write(folder.join("full.json"), answers).unwrap();

        fs::write(folder.join("a.jsonl"), "abc").unwrap();
        let verified = Answers::Year.verify(&folder, &folder);
        fs::write(folder.join("a.jsonl"), "abd\n").unwrap();
        let error = Answers::Year
            .verify(&folder, &folder)
            .unwrap_err()
            .to_string();
        fs::remove_dir_all(&folder).unwrap();

        assert_eq!(verified.unwrap(), ["a.jsonl"]);
        assert!(
            error.contains("1 rows") && error.ends_with(&format!("expected 0 rows with {abc}")),
            "{error}"
        );
    }

    #[test]
    fn digests_are_those_of_sha256sum() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
