//! What a store holds by name: its pipelines, their sources and computations, which partitions those have,
//! and which states. For those who look into a store without running anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::controller::layouts::Layouts;
use crate::controller::queues::registry::all_queues;
use crate::controller::registry::StateEncoding;
use crate::controller::registry::rows::{PipelineRows, read_layouts};
use crate::controller::source_rows::known_partitions;
use crate::storage::check::PartitionFacts;
use crate::storage::{Storage, StorageError, keys};
use crate::types::batch::ComputationKind;
use crate::types::ids::PartitionId;
use crate::types::key::{key_hash, partition_of};

/// Everything that a store knows by name.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Its pipelines, by name.
    pub pipelines: BTreeMap<String, KnownPipeline>,
    partitions: HashMap<PartitionId, Owner>,
}

/// A pipeline that ran at some time.
#[derive(Debug, Clone, Default)]
pub struct KnownPipeline {
    /// Number of the deployment that ran last.
    pub deployment: u64,
    /// Its computations, by name.
    pub computations: BTreeMap<String, KnownTransform>,
}

/// A computation that a pipeline has or had.
#[derive(Debug, Clone)]
pub struct KnownTransform {
    /// Map or transform. Only transforms have states.
    pub kind: ComputationKind,
    /// Whether it was no part of what ran last.
    pub is_removed: bool,
    /// Its partitions, in the order of their ranges of keys.
    pub partitions: Vec<PartitionId>,
    /// Partitions that it had before and of which something is left.
    pub retiring: Vec<PartitionId>,
    /// Whether what the last of those have is on its way to the partitions in force.
    pub is_moving: bool,
    /// Every state that it ever had.
    pub states: BTreeMap<String, StateEncoding>,
}

impl KnownTransform {
    /// The partition that a key belongs to; `None` where there is none at all.
    pub fn partition_of(&self, key: &[u8]) -> Option<PartitionId> {
        let index = partition_of(key_hash(key), self.partitions.len().max(1));
        self.partitions.get(index).copied()
    }
}

/// Whose partition it is.
#[derive(Debug, Clone)]
struct Owner {
    /// For people.
    name: String,
    is_in_force: bool,
    /// Pipeline and transform whose layout in force it belongs to, with nothing on its way.
    layout: Option<(String, String)>,
}

impl Inventory {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// When the store fails or a row does not decode.
    pub fn read(storage: &dyn Storage) -> Result<Inventory, StorageError> {
        let mut inventory = Inventory::default();
        for pipeline in pipeline_names(storage)? {
            inventory.add(storage, &pipeline)?;
        }
        for (name, queue) in all_queues(storage)? {
            let owner = |name: String| Owner {
                name,
                is_in_force: false,
                layout: None,
            };
            let intake = owner(format!("the intake of queue {name}"));
            inventory.partitions.insert(queue.intake, intake);
            for (index, partition) in queue.partitions().into_iter().enumerate() {
                let owner = owner(format!("partition {index} of queue {name}"));
                inventory.partitions.insert(partition, owner);
            }
        }
        Ok(inventory)
    }

    fn add(&mut self, storage: &dyn Storage, pipeline: &str) -> Result<(), StorageError> {
        let (rows, _) = PipelineRows::read(storage, pipeline)?;
        let layouts: Layouts = read_layouts(storage, pipeline)?;
        let mut known = KnownPipeline {
            deployment: rows.deployment,
            computations: BTreeMap::new(),
        };
        for (name, row) in rows.nodes.computations {
            let earlier = layouts.get(&name);
            let transform = KnownTransform {
                kind: row.last.kind,
                is_removed: row.removed_in.is_some(),
                partitions: row.last.partitions,
                retiring: earlier.map_or_else(Vec::new, |of| of.partitions().collect()),
                is_moving: earlier.is_some_and(|of| of.moving().is_some()),
                states: row.last.states,
            };
            self.add_partitions(pipeline, &name, &transform);
            known.computations.insert(name, transform);
        }
        for (source, partition, id, is_listed) in known_partitions(storage, pipeline)? {
            let is_removed =
                (rows.nodes.sources.get(&source)).is_none_or(|source| source.removed_in.is_some());
            let owner = Owner {
                name: format!("{partition} of source {source} of pipeline {pipeline}"),
                is_in_force: is_listed && !is_removed,
                layout: None,
            };
            self.partitions.insert(id, owner);
        }
        self.pipelines.insert(pipeline.to_owned(), known);
        Ok(())
    }

    fn add_partitions(&mut self, pipeline: &str, name: &str, transform: &KnownTransform) {
        let of = format!("computation {name} of pipeline {pipeline}");
        let layout = (!transform.is_moving).then(|| (pipeline.to_owned(), name.to_owned()));
        for (index, partition) in transform.partitions.iter().enumerate() {
            let removed = match transform.is_removed {
                true => ", which was removed",
                false => "",
            };
            let owner = Owner {
                name: format!("partition {index} of {of}{removed}"),
                is_in_force: !transform.is_removed
                    && transform.kind == ComputationKind::Transform
                    && !transform.is_moving,
                layout: layout.clone(),
            };
            self.partitions.insert(*partition, owner);
        }
        for partition in &transform.retiring {
            let owner = Owner {
                name: format!("a partition that {of} had before"),
                is_in_force: false,
                layout: None,
            };
            self.partitions.insert(*partition, owner);
        }
    }

    /// What a partition is, for people; `None` where nothing is known of it.
    pub fn owner(&self, partition: PartitionId) -> Option<&str> {
        (self.partitions.get(&partition)).map(|owner| owner.name.as_str())
    }
}

impl PartitionFacts for Inventory {
    fn place_of_key(&self, partition: PartitionId, key: &[u8]) -> Option<PartitionId> {
        let (pipeline, name) = self.partitions.get(&partition)?.layout.as_ref()?;
        self.pipelines[pipeline].computations[name].partition_of(key)
    }

    fn is_in_force(&self, partition: PartitionId) -> bool {
        (self.partitions.get(&partition)).is_some_and(|owner| owner.is_in_force)
    }
}

fn pipeline_names(storage: &dyn Storage) -> Result<BTreeSet<String>, StorageError> {
    let rows = storage.scan_catalog(&[keys::CATALOG_PIPELINE])?;
    let names = rows.iter().filter_map(|(key, _)| {
        let name = key[1..].split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    });
    Ok(names.collect())
}
