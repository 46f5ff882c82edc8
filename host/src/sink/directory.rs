//! The sink to a directory of files, each message a line, exactly once. Its lines are those of the file sink;
//! which file they go to is decided where the epoch is committed, from what is kept here between two epochs.

use serde::{Deserialize, Serialize};

use crate::types::batch::Timestamp;
use crate::types::format_version::unknown_version;
use crate::types::ids::SinkFileId;

/// First byte of what is kept.
const FORMAT_VERSION: u8 = 1;

/// How far one partition is with its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryProgress {
    /// The number of the file that is begun next.
    pub next: u64,
    /// The file that rows go to.
    pub open: Option<OpenFile>,
}

/// A file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// The file.
    pub file: SinkFileId,
    /// Its number.
    pub number: u64,
    /// Tells what its path is made of.
    pub place: u64,
    /// How much is in it, in bytes.
    pub size_bytes: u64,
    /// When its first row came, by the host's clock.
    pub opened_at: Timestamp,
}

impl DirectoryProgress {
    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        let encoded = postcard::to_extend(self, vec![FORMAT_VERSION]);
        encoded.expect("numbers always encode")
    }

    /// What was kept.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(encoded: &[u8]) -> Result<DirectoryProgress, String> {
        match encoded {
            [FORMAT_VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
                Ok((progress, [])) => Ok(progress),
                Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
                Err(error) => Err(error.to_string()),
            },
            [version, ..] => Err(unknown_version(*version, FORMAT_VERSION)),
            [] => Err("it is empty".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, Kind};

    /// As a golden file in `golden/`.
    #[test]
    fn golden_progress_decodes_and_that_of_a_newer_release_is_refused() {
        let kinds = [Kind {
            name: "directory_progress",
            // Whoever asks says of which sink it is.
            called: "",
            version: 1,
            version_at: 0,
            written: (Vec::new(), progress().encode()),
            held: format!("{:?}", progress()),
            decode: Box::new(|_, value| {
                DirectoryProgress::decode(value).map(|progress| format!("{progress:?}"))
            }),
        }];
        golden::check("src/sink/golden", &kinds);
        golden::check_newer_is_refused(&kinds);
    }

    fn progress() -> DirectoryProgress {
        DirectoryProgress {
            next: 8,
            open: Some(OpenFile {
                file: SinkFileId(300),
                number: 7,
                place: u64::MAX,
                size_bytes: 1 << 40,
                opened_at: 1_700_000_000_000,
            }),
        }
    }

    #[test]
    fn what_is_kept_comes_back_and_nothing_else_passes_for_it() {
        let progress = progress();
        let encoded = progress.encode();
        assert_eq!(DirectoryProgress::decode(&encoded), Ok(progress));
        let mut newer = encoded.clone();
        newer[0] = 2;
        let longer = [encoded.as_slice(), &[0]].concat();
        for other in [&[][..], &newer, &longer, &encoded[..5]] {
            assert!(DirectoryProgress::decode(other).is_err(), "{other:?}");
        }
    }
}
