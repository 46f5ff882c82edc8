//! The plain program: one thread, serde_json, a hash map, buffered output, one sync at the end. It is what
//! somebody would write who needs the answer once and does not mind starting over after a crash.
//!
//! Usage: `keyed-sum-plain w1|w3 INPUT OUTPUT`. `w3` takes user and amount out of each line; `w1` keeps
//! count and sum for each user and writes them for each line.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

const BUFFER_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
struct Event<'a> {
    user: &'a str,
    amount: i64,
}

#[derive(Serialize)]
struct Amount<'a> {
    user: &'a str,
    amount: i64,
}

#[derive(Serialize)]
struct Row<'a> {
    user: &'a str,
    count: u64,
    sum: i64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workload, input, output] = &arguments[..] else {
        bail!("usage: keyed-sum-plain w1|w3 INPUT OUTPUT");
    };
    let opened = File::open(input).with_context(|| format!("failed to open {input}"))?;
    let events = BufReader::with_capacity(BUFFER_BYTES, opened);
    let created = File::create(output).with_context(|| format!("failed to create {output}"))?;
    let mut rows = BufWriter::with_capacity(BUFFER_BYTES, created);
    match workload.as_str() {
        "w1" => keyed_sum(events, &mut rows)?,
        "w3" => amounts(events, &mut rows)?,
        other => bail!("there is no workload {other}: use w1 or w3"),
    }
    let file = rows
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()
        .with_context(|| format!("failed to sync {output}"))
}

fn keyed_sum(events: impl BufRead, rows: &mut impl Write) -> Result<()> {
    let mut totals: HashMap<String, (u64, i64)> = HashMap::new();
    for_each_event(events, |Event { user, amount }| {
        let (count, sum) = match totals.get_mut(user) {
            Some(totals) => totals,
            None => totals.entry(user.to_owned()).or_default(),
        };
        *count += 1;
        *sum += amount;
        let (count, sum) = (*count, *sum);
        serde_json::to_writer(&mut *rows, &Row { user, count, sum })?;
        Ok(rows.write_all(b"\n")?)
    })
}

fn amounts(events: impl BufRead, rows: &mut impl Write) -> Result<()> {
    for_each_event(events, |Event { user, amount }| {
        serde_json::to_writer(&mut *rows, &Amount { user, amount })?;
        Ok(rows.write_all(b"\n")?)
    })
}

fn for_each_event(
    mut events: impl BufRead,
    mut take: impl FnMut(Event<'_>) -> Result<()>,
) -> Result<()> {
    let mut line = Vec::new();
    let mut number = 0_u64;
    while events.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        let event = serde_json::from_slice(&line);
        take(event.with_context(|| format!("line {number} is no event"))?)?;
        line.clear();
    }
    Ok(())
}
