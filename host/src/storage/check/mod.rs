//! A look at everything that is stored: each row against its key and its format, and rows against each other.
//!
//! - this file: the walk over all rows, and what becomes of those that can't be read.
//! - `catalog`: the catalog, and what it says of each partition.
//! - `bulk`: one bulk row of each kind.
//! - `queues`: rows of queues against each other.
//!
//! The snapshot is one of a store that has settled, so a partition's rows stand where its head is. It changes
//! nothing. Files of sinks are looked at by whoever knows where they are.

mod bulk;
mod catalog;
mod queues;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use serde::Serialize;

use crate::storage::check::bulk::BulkCheck;
use crate::storage::check::catalog::CatalogFacts;
use crate::storage::kinds::{KindCounts, PAGE_BYTES, kind_name};
use crate::storage::scan::ScanLimit;
use crate::storage::{StorageError, StoreSnapshot, keys};
use crate::types::ids::PartitionId;

/// Findings that are kept; the others are counted.
pub const FINDINGS_MAX: usize = 1_000;

/// Places at which a walk goes on behind rows that can't be read.
const UNREADABLE_MAX: usize = 10_000;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreFinding {
    /// The partition whose rows they are, where that is known.
    #[serde(serialize_with = "as_text")]
    pub partition: Option<PartitionId>,
    /// What is wrong.
    pub finding: String,
}

fn as_text<S: serde::Serializer>(
    partition: &Option<PartitionId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match partition {
        Some(partition) => serializer.collect_str(partition),
        None => serializer.serialize_none(),
    }
}

/// What those who know the pipelines know of partitions.
pub trait PartitionFacts {
    /// Which partition rows of this key belong to, if `partition` is one of a layout in force and nothing is on its
    /// way to or from it.
    fn place_of_key(&self, partition: PartitionId, key: &[u8]) -> Option<PartitionId>;

    /// Whether the partition belongs to what ran last.
    fn is_in_force(&self, partition: PartitionId) -> bool;
}

/// What was found.
#[derive(Debug, Default)]
pub struct StoreCheck {
    /// Rows that could be read.
    pub counts: KindCounts,
    /// What is wrong, the first [`FINDINGS_MAX`].
    pub findings: Vec<StoreFinding>,
    /// How many more there are.
    pub more_findings: u64,
    /// What is worth knowing and nothing to worry about.
    pub notes: Vec<String>,
}

impl StoreCheck {
    /// Takes a finding down.
    pub fn find(&mut self, partition: Option<PartitionId>, finding: impl Into<String>) {
        if self.findings.len() >= FINDINGS_MAX {
            self.more_findings += 1;
            return;
        }
        self.findings.push(StoreFinding {
            partition,
            finding: finding.into(),
        });
    }

    /// Takes down what a row does not decode with.
    fn undecodable(&mut self, partition: Option<PartitionId>, error: &StorageError) {
        self.find(partition, error.to_string());
    }

    /// How many findings there are.
    pub fn findings_count(&self) -> u64 {
        self.findings.len() as u64 + self.more_findings
    }
}

/// Looks at all rows. `observe` is told now and then how many there were, and about how many there are.
pub fn check_store(
    snapshot: &dyn StoreSnapshot,
    facts: &dyn PartitionFacts,
    observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> StoreCheck {
    let mut check = StoreCheck::default();
    let catalog = CatalogFacts::read(snapshot.catalog(), &mut check);
    let mut bulk = BulkCheck::new(&catalog, facts);
    let total = snapshot.approximate_rows();
    let limit = ScanLimit {
        rows: usize::MAX,
        bytes: PAGE_BYTES,
    };
    let mut start = Vec::new();
    let mut unreadable = 0;
    loop {
        match snapshot.scan(&start, limit) {
            Ok(page) => {
                let Some((last, _)) = page.last() else {
                    break;
                };
                // The least key behind another one is that key and a zero byte.
                start = [last, [0].as_slice()].concat();
                for (key, value) in page {
                    check.counts.add(&key, value.len());
                    bulk.row(&mut check, &key, value);
                }
            }
            Err(error) => {
                unreadable += 1;
                check.find(
                    keys::owner(&start),
                    format!("{}: {}", unreadable_rows(&start), chain(&error)),
                );
                bulk.skip(&start);
                match next_owner(&start) {
                    Some(next) if unreadable < UNREADABLE_MAX => start = next,
                    _ => break,
                }
            }
        }
        let rows = check.counts.rows();
        if observe(rows, total.max(rows)).is_break() {
            break;
        }
    }
    bulk.end(&mut check);
    check
}

/// Which rows can't be read from `start` on.
fn unreadable_rows(start: &[u8]) -> String {
    let Some(kind) = start.first().and_then(|prefix| kind_name(*prefix)) else {
        return format!("rows behind key {} can't be read", start.escape_ascii());
    };
    match keys::parse_state_name(start) {
        Some(state) => format!("rows of state {state} can't be read"),
        None => format!("rows of kind \"{kind}\" can't be read"),
    }
}

/// Where the rows of the next partition begin, or those of the next kind.
fn next_owner(start: &[u8]) -> Option<Vec<u8>> {
    let prefix = *start.first()?;
    let next = keys::owner(start).and_then(|owner| owner.0.checked_add(1));
    match next {
        Some(partition) => Some(keys::key(prefix, [partition])),
        None => Some(vec![prefix.checked_add(1)?]),
    }
}

fn chain(error: &StorageError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
