//! A compressed file that was read to its end and that nobody has touched since: it has nothing more, and
//! is not decompressed again to find that out. A plain file needs none of this, as a seek goes to its end.

use super::position::FilePosition;
use crate::source::{PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords};
use crate::types::batch::Timestamp;
use crate::types::pipeline::FileSourceOptions;

/// See the module's documentation.
#[derive(Debug)]
pub struct FinishedFile {
    encoded: Vec<u8>,
    write_time: Timestamp,
    content_bytes: u64,
}

impl FinishedFile {
    /// The file, if it was read to its end by this position and is as it was then.
    ///
    /// # Errors
    ///
    /// When the position can't be decoded.
    pub fn find(
        options: &FileSourceOptions,
        encoded: &[u8],
    ) -> Result<Option<FinishedFile>, SourceError> {
        let position = FilePosition::decode(&options.path, encoded)?;
        let is_read = position.is_at_end && position.format == options.format;
        let packed = position.packed.filter(|_| is_read);
        let packed = packed.filter(|packed| packed.is_still_at(&options.path));
        Ok(packed.map(|packed| FinishedFile {
            encoded: encoded.to_vec(),
            write_time: position.write_time,
            content_bytes: packed.content_bytes,
        }))
    }
}

impl Source for FinishedFile {
    fn poll(&mut self, _: PollLimit, _: &mut SourceRecords) -> Result<PollOutcome, SourceError> {
        Ok(PollOutcome::End)
    }

    fn position(&self) -> Vec<u8> {
        self.encoded.clone()
    }

    fn write_time(&self) -> Timestamp {
        self.write_time
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress {
            done_bytes: self.content_bytes,
            total_bytes: Some(self.content_bytes),
        }
    }
}
