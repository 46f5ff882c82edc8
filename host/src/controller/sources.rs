//! The sources of a pipeline: each partition opened at its committed position.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use crate::controller::change::Change;
use crate::controller::placement::PlacementError;
use crate::controller::registry::Registration;
use crate::source::parked::ParkedSource;
use crate::source::queue::QueueReader;
use crate::source::{self, OnChange, Opening, Source, SourceChange};
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
    queues: &Arc<dyn QueueReader>,
) -> Result<(OpenSources, Vec<Change>), PlacementError> {
    let mut sources = OpenSources::default();
    let mut changes = Vec::new();
    for name in pipeline.sources.keys() {
        let (plans, of_source) = open_source(name, pipeline, storage, registration, queues)?;
        sources.sources.insert(name.clone(), plans);
        changes.extend(of_source);
    }
    Ok((sources, changes))
}

impl OpenSources {
    /// Opens the sources that read queues once more, as rows have gone since: one that has never read begins with
    /// the first row that is left. Answers what is not as it was read before.
    ///
    /// # Errors
    ///
    /// As [`open_sources`].
    pub fn reopen_queues(
        &mut self,
        pipeline: &Pipeline,
        storage: &dyn Storage,
        registration: &Registration,
        queues: &Arc<dyn QueueReader>,
    ) -> Result<Vec<Change>, PlacementError> {
        let mut changes = Vec::new();
        for (name, options) in &pipeline.sources {
            if let Some(SourceConnector::Queue(_)) = options.partitions.first() {
                let (plans, of_source) =
                    open_source(name, pipeline, storage, registration, queues)?;
                self.sources.insert(name.clone(), plans);
                changes.extend(of_source);
            }
        }
        Ok(changes)
    }
}

/// Opens every partition of one source.
fn open_source(
    name: &str,
    pipeline: &Pipeline,
    storage: &dyn Storage,
    registration: &Registration,
    queues: &Arc<dyn QueueReader>,
) -> Result<(Vec<Option<SourcePlan>>, Vec<Change>), PlacementError> {
    let options = &pipeline.sources[name];
    let mut changes = Vec::new();
    let mut all = (pipeline.sources.values()).flat_map(|options| &options.partitions);
    let reads_on = all.any(SourceConnector::is_followed);
    let mut plans = Vec::with_capacity(options.partitions.len());
    let numbers = registration.source(name);
    for (index, (connector, number)) in options.partitions.iter().zip(numbers).enumerate() {
        let position = rows::read_source_position(storage, *number)?;
        let marks = rows::read_source_marks(storage, *number)?;
        let open = |on_change| {
            let opening = Opening {
                position: position.as_deref(),
                marks: &marks,
                on_change,
                on_failure: options.on_failure,
                queues: Some(queues),
            };
            source::open(connector, opening)
        };
        let source = match open(OnChange::Refuse) {
            Ok(source) => source,
            Err(error) => {
                let change = error.change().ok_or(error)?;
                let place = match change.place.is_empty() {
                    true => connector.describe_partition(connector.partition_name()),
                    false => change.place,
                };
                let what = format!("{} of source {name} ({place})", change.what);
                let SourceChange { was, now, .. } = change;
                changes.push(Change { what, was, now });
                open(OnChange::StartOver)?
            }
        };
        let plan = plan(name, options, (index, connector), source, reads_on);
        plans.push(Some(plan));
    }
    Ok((plans, changes))
}

fn plan(
    name: &str,
    options: &SourceOptions,
    (index, connector): (usize, &SourceConnector),
    source: Box<dyn Source>,
    reads_on: bool,
) -> SourcePlan {
    let count = options.partitions.len();
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let parallel = options.parallel_partitions.unwrap_or_else(cores);
    // The only partition of a source needs no other name than the source's.
    let described = match (connector, count) {
        (SourceConnector::Queue(queue), _) => {
            format!("queue {} (source {name})", queue.partition_name)
        }
        (_, 1) => format!("source {name}"),
        (SourceConnector::File(options), _) => {
            format!("{} of source {name}", options.written_path)
        }
        _ => {
            let partition = connector.describe_partition(connector.partition_name());
            format!("{partition} of source {name}")
        }
    };
    let turn = (count > parallel).then(|| SourceTurn {
        source: name.to_owned(),
        parallel,
        write_time: source.write_time(),
        index,
    });
    SourcePlan {
        described,
        source: match turn {
            Some(_) => Box::new(ParkedSource::new(connector, &*source, options.on_failure)),
            None => source,
        },
        turn,
        watermarks: options.watermarks,
        on_failure: options.on_failure,
        reads_on,
    }
}
