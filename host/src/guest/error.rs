//! What can go wrong with a guest: one variant for each situation, each message with its remedy.
//!
//! A failed call carries its [`CallReport`] as the error's source: fuel, backtrace and what the guest
//! printed. How the engine's errors become these, `call_fault.rs` decides.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::guest::column_fault::ColumnFault;
use crate::guest::cut_difference::CutDifference;
use crate::guest::effect_limits::LimitExcess;
use crate::guest::policy::Refusal;

/// A guest can't be loaded, linked or described, or a call of it failed.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The runtime can't start with these options.
    #[error("the guest runtime can't start: {reason}")]
    Runtime {
        /// What is wrong, and what to change.
        reason: String,
    },
    /// The directory for compiled components can't be used.
    #[error("the directory for compiled components, {}, {finding}", .path.display())]
    CacheDirectory {
        /// The directory.
        path: PathBuf,
        /// What was found and what to do.
        finding: String,
    },
    /// The bytes are not a component that this host can run.
    #[error("not a component: {0}")]
    NotAComponent(NotAComponent),
    /// The component is larger than the host accepts.
    #[error(
        "the component has {size_bytes} bytes, allowed are {limit_bytes}; build it with \
         optimisation, or raise `component_bytes_max`"
    )]
    ComponentTooLarge {
        /// Its size in bytes.
        size_bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// The component does not export the computation that the host calls.
    #[error(
        "computation {computation}: the component must export {expected}, but {found}; build it \
         against the contract in wit/ that belongs to this host"
    )]
    WrongWorld {
        /// Name of the computation.
        computation: String,
        /// The export that the host calls.
        expected: &'static str,
        /// What the component has instead.
        found: String,
    },
    /// The component imports what it may not have, or was granted what its kind may not have.
    #[error("computation {computation}: {} refused:{}", count_of(.refusals), list(.refusals))]
    RefusedImports {
        /// Name of the computation.
        computation: String,
        /// Every refusal, at least one.
        refusals: Vec<Refusal>,
    },
    /// A granted directory can't be opened.
    #[error("computation {computation}: the granted directory {} can't be opened", .path.display())]
    Directory {
        /// Name of the computation.
        computation: String,
        /// The directory.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A limit of the call is outside of what the runtime was started with.
    #[error("computation {computation}: {finding}")]
    Limit {
        /// Name of the computation.
        computation: String,
        /// Which limit, its value, and what is allowed.
        finding: String,
    },
    /// The imports fit the policy but not the host's functions, or the pool is too small for it.
    #[error(
        "computation {computation}: the component can't be instantiated: {reason}; build it for \
         wasm32-wasip2 with a current toolchain"
    )]
    Instantiation {
        /// Name of the computation.
        computation: String,
        /// What the engine says.
        reason: String,
    },
    /// What the component says of itself makes no sense.
    #[error(
        "computation {computation}: the component's description is invalid: {finding}; correct \
         `describe` in the component"
    )]
    DescriptionInvalid {
        /// Name of the computation.
        computation: String,
        /// What is wrong.
        finding: String,
    },
    /// The guest panicked.
    #[error(
        "computation {computation}: the guest {message}; handle the case in the component, where \
         an error returned names the message that it can't handle"
    )]
    Panic {
        /// Name of the computation.
        computation: String,
        /// "panicked at", the place and the text.
        message: String,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The guest did what WebAssembly does not allow, or aborted.
    #[error(
        "computation {computation}: the guest trapped: {reason}; the backtrace shows where, \
         correct the component"
    )]
    Trap {
        /// Name of the computation.
        computation: String,
        /// What the engine says.
        reason: String,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The guest tried to end the process.
    #[error(
        "computation {computation}: the guest called exit({code}); a computation returns its \
         effects or a failure and never exits"
    )]
    Exit {
        /// Name of the computation.
        computation: String,
        /// The exit code that it asked for.
        code: i32,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The call used up its fuel.
    #[error(
        "computation {computation}: the guest used up its {limit} units of fuel; look for an \
         endless loop, or raise `limits.fuel`"
    )]
    OutOfFuel {
        /// Name of the computation.
        computation: String,
        /// The limit.
        limit: u64,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The guest asked for more memory than it may have.
    #[error(
        "computation {computation}: the guest asked for {asked_bytes} bytes of memory, allowed are \
         {limit_bytes}; keep less in memory, or raise `limits.memory`"
    )]
    OutOfMemory {
        /// Name of the computation.
        computation: String,
        /// How large its memory would have become, in bytes.
        asked_bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The guest's calls nest too deep. The depth differs between architectures, so this is the one
    /// error on which two machines may disagree.
    #[error(
        "computation {computation}: the guest's calls nest deeper than the stack allows; look for \
         endless recursion, or use a loop"
    )]
    StackOverflow {
        /// Name of the computation.
        computation: String,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The call ran into the safety net. It depends on the machine's load, so it is no verdict on
    /// the item, which is named all the same.
    #[error(
        "computation {computation}: the guest ran longer than {deadline:?}; lower `limits.fuel` so \
         that fuel ends it first, or raise `limits.deadline`"
    )]
    Deadline {
        /// Name of the computation.
        computation: String,
        /// The limit.
        deadline: Duration,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The effects are larger than allowed.
    #[error(
        "computation {computation}: the guest returned {}, allowed are {limit_bytes} bytes; emit \
         less for one message, or raise `limits.output`",
        .size_bytes.map_or("too much to be copied".to_owned(), |size| format!("{size} bytes of effects"))
    )]
    OversizeOutput {
        /// Name of the computation.
        computation: String,
        /// The size of all columns in bytes; `None` when it was too large to be copied.
        size_bytes: Option<usize>,
        /// The limit in bytes.
        limit_bytes: usize,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The effects hold more of something than one call may return.
    #[error("computation {computation}: the guest returned {excess}")]
    OverLimit {
        /// Name of the computation.
        computation: String,
        /// Of what, how much, what is allowed and what to change.
        excess: LimitExcess,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The effects contradict themselves, the batch or the description.
    #[error(
        "computation {computation}: the guest returned malformed effects: {fault}; this is a \
         defect of the component or of its SDK"
    )]
    MalformedEffects {
        /// Name of the computation.
        computation: String,
        /// Which column, which row, what was found and what is allowed.
        fault: ColumnFault,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// The guest refused the item.
    #[error(
        "computation {computation}: the guest failed: {reason}; this is the component's own \
         answer, see what it documents"
    )]
    Failure {
        /// Name of the computation.
        computation: String,
        /// Its reason.
        reason: String,
        /// Of the failed call.
        #[source]
        report: Box<CallReport>,
    },
    /// A batch that fails as a whole passes in parts, and the host can't hold what they return.
    #[error(
        "computation {computation}: a batch had to be cut into parts, which together returned more \
         than {limit_bytes} bytes; lower `max_rows_per_batch` and `max_rows_per_epoch`, or emit \
         less for one message"
    )]
    PartsTooLarge {
        /// Name of the computation.
        computation: String,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// The same messages have other effects when the batch is cut elsewhere.
    #[error(
        "computation {computation}: outputs depend on how the batch was cut: {difference}; keep \
         nothing from one message to the next but what is in the state"
    )]
    DependsOnCut {
        /// Name of the computation.
        computation: String,
        /// The first difference.
        difference: CutDifference,
    },
}

impl GuestError {
    /// What is known of the failed call; `None` where no call was made.
    pub fn report(&self) -> Option<&CallReport> {
        match self {
            GuestError::Panic { report, .. }
            | GuestError::Trap { report, .. }
            | GuestError::Exit { report, .. }
            | GuestError::OutOfFuel { report, .. }
            | GuestError::OutOfMemory { report, .. }
            | GuestError::StackOverflow { report, .. }
            | GuestError::Deadline { report, .. }
            | GuestError::OversizeOutput { report, .. }
            | GuestError::OverLimit { report, .. }
            | GuestError::MalformedEffects { report, .. }
            | GuestError::Failure { report, .. } => Some(report),
            GuestError::Runtime { .. }
            | GuestError::CacheDirectory { .. }
            | GuestError::NotAComponent(_)
            | GuestError::ComponentTooLarge { .. }
            | GuestError::WrongWorld { .. }
            | GuestError::RefusedImports { .. }
            | GuestError::Directory { .. }
            | GuestError::Limit { .. }
            | GuestError::Instantiation { .. }
            | GuestError::DescriptionInvalid { .. }
            | GuestError::PartsTooLarge { .. }
            | GuestError::DependsOnCut { .. } => None,
        }
    }

    /// Forgets what the guest printed and where it was.
    pub(super) fn forget_report(&mut self) {
        let report = match self {
            GuestError::Panic { report, .. }
            | GuestError::Trap { report, .. }
            | GuestError::Exit { report, .. }
            | GuestError::OutOfFuel { report, .. }
            | GuestError::OutOfMemory { report, .. }
            | GuestError::StackOverflow { report, .. }
            | GuestError::Deadline { report, .. }
            | GuestError::OversizeOutput { report, .. }
            | GuestError::OverLimit { report, .. }
            | GuestError::MalformedEffects { report, .. }
            | GuestError::Failure { report, .. } => report,
            _ => return,
        };
        report.backtrace = String::new();
        report.stdout = String::new();
        report.stderr = String::new();
    }

    /// Whether it is the verdict on an item: the same call fails the same way on every machine,
    /// whatever batch the item came in. A deadline is none.
    pub fn is_verdict(&self) -> bool {
        self.item().is_some() && !matches!(self, GuestError::Deadline { .. })
    }

    /// The item of the batch that failed alone, after all items before it had passed.
    pub fn item(&self) -> Option<u32> {
        self.report().and_then(|report| report.item)
    }
}

fn count_of(refusals: &[Refusal]) -> String {
    match refusals.len() {
        1 => "1 import or grant is".to_owned(),
        count => format!("{count} imports or grants are"),
    }
}

fn list(refusals: &[Refusal]) -> String {
    refusals
        .iter()
        .map(|refusal| format!("\n  {refusal}"))
        .collect()
}

/// Why bytes are not a component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAComponent {
    /// There are none.
    #[error("the file is empty; build the component again")]
    Empty,
    /// They do not begin as WebAssembly does.
    #[error("the bytes are not WebAssembly; name the .wasm file that the build made")]
    NotWebAssembly,
    /// They are WebAssembly as text.
    #[error("this is WebAssembly text; assemble it first, for example with wasm-tools parse")]
    Text,
    /// They are a core module.
    #[error(
        "this is a core module; build it for wasm32-wasip2, or wrap it with wasm-tools component new"
    )]
    CoreModule,
    /// Neither module nor component of a version that the host knows.
    #[error("WebAssembly version {version:#x} is unknown; build it with a current toolchain")]
    UnknownVersion {
        /// The version field.
        version: u32,
    },
    /// The file ends too early.
    #[error(
        "the file is truncated: it needs at least {needed_bytes} bytes and has {found_bytes}; copy \
         or build it again"
    )]
    Truncated {
        /// The least size that its sections need, in bytes.
        needed_bytes: u64,
        /// The size that it has, in bytes.
        found_bytes: u64,
    },
    /// It is a component, but an invalid one, or it uses what the engine does not offer.
    #[error("{reason}; build it with a current toolchain, without threads and proposals")]
    Invalid {
        /// What the engine says.
        reason: String,
    },
}

/// What is known of a failed call. Shown below the error that it is the source of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallReport {
    /// The item of the batch that stood alone in the call; `None` where the call had no batch.
    pub item: Option<u32>,
    /// Fuel used until the failure.
    pub fuel: u64,
    /// Where the guest was, innermost first; empty when it had returned.
    pub backtrace: String,
    /// What it printed, bounded.
    pub stdout: String,
    /// What it printed as errors, bounded.
    pub stderr: String,
}

impl CallReport {
    /// Bytes of its texts.
    pub(super) fn size_bytes(&self) -> usize {
        self.backtrace.len() + self.stdout.len() + self.stderr.len()
    }
}

impl fmt::Display for CallReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} units of fuel used", self.fuel)?;
        let blocks = [
            ("backtrace", &self.backtrace),
            ("stdout", &self.stdout),
            ("stderr", &self.stderr),
        ];
        for (title, text) in blocks {
            if !text.is_empty() {
                write!(formatter, "\n{title}:")?;
                for line in text.lines() {
                    write!(formatter, "\n  {line}")?;
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for CallReport {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_shown_block_by_block() {
        let report = CallReport {
            fuel: 7,
            stderr: "a\nb\n".to_owned(),
            ..CallReport::default()
        };
        assert_eq!(
            report.to_string(),
            "7 units of fuel used\nstderr:\n  a\n  b"
        );
    }
}
