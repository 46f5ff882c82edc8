//! What is appended to a file that is followed: each look behind its end asks what an opening of the file
//! asks, and a record is one when its line has an end.

use super::FileSource;
use super::content::LookedAgain;
use super::format::Decoder;
use super::window::Window;
use crate::source::SourceError;
use crate::types::pipeline::FileSourceOptions;

/// A window at the beginning of the file, which must not be packed if it is followed.
pub(super) fn open_window(options: &FileSourceOptions) -> Result<Window, SourceError> {
    let window = Window::open(&options.path)?;
    match window.content().compression() {
        Some(compression) if options.follow => Err(SourceError::FollowsPacked {
            path: options.path.clone(),
            compression,
        }),
        _ => Ok(window),
    }
}

impl FileSource {
    /// Whether there is more of a followed file than when its end was seen. Passes what comes before its next
    /// record, where that was not there before.
    pub(super) fn has_grown(&mut self) -> Result<bool, SourceError> {
        match self.window.look_again()? {
            LookedAgain::Unchanged => return Ok(false),
            LookedAgain::Grown => {}
            // Perhaps by a copy, which is no change.
            LookedAgain::Replaced => {
                *self = FileSource::open_at(&self.options, &self.file_position())?;
            }
        }
        self.write_time = self.write_time.max(self.window.content().write_time());
        if self.window.offset() == 0 {
            self.read_preamble()?;
        } else if self.decoder.is_none() {
            self.decoder = self.read_header()?.map(Decoder::Csv);
        }
        if self.is_unterminated {
            let (line, offset_bytes) = (self.line, self.window.offset());
            if !self.pass_late_line_end()? {
                return Err(self.last_line_has_grown(line, offset_bytes));
            }
        }
        Ok(true)
    }

    /// What was taken as a line without an end was the beginning of one.
    pub(super) fn last_line_has_grown(&self, line: u64, offset_bytes: u64) -> SourceError {
        SourceError::IdentityChanged {
            path: self.options.path.clone(),
            was: format!("line {line} as its last, without a line end"),
            now: format!("more of that line behind offset {offset_bytes}"),
        }
    }
}
