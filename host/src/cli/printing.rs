//! Standard output, which its reader may close and a full disk may refuse. A reader that has had enough is no
//! failure: the rest is dropped, and the command ends with the exit code that it would have had.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

/// What is gathered before it is written.
const WRITE_BYTES: usize = 64 << 10;

/// Prints what `write` writes. When the reader has gone, `write` ends at the error it gets and all is well.
///
/// # Errors
///
/// Whatever else `write` fails with, and when standard output can't be written.
pub(crate) fn print(
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    print_to(io::stdout().lock(), write)
}

/// Prints one line.
///
/// # Errors
///
/// As [`print()`].
pub(crate) fn print_line(line: &str) -> anyhow::Result<()> {
    print(|output| Ok(writeln!(output, "{line}")?))
}

/// Prints a JSON document.
///
/// # Errors
///
/// As [`print()`].
pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    // As text first: an error of the output would come back as one of the document.
    print_line(&serde_json::to_string_pretty(document)?)
}

fn print_to(
    output: impl Write,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut output = BufWriter::with_capacity(WRITE_BYTES, Output::new(output));
    let printed = write(&mut output).and_then(|()| Ok(output.flush()?));
    let (output, _unwritten) = output.into_parts();
    match output.is_reader_gone {
        true => Ok(()),
        false => printed,
    }
}

/// An output that remembers why it failed.
struct Output<W> {
    output: W,
    is_reader_gone: bool,
}

impl<W> Output<W> {
    fn new(output: W) -> Output<W> {
        Output {
            output,
            is_reader_gone: false,
        }
    }

    fn note<T>(&mut self, written: io::Result<T>) -> io::Result<T> {
        written.map_err(|error| match error.kind() {
            // Whoever writes tries again.
            io::ErrorKind::Interrupted => error,
            kind => {
                self.is_reader_gone |= kind == io::ErrorKind::BrokenPipe;
                // Of no kind: a full one is not the full disk of a data directory.
                io::Error::other(format!("failed to write to standard output: {error}"))
            }
        })
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.output.flush();
        self.note(flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn print_rows(output: Failing, rows: usize) -> (anyhow::Result<()>, usize) {
        let mut written = 0;
        let printed = print_to(output, |output| {
            for row in 0..rows {
                writeln!(output, "row {row}")?;
                written += 1;
            }
            Ok(())
        });
        (printed, written)
    }

    #[test]
    fn a_reader_that_has_gone_ends_the_printing_and_is_no_failure() {
        let (printed, written) = print_rows(Failing(io::ErrorKind::BrokenPipe), 1_000_000);
        assert!(printed.is_ok());
        assert!(written < 100_000, "{written} rows for nobody");
        assert!(print_rows(Failing(io::ErrorKind::BrokenPipe), 1).0.is_ok());
    }

    #[test]
    fn a_full_output_is_a_failure_that_names_it() {
        let (printed, _) = print_rows(Failing(io::ErrorKind::StorageFull), 1);
        let error = printed.unwrap_err().to_string();
        assert!(
            error.starts_with("failed to write to standard output: "),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_failure_of_the_output_stays_one() {
        let printed = print_to(Vec::new(), |_| {
            anyhow::bail!(io::Error::from(io::ErrorKind::BrokenPipe))
        });
        assert!(printed.is_err(), "a socket's closed pipe is a failure");
    }
}
