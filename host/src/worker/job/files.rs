//! The files of a job's directory sinks: when one is old enough, and what becomes of them at a run's end.

use std::time::Duration;

use crate::engine::epoch::SealedParts;
use crate::worker::plan::SinkTarget;
use crate::worker::rolling::RollingFiles;

use super::Job;

impl Job {
    fn rolling(&self) -> impl Iterator<Item = &RollingFiles> {
        self.sinks.iter().filter_map(|sink| sink.target.files())
    }

    /// In how long the first file is old enough to be finished; `None` where none ages.
    pub(super) fn files_due_in(&self) -> Option<Duration> {
        let now = self.clock.now();
        self.rolling().filter_map(|files| files.due_in(now)).min()
    }

    /// Whether a run's end has files to finish.
    pub(super) fn has_open_files(&self) -> bool {
        self.rolling().any(RollingFiles::has_open_file)
    }

    /// The run is at its end for this job.
    pub(super) fn finish_files(&mut self, parts: &mut SealedParts) {
        for sink in &mut self.sinks {
            if let SinkTarget::Directory(files) = &mut sink.target {
                files.end(parts);
            }
        }
    }
}
