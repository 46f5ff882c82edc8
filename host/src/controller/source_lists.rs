//! The lists of a pipeline's sources compared with those of earlier runs: what left a list, what was moved
//! to another name, and what is new.
//!
//! **Invariant:** a partition goes on under a new name only where no other could have been meant: the one of
//! which most was read chooses first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use crate::controller::change::Change;
use crate::controller::placement::PlacementError;
use crate::controller::registry::Registration;
use crate::controller::source_rows::UnlistedPartition;
use crate::source::{self, PartitionReading, SourceError};
use crate::storage::{Storage, rows};
use crate::types::pipeline::{Pipeline, SourceConnector};

/// How many names an error lists.
const LISTED_NAMES_MAX: usize = 5;

/// Looks at what left the list of each source. What was read to its end may leave. What was not, or has more
/// by now, is a change, and so is a partition that is there under another name: it goes on under that one.
///
/// # Errors
///
/// When a source's partition can't be opened, when it can't be told which one was moved where, or when
/// the store fails.
pub fn compare_lists(
    pipeline: &Pipeline,
    storage: &dyn Storage,
    registration: &mut Registration,
) -> Result<Vec<Change>, PlacementError> {
    let folder = pipeline.file.parent().unwrap_or(Path::new(""));
    let mut changes = Vec::new();
    for (name, options) in &pipeline.sources {
        let new = registration.newly_listed(name);
        let arrived = options.partitions.iter();
        let arrived = arrived.filter(|it| new.iter().any(|new| new == it.partition_name()));
        let arrived: Vec<&SourceConnector> = arrived.collect();
        let Some(like) = options.partitions.first() else {
            continue;
        };
        let mut comparison = Comparison {
            source: name,
            left: Vec::new(),
        };
        for partition in registration.unlisted(name) {
            let position = rows::read_source_position(storage, partition.partition)?;
            comparison.left.push(Left::new(partition, position, like)?);
        }
        let moves = comparison.moves(&arrived)?;
        for (index, left) in comparison.left.iter().enumerate() {
            match moves.get(&index) {
                Some(place) => {
                    let now = arrived[*place].partition_name();
                    changes.push(Change {
                        what: format!("name of a file of source {name}"),
                        was: left.partition.name.clone(),
                        now: format!("{now}, which has the content that was read"),
                    });
                    registration.rename_source_partition(name, &left.partition.name, now);
                }
                None if left.partition.has_just_left => {
                    let like = like.with_partition_name(folder, &left.partition.name);
                    changes.extend(left.loss(name, &like));
                }
                None => {}
            }
        }
    }
    Ok(changes)
}

/// What left the list of a source.
struct Comparison<'a> {
    source: &'a str,
    left: Vec<Left>,
}

/// A partition that left.
struct Left {
    partition: UnlistedPartition,
    /// How far it was read; `None` if it was not.
    read: Option<(Vec<u8>, PartitionReading)>,
}

/// What was read of a partition, those of which most was read first.
type ReadContent = (Reverse<u64>, [u8; 16]);

/// Partitions that left and of which the same was read, and those that came and hold it, as places.
#[derive(Default)]
struct Candidates {
    left: Vec<usize>,
    arrived: Vec<usize>,
}

impl Left {
    fn new(
        partition: UnlistedPartition,
        position: Option<Vec<u8>>,
        like: &SourceConnector,
    ) -> Result<Left, SourceError> {
        let read = position.map(|position| {
            let reading = source::read_position(like, &partition.name, &position)?;
            Ok::<_, SourceError>((position, reading))
        });
        Ok(Left {
            read: read.transpose()?,
            partition,
        })
    }

    /// The change that it leaves although there is more of it; `connector` is that of its old name.
    fn loss(&self, source: &str, connector: &SourceConnector) -> Option<Change> {
        let unread = "not in the list; the rest of it will not be read";
        let (was, now) = match &self.read {
            None => ("not read yet".to_owned(), unread),
            Some((_, reading)) if !reading.is_at_end => (reading.passed.clone(), unread),
            Some((position, reading)) if source::has_more(connector, position) => (
                format!("{}, its end then", reading.passed),
                "not in the list, but longer; what came will not be read",
            ),
            Some(_) => return None,
        };
        Some(Change {
            what: format!(
                "{} of source {source}",
                connector.describe_partition(&self.partition.name)
            ),
            was: format!("in the list, {was}"),
            now: now.to_owned(),
        })
    }
}

impl Comparison<'_> {
    /// For each one that left and is there under another name the place of that among those that
    /// arrived.
    fn moves(
        &self,
        arrived: &[&SourceConnector],
    ) -> Result<BTreeMap<usize, usize>, PlacementError> {
        let mut moves = BTreeMap::new();
        let mut taken = vec![false; arrived.len()];
        for mut candidates in self.candidates(arrived)?.into_values() {
            candidates.arrived.retain(|place| !taken[*place]);
            for (index, place) in self.pairs(candidates, arrived)? {
                taken[place] = true;
                moves.insert(index, place);
            }
        }
        Ok(moves)
    }

    fn candidates(
        &self,
        arrived: &[&SourceConnector],
    ) -> Result<BTreeMap<ReadContent, Candidates>, PlacementError> {
        let mut candidates: BTreeMap<ReadContent, Candidates> = BTreeMap::new();
        let mut contents = BTreeMap::new();
        for (index, left) in self.left.iter().enumerate() {
            let Some((position, reading)) = &left.read else {
                continue;
            };
            if reading.is_recognizable {
                let content = (Reverse(reading.passed_bytes), reading.content.0);
                candidates.entry(content).or_default().left.push(index);
                contents.insert(content, position.as_slice());
            }
        }
        let positions: Vec<&[u8]> = contents.values().copied().collect();
        if positions.is_empty() {
            return Ok(candidates);
        }
        for (place, connector) in arrived.iter().enumerate() {
            let held = source::recognize(connector, &positions)?;
            let of_each = candidates.values_mut().zip(held);
            (of_each.filter(|(_, is_held)| *is_held))
                .for_each(|(of_content, _)| of_content.arrived.push(place));
        }
        Ok(candidates)
    }

    /// Which of those that left is which of those that came. Where several could be meant, each that
    /// kept the last part of its name is told by that.
    fn pairs(
        &self,
        mut candidates: Candidates,
        arrived: &[&SourceConnector],
    ) -> Result<Vec<(usize, usize)>, PlacementError> {
        let Candidates {
            left,
            arrived: came,
        } = &mut candidates;
        let mut pairs = Vec::new();
        if left.len() > 1 || came.len() > 1 {
            let old_name = |index: &usize| last_part(&self.left[*index].partition.name);
            let new_name = |place: &usize| last_part(arrived[*place].partition_name());
            for index in left.iter() {
                let is_same = |place: &&usize| new_name(place) == old_name(index);
                let is_rival = |other: &&usize| old_name(other) == old_name(index);
                let mut same = came.iter().filter(is_same);
                if let (Some(place), None, 1) = (
                    same.next(),
                    same.next(),
                    left.iter().filter(is_rival).count(),
                ) {
                    pairs.push((*index, *place));
                }
            }
            left.retain(|index| pairs.iter().all(|(told, _)| told != index));
            came.retain(|place| pairs.iter().all(|(_, told)| told != place));
        }
        match (left.as_slice(), came.as_slice()) {
            ([], _) | (_, []) => {}
            ([index], [place]) => pairs.push((*index, *place)),
            _ => {
                return Err(PlacementError::AmbiguousMove {
                    source_name: self.source.to_owned(),
                    left: names(left.iter().map(|at| self.left[*at].partition.name.as_str())),
                    arrived: names(came.iter().map(|at| arrived[*at].partition_name())),
                });
            }
        }
        Ok(pairs)
    }
}

/// The name of a file without its folders.
fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let rest = match names.len() > LISTED_NAMES_MAX {
        true => ", ...",
        false => "",
    };
    let listed: Vec<&str> = names.take(LISTED_NAMES_MAX).collect();
    format!("{}{rest}", listed.join(", "))
}
