//! What the store remembers of a pipeline: the numbers of its partitions and streams, and what was
//! in force when it ran last. A run of something else needs a person's word.
//!
//! - [`intent`]: what is about to run.
//! - `rows`: the rows of the catalog and their bytes.
//! - `numbering`: gives numbers to what is new.
//! - [`refusal`]: what stands against it.
//! - [`run`]: which run of it is in progress.
//!
//! **Invariant:** partition and stream numbers are handed out once, together with the rows that
//! name them, or skipped. What leaves a pipeline keeps its row, so that it is known when it comes
//! back.

#[cfg(test)]
mod golden_tests;
pub mod intent;
mod numbering;
pub mod refusal;
pub(super) mod rows;
pub mod run;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeSet;

use crate::controller::change::{Change, changes, state_version_changes};
use crate::controller::layouts::{EarlierLayouts, Layouts, layout_row, layouts_from_now_on};
use crate::controller::source_rows::{SourcePartitions, UnlistedPartition};
use crate::storage::{CatalogChange, CatalogOutcome, Storage};
use crate::types::ids::{PartitionId, StreamId};

use numbering::{number_nodes, number_streams};
use refusal::refuse_taken_sinks;
use rows::{LAYOUTS, PipelineRows, Rows, node_key, pipeline_key};
use run::{RunRow, has_come_to_its_end};

pub use intent::{ComputationIntent, Intent, SinkIntent, SourceIntent, StateEncoding};
pub use refusal::RegistryError;
pub use run::RunInProgress;

/// A pipeline as it will be registered: compared with the last run, numbered, not written yet.
#[derive(Debug)]
pub struct Registration {
    pub(super) pipeline: String,
    /// The pipeline's rows as they were found.
    found: Rows,
    /// What they say.
    pub(super) known: PipelineRows,
    /// What they will say.
    pub(super) now: PipelineRows,
    /// Earlier layouts of transforms, as they were found.
    pub(super) known_layouts: Layouts,
    /// The same from now on.
    pub(super) layouts: Layouts,
    source_partitions: SourcePartitions,
    /// The run that is known, if there was any.
    known_run: Option<RunRow>,
    /// The run that begins or goes on.
    run: RunRow,
    /// Everything that has changed since the last run.
    pub changes: Vec<Change>,
}

impl Registration {
    /// Compares what is about to run with what ran last and gives numbers to what is new.
    ///
    /// # Errors
    ///
    /// [`RegistryError::StateVersions`], [`RegistryError::TooManyRetiring`],
    /// [`RegistryError::SinkTaken`], or when the store fails.
    pub fn draft(
        storage: &dyn Storage,
        pipeline: &str,
        intent: &Intent,
    ) -> Result<Registration, RegistryError> {
        let (known, found) = PipelineRows::read(storage, pipeline)?;
        refuse_taken_sinks(storage, pipeline, intent)?;
        let misread = state_version_changes(&known.nodes, intent);
        if !misread.is_empty() {
            return Err(RegistryError::StateVersions {
                pipeline: pipeline.to_owned(),
                changes: misread,
            });
        }
        let known_layouts: Layouts = rows::read_layouts(storage, pipeline)?;
        let next = known.deployment + 1;
        let mut now = PipelineRows {
            deployment: known.deployment,
            streams: number_streams(storage, &known.streams, intent)?,
            nodes: number_nodes(storage, &known.nodes, intent, next)?,
        };
        let source_partitions = SourcePartitions::draft(storage, pipeline, intent, next)?;
        let layouts = layouts_from_now_on(pipeline, &known_layouts, &known.nodes, &now.nodes)?;
        let known_run = RunRow::read(storage, pipeline)?;
        let run = RunRow::next(known_run, |run| {
            let transforms = known.nodes.transforms();
            let mut last: Vec<PartitionId> = transforms
                .flat_map(|(_, partitions)| partitions)
                .copied()
                .collect();
            if last.is_empty() {
                last.extend(source_partitions.all_in_force());
            }
            let all = all_partitions(&known, &source_partitions, &known_layouts);
            has_come_to_its_end(storage, run, &last, &all)
        })?;
        if now != known || source_partitions.have_changed() || found.is_empty() {
            now.deployment = next;
        }
        Ok(Registration {
            pipeline: pipeline.to_owned(),
            changes: changes(&known.nodes, intent),
            found,
            known,
            now,
            known_layouts,
            layouts,
            source_partitions,
            known_run,
            run,
        })
    }

    /// Number of the deployment in force from now on.
    pub fn deployment(&self) -> u64 {
        self.now.deployment
    }

    /// Number of the run of the pipeline, which its watermarks belong to.
    pub fn run(&self) -> u64 {
        self.run.number
    }

    /// The run that is in progress once this is committed.
    pub fn run_in_progress(&self) -> RunInProgress {
        RunInProgress {
            pipeline: self.pipeline.clone(),
            number: self.run.number,
        }
    }

    /// Number of the deployment in force until [`Registration::commit`]; 0 before the first one.
    pub fn deployment_before(&self) -> u64 {
        self.known.deployment
    }

    /// The partitions of a source that is about to run, in the order of the intent.
    ///
    /// # Panics
    ///
    /// When the intent did not name it.
    pub fn source(&self, name: &str) -> &[PartitionId] {
        self.source_partitions.in_force(name)
    }

    /// The partitions that ever left the list of a source, as one layout; none where none did.
    pub fn retiring_of_source(&self, source: &str) -> &[Vec<PartitionId>] {
        self.source_partitions.retiring(source)
    }

    /// The partitions of sources that are not remembered any more once this is committed.
    pub fn forgotten_source_partitions(&self) -> &[PartitionId] {
        self.source_partitions.forgotten()
    }

    /// The partitions that a source's list has no more and that are remembered.
    pub fn unlisted(&self, source: &str) -> Vec<UnlistedPartition> {
        self.source_partitions.unlisted(source)
    }

    /// The names in a source's list that it never had.
    pub fn newly_listed(&self, source: &str) -> Vec<String> {
        self.source_partitions.newly_listed(source)
    }

    /// Makes a partition that a source's list has no more go on under a name that is new there.
    pub fn rename_source_partition(&mut self, source: &str, was: &str, now: &str) {
        self.source_partitions.rename(source, was, now);
    }

    /// The partitions of a computation that is about to run; none for a map.
    ///
    /// # Panics
    ///
    /// When the intent did not name it.
    pub fn computation(&self, name: &str) -> &[PartitionId] {
        &self.now.nodes.computations[name].last.partitions
    }

    /// The transforms that are about to run, with their partitions.
    pub fn transforms(&self) -> impl Iterator<Item = (&str, &[PartitionId])> {
        self.now.nodes.transforms()
    }

    /// Every partition that is about to run.
    pub fn partitions_in_force(&self) -> BTreeSet<PartitionId> {
        let of_transforms = self.transforms().flat_map(|(_, partitions)| partitions);
        of_transforms
            .copied()
            .chain(self.source_partitions.all_in_force())
            .collect()
    }

    /// The number of a stream.
    ///
    /// # Panics
    ///
    /// When the intent did not name it.
    pub fn stream(&self, name: &str) -> StreamId {
        self.now.streams[name]
    }

    /// The name of a stream that the pipeline has or had.
    pub fn stream_name(&self, id: StreamId) -> Option<&str> {
        let mut streams = self.now.streams.iter();
        streams.find_map(|(name, found)| (*found == id).then_some(name.as_str()))
    }

    /// Every partition that the pipeline had when it ran last and of which anything may be left.
    pub fn partitions_ever(&self) -> Vec<PartitionId> {
        all_partitions(&self.known, &self.source_partitions, &self.known_layouts)
    }

    pub(super) fn commit_catalog(
        &self,
        storage: &dyn Storage,
        change: &CatalogChange,
    ) -> Result<(), RegistryError> {
        match storage.commit_catalog(change)? {
            CatalogOutcome::Committed => Ok(()),
            CatalogOutcome::Refused => Err(RegistryError::Contended {
                pipeline: self.pipeline.clone(),
            }),
        }
    }

    /// Writes down what is in force from now on.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Contended`], or when the store fails.
    pub fn commit(&self, storage: &dyn Storage) -> Result<(), RegistryError> {
        let pipeline_key = pipeline_key(&self.pipeline);
        let found = self.found.get(&pipeline_key).cloned();
        let mut writes = rows::difference(&self.found, &self.now.encode(&self.pipeline));
        writes.extend(self.source_partitions.writes());
        let layouts = self.layouts.iter();
        for (name, layouts) in
            layouts.filter(|(name, now)| self.known_layouts.get(*name) != Some(now))
        {
            let key = node_key(&self.pipeline, LAYOUTS, name);
            writes.push((key, layout_row(layouts)));
        }
        let run_key = RunRow::key(&self.pipeline);
        if self.known_run != Some(self.run) {
            writes.push((run_key.clone(), Some(rows::encode(&self.run))));
        }
        if writes.is_empty() {
            return Ok(());
        }
        let known_run = self.known_run.map(|run| rows::encode(&run));
        let change = CatalogChange {
            expectations: vec![(pipeline_key, found), (run_key, known_run)],
            writes,
        };
        self.commit_catalog(storage, &change)
    }
}

/// Every partition that the pipeline had when it ran last and of which anything may be left.
fn all_partitions(
    known: &PipelineRows,
    source_partitions: &SourcePartitions,
    known_layouts: &Layouts,
) -> Vec<PartitionId> {
    let computations = known.nodes.computations.values();
    let computations = computations.map(|row| &row.last.partitions);
    let retiring = known_layouts.values();
    (source_partitions.ever())
        .chain(computations.flatten().copied())
        .chain(retiring.flat_map(EarlierLayouts::partitions))
        .collect()
}
