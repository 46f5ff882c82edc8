//! How a call ended that returned no effects: the engine's errors told apart, and joined with what
//! is known of the call. Nothing else of the host looks into an error of wasmtime's.

use crate::guest::column_fault::ColumnFault;
use crate::guest::computation::ComputationSettings;
use crate::guest::effect_limits::LimitExcess;
use crate::guest::error::{CallReport, GuestError};

/// How a call ended that returned no effects, before it is joined with its report.
#[derive(Debug)]
pub(super) enum CallFault {
    Panic { message: String },
    Trap { reason: String },
    Exit { code: i32 },
    OutOfFuel,
    OutOfMemory { asked_bytes: usize },
    StackOverflow,
    Deadline,
    Oversize { size_bytes: Option<usize> },
    OverLimit(LimitExcess),
    Malformed(ColumnFault),
    Failure { item: Option<u32>, reason: String },
}

/// A call that returned no effects.
#[derive(Debug)]
pub(super) struct FailedCall {
    pub(super) fault: CallFault,
    pub(super) report: CallReport,
}

impl FailedCall {
    /// The item that the guest named, as a hint where to cut the batch.
    pub(super) fn hint(&self) -> Option<u32> {
        match &self.fault {
            CallFault::Failure { item, .. } => *item,
            _ => None,
        }
    }

    /// The error of a call with `item` of the batch alone, or of a call with no batch.
    pub(super) fn into_error(
        self,
        settings: &ComputationSettings,
        item: Option<u32>,
    ) -> GuestError {
        let computation = settings.name.clone();
        let limits = &settings.limits;
        let report = Box::new(CallReport {
            item,
            ..self.report
        });
        match self.fault {
            CallFault::Panic { message } => GuestError::Panic {
                computation,
                message,
                report,
            },
            CallFault::Trap { reason } => GuestError::Trap {
                computation,
                reason,
                report,
            },
            CallFault::Exit { code } => GuestError::Exit {
                computation,
                code,
                report,
            },
            CallFault::OutOfFuel => GuestError::OutOfFuel {
                computation,
                limit: limits.fuel,
                report,
            },
            CallFault::OutOfMemory { asked_bytes } => GuestError::OutOfMemory {
                computation,
                asked_bytes,
                limit_bytes: limits.memory_bytes,
                report,
            },
            CallFault::StackOverflow => GuestError::StackOverflow {
                computation,
                report,
            },
            CallFault::Deadline => GuestError::Deadline {
                computation,
                deadline: limits.deadline,
                report,
            },
            CallFault::Oversize { size_bytes } => GuestError::OversizeOutput {
                computation,
                size_bytes,
                limit_bytes: limits.output_bytes,
                report,
            },
            CallFault::OverLimit(excess) => GuestError::OverLimit {
                computation,
                excess,
                report,
            },
            CallFault::Malformed(fault) => GuestError::MalformedEffects {
                computation,
                fault,
                report,
            },
            CallFault::Failure { reason, .. } => GuestError::Failure {
                computation,
                reason,
                report,
            },
        }
    }
}

/// What wasmtime says when the guest's results are too large to be copied; its type is private.
const HOSTCALL_FUEL_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";

/// Tells apart how a call ended. `denied_bytes` is the size that the memory limiter refused in this
/// call, `stderr` what the guest printed in it.
pub(super) fn classify(
    error: &wasmtime::Error,
    denied_bytes: Option<usize>,
    stderr: &str,
) -> CallFault {
    // Panic, abort and failed allocation all end in the same trap. Only the order of these
    // questions tells them apart.
    if let Some(asked_bytes) = denied_bytes {
        return CallFault::OutOfMemory { asked_bytes };
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return CallFault::Exit { code: exit.0 };
    }
    match error.downcast_ref::<wasmtime::Trap>() {
        Some(wasmtime::Trap::OutOfFuel) => return CallFault::OutOfFuel,
        Some(wasmtime::Trap::StackOverflow) => return CallFault::StackOverflow,
        Some(wasmtime::Trap::Interrupt) => return CallFault::Deadline,
        Some(wasmtime::Trap::UnreachableCodeReached) => {
            if let Some(message) = panic_message(stderr) {
                return CallFault::Panic { message };
            }
        }
        Some(_) | None => {}
    }
    let reason = error.root_cause().to_string();
    if reason.contains(HOSTCALL_FUEL_EXHAUSTED) {
        return CallFault::Oversize { size_bytes: None };
    }
    // An error without a guest on the stack was met while the results were read.
    if error.downcast_ref::<wasmtime::Trap>().is_none() && backtrace(error).is_empty() {
        return CallFault::Malformed(ColumnFault::Unreadable { reason });
    }
    CallFault::Trap { reason }
}

/// The guest's stack at the error, demangled, with file and line; empty when it had returned.
pub(super) fn backtrace(error: &wasmtime::Error) -> String {
    let Some(backtrace) = error.downcast_ref::<wasmtime::WasmBacktrace>() else {
        return String::new();
    };
    if backtrace.frames().is_empty() {
        return String::new();
    }
    let text = backtrace.to_string();
    // The first line is wasmtime's heading.
    let frames = text.split_once('\n').map_or("", |(_, frames)| frames);
    without_crate_hashes(frames)
}

/// Turns `std[d123b7a1a2ed1472]::process` into `std::process`: the hash of a crate says nothing to a
/// reader.
fn without_crate_hashes(text: &str) -> String {
    const HASH_DIGITS: usize = 16;
    let is_hash = |hash: &str| {
        hash.len() == HASH_DIGITS && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, bracket) = rest.split_at(at);
        kept.push_str(before);
        rest = match bracket[1..].split_once(']') {
            Some((hash, after)) if is_hash(hash) => after,
            _ => {
                kept.push('[');
                &bracket[1..]
            }
        };
    }
    kept.push_str(rest);
    kept
}

/// Rust's panic message in what a guest printed: from the last "panicked at" to the hint about
/// backtraces.
fn panic_message(stderr: &str) -> Option<String> {
    let start = stderr.rfind("panicked at ")?;
    let message = stderr[start..].split("\nnote: run with ").next()?;
    let message = message.split("\nnote: panic did not ").next()?;
    Some(message.trim_end().replacen(":\n", ": ", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_message_is_the_last_one_without_the_hint() {
        let stderr = "hello\n\nthread '<unnamed>' (1) panicked at src/lib.rs:3:5:\nfirst\nsecond\n\
                      note: run with `RUST_BACKTRACE=1` environment variable\n";
        assert_eq!(
            panic_message(stderr).as_deref(),
            Some("panicked at src/lib.rs:3:5: first\nsecond")
        );
        assert_eq!(panic_message("no such thing"), None);
    }

    #[test]
    fn crate_hashes_are_left_out_of_backtraces() {
        let check = |text, expected| assert_eq!(without_crate_hashes(text), expected);
        check(
            "std[d123b7a1a2ed1472]::abort<core[6d9e98711c484d2e]::X>",
            "std::abort<core::X>",
        );
        check("<[u8]>::get and [", "<[u8]>::get and [");
    }

    #[test]
    fn a_refused_growth_outranks_the_trap_that_follows() {
        let error = wasmtime::Error::from(wasmtime::Trap::UnreachableCodeReached);
        let fault = classify(&error, Some(1 << 20), "panicked at x:1:1:\nno memory");
        assert!(matches!(
            fault,
            CallFault::OutOfMemory {
                asked_bytes: 0x10_0000
            }
        ));
        let fault = classify(&error, None, "panicked at x:1:1:\nboom");
        assert!(
            matches!(fault, CallFault::Panic { message } if message == "panicked at x:1:1: boom")
        );
        assert!(matches!(classify(&error, None, ""), CallFault::Trap { .. }));
    }
}
