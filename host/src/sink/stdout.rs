//! The sink to standard output: each message a line, at least once. It writes a whole epoch when
//! the epoch is sealed, before its commit: standard output can't take part in a commit, so an
//! epoch that is not committed after all is seen again.

use std::io::{self, Write};

use crate::sink::file::append_line;
use crate::sink::{Sealed, Sink, SinkError, SinkMessage};
use crate::types::batch::Timestamp;

/// What a person should know who pipes the output on.
pub const NOTICE: &str = "standard output gets every message at least once: after a kill, the \
                          last messages before it may come again; a file sink gets each once";

/// Messages of one epoch as lines, for a writer that is standard output but in tests.
#[derive(Debug)]
pub struct StdoutSink<W = io::Stdout> {
    output: W,
    lines: Vec<u8>,
}

impl StdoutSink {
    /// A sink that writes to the process's standard output.
    pub fn new() -> StdoutSink {
        StdoutSink::with_output(io::stdout())
    }
}

impl Default for StdoutSink {
    fn default() -> StdoutSink {
        StdoutSink::new()
    }
}

impl<W: Write> StdoutSink<W> {
    /// A sink that writes to `output` in the place of standard output.
    pub fn with_output(output: W) -> StdoutSink<W> {
        StdoutSink {
            output,
            lines: Vec::new(),
        }
    }
}

impl<W: Write + Send> Sink for StdoutSink<W> {
    fn add(&mut self, message: SinkMessage<'_>) -> Result<(), SinkError> {
        append_line(message, &mut self.lines)
    }

    fn seal(&mut self, _now: Timestamp) -> Result<Sealed, SinkError> {
        let written = match self.lines.is_empty() {
            true => Ok(()),
            false => self
                .output
                .write_all(&self.lines)
                .and_then(|()| self.output.flush()),
        };
        self.lines.clear();
        const OUTPUT: &str = "standard output";
        match written {
            Ok(()) => Ok(Sealed::Nothing),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(SinkError::ReaderGone { output: OUTPUT })
            }
            Err(source) => Err(SinkError::Write {
                output: OUTPUT,
                source,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &[u8]) -> SinkMessage<'_> {
        SinkMessage {
            stream: "alerts",
            index: 0,
            public_id: None,
            key: b"",
            event_time: 0,
            payload,
        }
    }

    #[test]
    fn nothing_is_written_before_the_epoch_is_sealed() {
        let mut sink = StdoutSink::with_output(Vec::new());
        sink.add(message(b"b")).unwrap();
        assert_eq!(sink.output, b"");
        assert_eq!(sink.seal(0).unwrap(), Sealed::Nothing);
        assert_eq!(sink.output, b"b\n");
        assert_eq!(sink.seal(0).unwrap(), Sealed::Nothing);
        assert_eq!(sink.output, b"b\n");
    }

    #[test]
    fn line_ends_in_payloads_are_refused_as_in_files() {
        let mut sink = StdoutSink::with_output(Vec::new());
        let refused = sink.add(message(b"a\nb"));
        assert!(matches!(
            refused,
            Err(SinkError::LineEndInPayload { at: 1, .. })
        ));
    }

    #[test]
    fn a_reader_that_went_away_is_told_from_a_failure() {
        for (kind, is_gone) in [
            (io::ErrorKind::BrokenPipe, true),
            (io::ErrorKind::StorageFull, false),
        ] {
            let mut sink = StdoutSink::with_output(Failing(kind));
            sink.add(message(b"a")).unwrap();
            let error = sink.seal(0).unwrap_err();
            assert_eq!(matches!(error, SinkError::ReaderGone { .. }), is_gone);
            assert_eq!(matches!(error, SinkError::Write { .. }), !is_gone);
        }
    }

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
