//! The file sink: each message a line, exactly once. It makes the bytes and nothing else: the
//! epoch's commit carries them, and storage appends them to the file.
//!
//! A payload may hold any byte but `\n`, which ends it. A trailing `\r` is kept; readers that take
//! `\r\n` for a line end, as the file source does, will not see it.

use memchr::memchr;

use crate::sink::{Sealed, Sink, SinkError, SinkMessage};
use crate::types::batch::Timestamp;

/// Messages of one epoch as lines.
#[derive(Debug, Default)]
pub struct FileSink {
    lines: Vec<u8>,
}

impl FileSink {
    /// A sink with no epoch open.
    pub fn new() -> FileSink {
        FileSink::default()
    }
}

impl Sink for FileSink {
    fn add(&mut self, message: SinkMessage<'_>) -> Result<(), SinkError> {
        append_line(message, &mut self.lines)
    }

    fn seal(&mut self, _now: Timestamp) -> Result<Sealed, SinkError> {
        Ok(match self.lines.is_empty() {
            true => Sealed::Nothing,
            false => Sealed::Append(std::mem::take(&mut self.lines)),
        })
    }
}

/// Appends the payload and a line end.
pub(super) fn append_line(message: SinkMessage<'_>, lines: &mut Vec<u8>) -> Result<(), SinkError> {
    if let Some(at) = memchr(b'\n', message.payload) {
        return Err(SinkError::LineEndInPayload {
            stream: message.stream.to_owned(),
            index: message.index,
            public_id: message.public_id,
            at,
        });
    }
    lines.extend_from_slice(message.payload);
    lines.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(index: u32, payload: &[u8]) -> SinkMessage<'_> {
        SinkMessage {
            stream: "alerts",
            index,
            public_id: None,
            key: b"",
            event_time: 0,
            payload,
        }
    }

    #[test]
    fn an_epoch_becomes_whole_lines() {
        let mut sink = FileSink::new();
        for (index, payload) in [&b"a"[..], b"", b"\xff\r"].into_iter().enumerate() {
            sink.add(message(index as u32, payload)).unwrap();
        }
        assert_eq!(
            sink.seal(0).unwrap(),
            Sealed::Append(b"a\n\n\xff\r\n".to_vec())
        );
        assert_eq!(sink.seal(0).unwrap(), Sealed::Nothing);
    }

    #[test]
    fn a_line_end_in_a_payload_is_refused_with_its_place() {
        let mut sink = FileSink::new();
        let error = sink.add(message(7, b"ab\ncd")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "message 7 of stream alerts has a line end at byte 2 of its payload, and the sink \
             writes one message a line; encode the payload without line ends, as JSON does"
        );
        // Nothing of it is written, should somebody seal nevertheless.
        assert_eq!(sink.seal(0).unwrap(), Sealed::Nothing);
    }
}
