//! The embedded storage in one process: the contract, opening and reopening, what it refuses, what
//! it does when a write or sync fails. `crash_tests.rs` kills real processes.

use std::sync::Arc;

use super::*;
use crate::storage::contract;

fn fixture() -> contract::Fixture {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let storage = EmbeddedStorage::open(&dir.path().join("data"), EmbeddedOptions::default());
    contract::Fixture {
        storage: Arc::new(storage.expect("the storage opens")),
        sink_directory: dir.path().to_owned(),
        read_sink: Box::new(|_, path| std::fs::read(path).expect("the sink file is there")),
        keep: Box::new(dir),
    }
}

crate::storage_contract_tests!(fixture);
