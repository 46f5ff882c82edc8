//! The partitions of sources as the store remembers them: a row for each name that was ever in a
//! source's list. What leaves a list keeps its row, so that it goes on where it was when it comes
//! back, under that name or another one, but for the oldest of [`UNLISTED_PARTITIONS_MAX`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controller::registry::Intent;
use crate::controller::registry::rows::{decode, encode};
use crate::storage::leases::{Counter, allocate};
use crate::storage::{Storage, StorageError, keys, rows};
use crate::types::ids::PartitionId;

/// What follows the pipeline's name in the key of a row, before the source, a slash and the
/// partition's name.
pub(super) const SOURCE_PARTITION: &str = "source-partition/";

/// How many partitions that are not in its list any more are remembered of a source: four times what a
/// list can have. The ones that left first are forgotten first, none before its messages are taken.
pub(super) const UNLISTED_PARTITIONS_MAX: usize = 1_024;

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
    /// The numbers of those that are not remembered any more from now on.
    forgotten: Vec<PartitionId>,
}

/// The row of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    partition: PartitionId,
    /// The deployment that did not list it any more, if the last one did not.
    unlisted_in: Option<u64>,
}

/// A partition that an earlier run had and that the list now has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlistedPartition {
    /// Its name.
    pub name: String,
    /// Its number.
    pub partition: PartitionId,
    /// Whether the last run had it.
    pub has_just_left: bool,
}

impl Row {
    fn is_listed(&self) -> bool {
        self.unlisted_in.is_none()
    }
}

impl SourcePartitions {
    /// Compares the lists with those of the last run and gives numbers to what is new in them.
    /// `deployment` is the number that this run has if anything changed.
    pub(super) fn draft(
        storage: &dyn Storage,
        pipeline: &str,
        intent: &Intent,
        deployment: u64,
    ) -> Result<SourcePartitions, StorageError> {
        let known = read_rows(storage, pipeline)?;
        let mut now = known.clone();
        let lists = intent.sources.iter();
        let lists = lists.map(|(source, intent)| (source.clone(), intent.partitions.clone()));
        let lists: BTreeMap<String, Vec<String>> = lists.collect();
        let listed = (lists.iter())
            .flat_map(|(source, list)| list.iter().map(move |name| (source.clone(), name.clone())));
        let listed: Vec<Name> = listed.collect();
        let names: BTreeSet<&Name> = listed.iter().collect();
        for (name, row) in &mut now {
            if names.contains(name) {
                row.unlisted_in = None;
            } else if intent.sources.contains_key(&name.0) {
                // A source that leaves the pipeline keeps its list.
                row.unlisted_in.get_or_insert(deployment);
            }
        }
        let new = listed.iter().filter(|name| !known.contains_key(*name));
        let new: Vec<Name> = new.cloned().collect();
        if !new.is_empty() {
            let first = allocate(storage, Counter::Partitions, new.len() as u64)?;
            for (number, name) in (first..).zip(new) {
                let row = Row {
                    partition: PartitionId(number),
                    unlisted_in: None,
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
            forgotten: Vec::new(),
        };
        for source in intent.sources.keys() {
            partitions.forget_oldest(storage, source)?;
        }
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

    /// The partitions of all sources.
    pub(super) fn all_in_force(&self) -> impl Iterator<Item = PartitionId> {
        self.in_force.values().flatten().copied()
    }

    /// The partitions that left the list of a source, as one layout.
    pub(super) fn retiring(&self, source: &str) -> &[Vec<PartitionId>] {
        self.retiring.get(source).map_or(&[], Vec::as_slice)
    }

    /// The partitions that are not remembered any more from now on.
    pub(super) fn forgotten(&self) -> &[PartitionId] {
        &self.forgotten
    }

    /// Every partition that a source of the pipeline ever had.
    pub(super) fn ever(&self) -> impl Iterator<Item = PartitionId> {
        self.known.values().map(|row| row.partition)
    }

    /// The partitions that the source's list has no more, of all that are remembered.
    pub(super) fn unlisted(&self, source: &str) -> Vec<UnlistedPartition> {
        let of_source = self.now.iter().filter(|((of, _), _)| of == source);
        let unlisted = of_source.filter(|(_, row)| !row.is_listed());
        unlisted
            .map(|(name, row)| UnlistedPartition {
                name: name.1.clone(),
                partition: row.partition,
                has_just_left: self.known.get(name).is_some_and(Row::is_listed),
            })
            .collect()
    }

    /// Forgets what left a source's list first, beyond [`UNLISTED_PARTITIONS_MAX`].
    fn forget_oldest(&mut self, storage: &dyn Storage, source: &str) -> Result<(), StorageError> {
        let of_source = self.now.iter().filter(|((of, _), _)| of == source);
        let mut unlisted: Vec<(u64, PartitionId, Name)> = of_source
            .filter_map(|(name, row)| Some((row.unlisted_in?, row.partition, name.clone())))
            .collect();
        unlisted.sort_unstable();
        let excess = unlisted.len().saturating_sub(UNLISTED_PARTITIONS_MAX);
        for (_, partition, name) in &unlisted[..excess] {
            if rows::lanes_kept(storage, *partition)?.is_empty() {
                self.now.remove(name);
                self.forgotten.push(*partition);
            }
        }
        Ok(())
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
        for ((source, _), row) in self.now.iter().filter(|(_, row)| !row.is_listed()) {
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

/// The partitions that a source of a pipeline has, by name.
pub(super) fn listed_partitions(
    storage: &dyn Storage,
    pipeline: &str,
    source: &str,
) -> Result<BTreeMap<String, PartitionId>, StorageError> {
    let known = known_partitions(storage, pipeline)?.into_iter();
    let listed = known.filter(|(of, _, _, is_listed)| of == source && *is_listed);
    Ok(listed
        .map(|(_, name, partition, _)| (name, partition))
        .collect())
}

/// The partitions that are remembered of a pipeline's sources: source, partition's name, its number, and whether
/// the last run's list had it.
pub(super) fn known_partitions(
    storage: &dyn Storage,
    pipeline: &str,
) -> Result<Vec<(String, String, PartitionId, bool)>, StorageError> {
    let rows = read_rows(storage, pipeline)?.into_iter();
    Ok(rows
        .map(|((source, name), row)| (source, name, row.partition, row.is_listed()))
        .collect())
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
pub(super) mod tests {
    use super::*;
    use crate::controller::registry::{Registration, SourceIntent};
    use crate::storage::contract::chunk;
    use crate::storage::memory::MemoryStorage;
    use crate::storage::{CommitOutcome, leases};
    use crate::types::epoch::EpochCommit;
    use crate::types::ids::{EpochId, LaneId, StreamId};

    pub(in crate::controller) fn row() -> impl Serialize + std::fmt::Debug {
        Row {
            partition: PartitionId(300),
            unlisted_in: Some(4),
        }
    }

    pub(in crate::controller) fn decode_shown(
        pipeline: &str,
        value: &[u8],
    ) -> Result<String, StorageError> {
        decode::<Row>(pipeline, value).map(|row| format!("{row:?}"))
    }

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
            has_just_left: true,
        };
        assert_eq!(registration.unlisted("days"), std::slice::from_ref(&left));
        assert_eq!(registration.retiring_of_source("days"), [vec![before[1]]]);
        registration.commit(&storage).unwrap();
        // It has left once.
        let left = UnlistedPartition {
            has_just_left: false,
            ..left
        };
        assert_eq!(draft(&storage, &["a"]).unlisted("days"), [left]);
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
    fn what_left_first_is_forgotten_first_unless_its_messages_wait() {
        let storage = MemoryStorage::default();
        let name = |day: usize| format!("day {day:04}");
        let waiting = register(&storage, &[&name(0)])[0];
        let lane = LaneId {
            producer: waiting,
            stream: StreamId(1),
            reader: PartitionId(1_000_000),
        };
        put_chunk(&storage, lane);
        let days = UNLISTED_PARTITIONS_MAX + 3;
        for day in (1..=days).step_by(256) {
            let list: Vec<String> = (day..(day + 256).min(days + 1)).map(name).collect();
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            register(&storage, &list);
        }
        let registration = draft(&storage, &[]);
        registration.commit(&storage).unwrap();
        let left = draft(&storage, &[]).unlisted("days");
        let mut names: Vec<String> = left.into_iter().map(|left| left.name).collect();
        names.sort_unstable();
        let mut expected: Vec<String> = (4..=days).map(name).collect();
        expected.insert(0, name(0));
        // The one that waits is over the number.
        assert_eq!(names, expected);
    }

    fn put_chunk(storage: &MemoryStorage, lane: LaneId) {
        let lease = leases::grant(storage, lane.producer).unwrap();
        let epoch = EpochCommit {
            chunks: vec![chunk(lane, 1, &["p"])],
            ..EpochCommit::empty(&lease, EpochId(1))
        };
        let outcome = storage.commit_epoch(lease, epoch).unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)));
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
