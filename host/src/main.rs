//! The `tidelock` program: reads the command line, runs it, prints the error chain, chooses the
//! exit code. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidelock::cli::main(&tidelock::cli::open_embedded_storage)
}
