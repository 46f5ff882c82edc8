//! The partitions of sources as the store remembers them: a row for each name that was ever in a
//! source's list. What leaves a list keeps its row, so that it goes on where it was when it comes
//! back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::controller::registry::Intent;
use crate::controller::registry::rows::{decode, encode};
use crate::storage::leases::{Counter, allocate};
use crate::storage::{Storage, StorageError, keys};
use crate::types::ids::PartitionId;

/// What follows the pipeline's name in the key of a row, before the source, a slash and the
/// partition's name.
const SOURCE_PARTITION: &str = "source-partition/";

/// A source and the name of one of its partitions.
type Name = (String, String);

/// The partitions of a pipeline's sources as they will be registered.
#[derive(Debug)]
pub(super) struct SourcePartitions {
    pipeline: String,
    known: BTreeMap<Name, Row>,
    now: BTreeMap<Name, Row>,
    /// The names in each source's list.
    lists: BTreeMap<String, Vec<String>>,
    /// Their numbers.
    in_force: BTreeMap<String, Vec<PartitionId>>,
    /// The numbers of those that left the list of a source, if any did, as one layout.
    retiring: BTreeMap<String, Vec<Vec<PartitionId>>>,
}

/// The row of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    partition: PartitionId,
    /// Whether the list of the last run had it.
    is_listed: bool,
}

/// A partition that the last run had and that the list now has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlistedPartition {
    /// Its name.
    pub name: String,
    /// Its number.
    pub partition: PartitionId,
}

impl SourcePartitions {
    /// Compares the lists with those of the last run and gives numbers to what is new in them.
    pub(super) fn draft(
        storage: &dyn Storage,
        pipeline: &str,
        intent: &Intent,
    ) -> Result<SourcePartitions, StorageError> {
        let known = read_rows(storage, pipeline)?;
        let mut now = known.clone();
        for ((source, _), row) in &mut now {
            // A source that leaves the pipeline keeps its list.
            row.is_listed &= !intent.sources.contains_key(source);
        }
        let lists = intent.sources.iter();
        let lists = lists.map(|(source, intent)| (source.clone(), intent.partitions.clone()));
        let lists: BTreeMap<String, Vec<String>> = lists.collect();
        let listed = (lists.iter())
            .flat_map(|(source, list)| list.iter().map(move |name| (source.clone(), name.clone())));
        let (old, new): (Vec<Name>, Vec<Name>) = listed.partition(|name| known.contains_key(name));
        for name in &old {
            let row = now.get_mut(name).expect("those that are known were copied");
            row.is_listed = true;
        }
        if !new.is_empty() {
            let first = allocate(storage, Counter::Partitions, new.len() as u64)?;
            for (number, name) in (first..).zip(new) {
                let row = Row {
                    partition: PartitionId(number),
                    is_listed: true,
                };
                now.insert(name, row);
            }
        }
        let mut partitions = SourcePartitions {
            pipeline: pipeline.to_owned(),
            known,
            now,
            lists,
            in_force: BTreeMap::new(),
            retiring: BTreeMap::new(),
        };
        partitions.put_in_force();
        Ok(partitions)
    }

    /// Whether a row is to be written.
    pub(super) fn have_changed(&self) -> bool {
        self.now != self.known
    }

    /// The partitions of a source, in the order of its list.
    ///
    /// # Panics
    ///
    /// When the intent did not name it.
    pub(super) fn in_force(&self, source: &str) -> &[PartitionId] {
        &self.in_force[source]
    }

    /// The partitions that left the list of a source, as one layout.
    pub(super) fn retiring(&self, source: &str) -> &[Vec<PartitionId>] {
        self.retiring.get(source).map_or(&[], Vec::as_slice)
    }

    /// Every partition that a source of the pipeline ever had.
    pub(super) fn ever(&self) -> impl Iterator<Item = PartitionId> {
        self.known.values().map(|row| row.partition)
    }

    /// The partitions that the last run had and that the source's list has no more.
    pub(super) fn unlisted(&self, source: &str) -> Vec<UnlistedPartition> {
        let known = self.known.iter().filter(|((of, _), row)| {
            let is_of_source = of == source && self.lists.contains_key(source);
            is_of_source && row.is_listed
        });
        known
            .filter(|(name, _)| self.now.get(*name).is_some_and(|row| !row.is_listed))
            .map(|((_, name), row)| UnlistedPartition {
                name: name.clone(),
                partition: row.partition,
            })
            .collect()
    }

    /// The names in a source's list that have no row yet.
    pub(super) fn newly_listed(&self, source: &str) -> Vec<String> {
        let list = self.lists.get(source).into_iter().flatten();
        let is_new = |name: &&String| {
            let name = (source.to_owned(), (*name).clone());
            !self.known.contains_key(&name)
        };
        list.filter(is_new).cloned().collect()
    }

    /// Makes the partition `was` go on under the name `now`, which is new in the list. The number
    /// that the name had got is skipped.
    ///
    /// # Panics
    ///
    /// When one of them is not a partition of the source.
    pub(super) fn rename(&mut self, source: &str, was: &str, now: &str) {
        let key = |name: &str| (source.to_owned(), name.to_owned());
        let left = self.now.remove(&key(was)).expect("it was in the list");
        let came = self.now.get_mut(&key(now)).expect("it is in the list");
        came.partition = left.partition;
        self.put_in_force();
    }

    /// The rows to write.
    pub(super) fn writes(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let changed = (self.now.iter()).filter(|(name, row)| self.known.get(*name) != Some(*row));
        let changed = changed.map(|(name, row)| (self.key(name), Some(encode(row))));
        let gone = self
            .known
            .keys()
            .filter(|name| !self.now.contains_key(*name));
        let gone = gone.map(|name| (self.key(name), None));
        changed.chain(gone).collect()
    }

    fn put_in_force(&mut self) {
        let number = |source: &str, name: &String| {
            let name = (source.to_owned(), name.clone());
            self.now[&name].partition
        };
        let lists = self.lists.iter();
        self.in_force = lists
            .map(|(source, list)| {
                let numbers = list.iter().map(|name| number(source, name)).collect();
                (source.clone(), numbers)
            })
            .collect();
        self.retiring.clear();
        for ((source, _), row) in self.now.iter().filter(|(_, row)| !row.is_listed) {
            let layouts = self
                .retiring
                .entry(source.clone())
                .or_insert(vec![Vec::new()]);
            layouts[0].push(row.partition);
        }
    }

    fn key(&self, (source, name): &Name) -> Vec<u8> {
        let rest = format!("{SOURCE_PARTITION}{source}/{name}");
        keys::pipeline(&self.pipeline, rest.as_bytes())
    }
}

fn read_rows(storage: &dyn Storage, pipeline: &str) -> Result<BTreeMap<Name, Row>, StorageError> {
    let prefix = keys::pipeline(pipeline, SOURCE_PARTITION.as_bytes());
    let mut rows = BTreeMap::new();
    for (key, value) in storage.scan_catalog(&prefix)? {
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        // No source has a slash in its name.
        let (source, partition) = name.split_once('/').unwrap_or((&name, ""));
        let name = (source.to_owned(), partition.to_owned());
        rows.insert(name, decode(pipeline, &value)?);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::registry::{Registration, SourceIntent};
    use crate::storage::memory::MemoryStorage;

    fn intent(files: &[&str]) -> Intent {
        let source = SourceIntent {
            kind: "files as lines".to_owned(),
            partitions: files.iter().map(|name| (*name).to_owned()).collect(),
        };
        Intent {
            sources: BTreeMap::from([("days".to_owned(), source)]),
            streams: vec!["days".to_owned()],
            ..Intent::default()
        }
    }

    fn draft(storage: &MemoryStorage, files: &[&str]) -> Registration {
        Registration::draft(storage, "a", &intent(files)).unwrap()
    }

    fn register(storage: &MemoryStorage, files: &[&str]) -> Vec<PartitionId> {
        let registration = draft(storage, files);
        assert!(
            registration.changes.is_empty(),
            "lists are judged elsewhere"
        );
        registration.commit(storage).unwrap();
        registration.source("days").to_vec()
    }

    #[test]
    fn a_partition_is_known_by_its_name_wherever_it_stands_in_the_list() {
        let storage = MemoryStorage::default();
        let [a, b] = register(&storage, &["a", "b"])[..] else {
            panic!("two files are two partitions");
        };
        let now = register(&storage, &["c", "b", "a"]);
        assert_eq!(now[1..], [b, a]);
        assert!(now[0] != a && now[0] != b);
        assert_eq!(register(&storage, &["c", "b", "a"]), now);
        let deployment = draft(&storage, &["c", "b", "a"]).deployment();
        assert_eq!(deployment, 2, "the same list is no other deployment");
    }

    #[test]
    fn what_leaves_the_list_is_known_when_it_comes_back() {
        let storage = MemoryStorage::default();
        let before = register(&storage, &["a", "b"]);
        let registration = draft(&storage, &["a"]);
        let left = UnlistedPartition {
            name: "b".to_owned(),
            partition: before[1],
        };
        assert_eq!(registration.unlisted("days"), [left]);
        assert_eq!(registration.retiring_of_source("days"), [vec![before[1]]]);
        registration.commit(&storage).unwrap();
        // It has left once.
        assert!(draft(&storage, &["a"]).unlisted("days").is_empty());
        assert!(
            draft(&storage, &["a"])
                .partitions_ever()
                .contains(&before[1])
        );
        assert!(draft(&storage, &["a", "b"]).newly_listed("days").is_empty());
        assert_eq!(draft(&storage, &["a"]).retiring_of_source("days").len(), 1);
        assert_eq!(register(&storage, &["a", "b"]), before);
        assert!(
            draft(&storage, &["a", "b"])
                .retiring_of_source("days")
                .is_empty()
        );
    }

    #[test]
    fn a_renamed_partition_keeps_its_number_and_its_old_name_is_free() {
        let storage = MemoryStorage::default();
        let before = register(&storage, &["a"]);
        let mut registration = draft(&storage, &["archive/a"]);
        assert_eq!(registration.newly_listed("days"), ["archive/a"]);
        registration.rename_source_partition("days", "a", "archive/a");
        assert_eq!(registration.source("days"), before);
        assert!(registration.retiring_of_source("days").is_empty());
        registration.commit(&storage).unwrap();
        assert_eq!(register(&storage, &["archive/a"]), before);
        // A new file of the old name.
        let both = register(&storage, &["archive/a", "a"]);
        assert_eq!(both[0], before[0]);
        assert_ne!(both[1], before[0]);
    }

    #[test]
    fn a_source_that_leaves_the_pipeline_keeps_its_list() {
        let storage = MemoryStorage::default();
        let before = register(&storage, &["a", "b"]);
        let without = Intent {
            streams: vec!["days".to_owned()],
            ..Intent::default()
        };
        let registration = Registration::draft(&storage, "a", &without).unwrap();
        registration.commit(&storage).unwrap();
        let back = draft(&storage, &["a"]);
        let left: Vec<PartitionId> = (back.unlisted("days").iter())
            .map(|left| left.partition)
            .collect();
        assert_eq!(left, before[1..]);
    }
}
