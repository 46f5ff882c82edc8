//! Every row of pipelines and queues in the catalog against its format. Storage looks at the others.

use std::collections::BTreeSet;

use crate::controller::layouts::Layouts;
use crate::controller::queues::registry::check_row as check_queue_row;
use crate::controller::registry::rows::{
    COMPUTATION, LAYOUTS, PIPELINE, PipelineRows, SINK, SOURCE, STATE, STREAM, read_layouts,
};
use crate::controller::registry::run::{RUN, RunRow};
use crate::controller::source_rows::{SOURCE_PARTITION, known_partitions};
use crate::storage::{Storage, StorageError, StoredRow, keys};

/// The kinds of rows of which a pipeline has any number, by what follows its name in the key.
const NAMED: [&str; 7] = [
    STREAM,
    SOURCE,
    COMPUTATION,
    STATE,
    LAYOUTS,
    SINK,
    SOURCE_PARTITION,
];

/// The kinds of which it has one.
const SINGLE: [&str; 2] = [PIPELINE, RUN];

/// What is wrong with them, a text each.
///
/// # Errors
///
/// When the store fails. A row that does not decode is none of them.
pub fn check_catalog(storage: &dyn Storage) -> Result<Vec<String>, StorageError> {
    let mut findings = Vec::new();
    for (key, value) in storage.scan_catalog(&[keys::CATALOG_QUEUE])? {
        note(&mut findings, check_queue_row(&key, &value))?;
    }
    let mut pipelines = BTreeSet::new();
    for row in storage.scan_catalog(&[keys::CATALOG_PIPELINE])? {
        match pipeline_of(&row) {
            Ok(pipeline) => drop(pipelines.insert(pipeline)),
            refused => note(&mut findings, refused)?,
        }
    }
    for pipeline in &pipelines {
        note(&mut findings, PipelineRows::read(storage, pipeline))?;
        note(&mut findings, RunRow::read(storage, pipeline))?;
        note(&mut findings, known_partitions(storage, pipeline))?;
        let layouts: Result<Layouts, _> = read_layouts(storage, pipeline);
        note(&mut findings, layouts)?;
    }
    Ok(findings)
}

fn note<T>(findings: &mut Vec<String>, read: Result<T, StorageError>) -> Result<(), StorageError> {
    match read {
        Err(error @ StorageError::Undecodable { .. }) => findings.push(error.to_string()),
        read => drop(read?),
    }
    Ok(())
}

/// The pipeline that a row is of, where it is one that this release knows.
fn pipeline_of((key, _): &StoredRow) -> Result<String, StorageError> {
    let unknown = |finding: &str| StorageError::Undecodable {
        what: format!("the row {} of the catalog", key.escape_ascii()),
        finding: finding.to_owned(),
    };
    let name_and_rest = &key[1..];
    let end = name_and_rest.iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| unknown("its key does not end a pipeline's name"))?;
    let (name, rest) = (&name_and_rest[..end], &name_and_rest[end + 1..]);
    let name = std::str::from_utf8(name).map_err(|_| unknown("its pipeline's name is no text"))?;
    let is_known = NAMED.iter().any(|kind| rest.starts_with(kind.as_bytes()))
        || SINGLE.iter().any(|kind| rest == kind.as_bytes());
    match is_known {
        true => Ok(name.to_owned()),
        false => Err(unknown("this release knows no such row")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::queues::registry::create_queue;
    use crate::storage::CatalogChange;
    use crate::storage::memory::MemoryStorage;
    use crate::types::queue::Retention;

    fn with_row(key: &[u8], value: &[u8]) -> MemoryStorage {
        let storage = MemoryStorage::default();
        create_queue(&storage, "fine", 2, Retention::default(), 1).unwrap();
        let writes = vec![
            (keys::pipeline("p", b"pipeline"), Some(b"\x01\x04".to_vec())),
            (keys::pipeline("p", b"run"), Some(b"\x01\x01\x00".to_vec())),
            (key.to_vec(), Some(value.to_vec())),
        ];
        let change = CatalogChange {
            expectations: Vec::new(),
            writes,
        };
        storage.commit_catalog(&change).unwrap();
        storage
    }

    fn check(key: &[u8], value: &[u8], expected: &str) {
        let findings = check_catalog(&with_row(key, value)).unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains(expected), "{findings:?}");
    }

    #[test]
    fn whole_rows_are_passed() {
        let storage = with_row(&keys::pipeline("p", b"stream/in"), b"\x01\xc8\x01");
        assert_eq!(check_catalog(&storage).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_row_is_held_against_its_format() {
        let of_pipeline = |rest: &[u8]| keys::pipeline("p", rest);
        let deleted = keys::deleted_queue(crate::types::ids::PartitionId(7));
        check(&keys::queue("q"), b"\x01\x02", "the row of queue q");
        check(&keys::queue("q"), b"\x09", "format version 9");
        check(&deleted, b"", "queue that was deleted");
        check(&[b'q', 0, 1], b"\x01", "its key");
        check(&[b'q', 0xff], b"\x01", "its key");
        check(&of_pipeline(b"run"), b"\x01", "a row of pipeline p");
        check(&of_pipeline(b"pipeline"), b"", "it is empty");
        check(
            &of_pipeline(b"sink/out"),
            b"\x01\xff",
            "a row of pipeline p",
        );
        check(&of_pipeline(b"layouts/c"), b"\x02", "format version 2");
        check(&of_pipeline(b"source-partition/s/f"), b"\x01", "pipeline p");
        check(&of_pipeline(b"runs"), b"\x01", "knows no such row");
        check(b"pp", b"\x01", "does not end");
    }
}
