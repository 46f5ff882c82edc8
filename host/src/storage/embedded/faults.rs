//! The points between two writes or syncs, by name. In production reaching one does nothing; tests
//! stop the process there or make the next step fail.

use std::io;
use std::sync::Arc;

use crate::storage::StorageError;

/// Told of every point that the store passes, on the thread that passes it.
pub trait FaultPoints: Send + Sync {
    /// The store is about to take the step named by `point`.
    ///
    /// # Errors
    ///
    /// The step is taken as failed with this error, without being tried.
    fn reach(&self, point: &'static str) -> io::Result<()>;
}

/// No faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl FaultPoints for NoFaults {
    fn reach(&self, _point: &'static str) -> io::Result<()> {
        Ok(())
    }
}

/// Passes a point, and turns an injected failure into the step's error.
pub(super) fn pass(faults: &Arc<dyn FaultPoints>, point: &'static str) -> Result<(), StorageError> {
    faults.reach(point).map_err(|source| StorageError::Backend {
        store: "the disk",
        action: point,
        source: Box::new(source),
    })
}
