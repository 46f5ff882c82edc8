//! The sources of a pipeline: their lists of partitions compared with those of the last run, and
//! each partition opened at its committed position.

use std::collections::BTreeMap;
use std::thread;

use crate::controller::change::Change;
use crate::controller::placement::PlacementError;
use crate::controller::registry::Registration;
use crate::controller::source_rows::UnlistedPartition;
use crate::source::parked::ParkedSource;
use crate::source::{self, OnChange, Source, SourceError};
use crate::storage::{Storage, rows};
use crate::types::pipeline::{Pipeline, SourceConnector, SourceOptions};
use crate::worker::plan::SourcePlan;
use crate::worker::turns::SourceTurn;

/// The sources of a pipeline, opened.
#[derive(Default)]
pub struct OpenSources {
    /// For each source its partitions in the order of its list.
    sources: BTreeMap<String, Vec<Option<SourcePlan>>>,
}

impl OpenSources {
    /// Partition `index` of a source, once.
    pub fn take(&mut self, source: &str, index: usize) -> Option<SourcePlan> {
        self.sources.get_mut(source)?.get_mut(index)?.take()
    }
}

/// Looks at what left the list of each source since the last run. What was read to its end may
/// leave. What was not is a change, and so is a partition that is there under another name: it goes on
/// under that one.
///
/// # Errors
///
/// When a source's partition can't be opened or the store fails.
pub fn compare_lists(
    pipeline: &Pipeline,
    storage: &dyn Storage,
    registration: &mut Registration,
) -> Result<Vec<Change>, PlacementError> {
    let mut changes = Vec::new();
    for (name, options) in &pipeline.sources {
        let new = registration.newly_listed(name);
        let mut arrived: Vec<&SourceConnector> = (options.partitions.iter())
            .filter(|it| new.iter().any(|new| new == it.partition_name()))
            .collect();
        for left in registration.unlisted(name) {
            let position = rows::read_source_position(storage, left.partition)?;
            match place_of_moved(&left, position.as_deref(), &arrived)? {
                Some(place) => {
                    let now = arrived.remove(place).partition_name();
                    changes.push(Change {
                        what: format!("name of a file of source {name}"),
                        was: left.name.clone(),
                        now: format!("{now}, which has the content that was read"),
                    });
                    registration.rename_source_partition(name, &left.name, now);
                }
                None => changes.extend(unread(name, options, &left, position.as_deref())?),
            }
        }
    }
    Ok(changes)
}

/// Where among those that arrived the partition is that left.
fn place_of_moved(
    left: &UnlistedPartition,
    position: Option<&[u8]>,
    arrived: &[&SourceConnector],
) -> Result<Option<usize>, PlacementError> {
    let Some(position) = position else {
        return Ok(None);
    };
    for (place, connector) in arrived.iter().enumerate() {
        if !source::read_position(connector, &left.name, position)?.is_recognizable {
            return Ok(None);
        }
        match source::open(connector, Some(position), OnChange::Refuse) {
            Ok(_) => return Ok(Some(place)),
            Err(SourceError::IdentityChanged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The change that a partition leaves before it was read to its end.
fn unread(
    source: &str,
    options: &SourceOptions,
    left: &UnlistedPartition,
    position: Option<&[u8]>,
) -> Result<Option<Change>, PlacementError> {
    let was = match (position, options.partitions.first()) {
        (Some(position), Some(like)) => {
            let reading = source::read_position(like, &left.name, position)?;
            if reading.is_at_end {
                return Ok(None);
            }
            reading.passed
        }
        _ => "not read yet".to_owned(),
    };
    Ok(Some(Change {
        what: format!("file {} of source {source}", left.name),
        was: format!("in the list, {was}"),
        now: "not in the list; the rest of it will not be read".to_owned(),
    }))
}

/// Opens every partition of every source at its committed position. One whose content is not what
/// was read before is opened at its beginning and named among the changes.
///
/// # Errors
///
/// When a source can't be opened or the store fails.
pub fn open_sources(
    pipeline: &Pipeline,
    storage: &dyn Storage,
    registration: &Registration,
) -> Result<(OpenSources, Vec<Change>), PlacementError> {
    let mut sources = OpenSources::default();
    let mut changes = Vec::new();
    for (name, options) in &pipeline.sources {
        let mut plans = Vec::with_capacity(options.partitions.len());
        let numbers = registration.source(name);
        for (index, (connector, number)) in options.partitions.iter().zip(numbers).enumerate() {
            let position = rows::read_source_position(storage, *number)?;
            let open = |on_change| source::open(connector, position.as_deref(), on_change);
            let source = match open(OnChange::Refuse) {
                Err(SourceError::IdentityChanged { path, was, now }) => {
                    let what = format!("content of source {name} ({})", path.display());
                    changes.push(Change { what, was, now });
                    open(OnChange::StartOver)?
                }
                opened => opened?,
            };
            plans.push(Some(plan(name, options, index, connector, source)));
        }
        sources.sources.insert(name.clone(), plans);
    }
    Ok((sources, changes))
}

fn plan(
    name: &str,
    options: &SourceOptions,
    index: usize,
    connector: &SourceConnector,
    source: Box<dyn Source>,
) -> SourcePlan {
    let count = options.partitions.len();
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let parallel = options.parallel_partitions.unwrap_or_else(cores);
    // The only partition of a source needs no other name than the source's.
    let described = match count {
        1 => format!("source {name}"),
        _ => format!("{} of source {name}", connector.partition_name()),
    };
    if count <= parallel {
        return SourcePlan {
            described,
            source,
            turn: None,
        };
    }
    let turn = SourceTurn {
        source: name.to_owned(),
        parallel,
        write_time: source.write_time(),
        index,
    };
    SourcePlan {
        described,
        source: Box::new(ParkedSource::new(connector, &*source)),
        turn: Some(turn),
    }
}
