//! The sink to nowhere: it drops what it is given, for tests of load. Its rows are counted as those of any sink.

use crate::sink::{Sealed, Sink, SinkError, SinkMessage};
use crate::types::batch::Timestamp;

/// See the module's documentation.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn add(&mut self, _message: SinkMessage<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn seal(&mut self, _now: Timestamp) -> Result<Sealed, SinkError> {
        Ok(Sealed::Nothing)
    }
}
