//! Which imported functions a component may have, decided function by function and by name.
//!
//! A component compiled with a standard library imports parts of WASI that it does not need, so
//! what is harmless is offered: it answers the same in every call. What would tell two calls apart
//! is refused, with the likely cause and the remedy, unless the pipeline grants it.
//!
//! Nothing here links anything: `wasi.rs` links exactly what this file lets through.

use std::fmt;

use serde::Serialize;

use crate::guest::component::{Component, ImportedFunction};
use crate::types::batch::ComputationKind;
use crate::types::pipeline::{ClockGrant, Grants, RandomGrant};

/// The version of WASI that is offered, as far as it matters for compatibility.
const WASI_VERSION: &str = "0.2.";

/// What the host makes of a component's imports under given grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// Each imported function with its verdict, in the order of the component's imports.
    pub imports: Vec<JudgedImport>,
    /// Grants that the computation's kind may not have.
    pub refused_grants: Vec<Refusal>,
    /// What an operator should know although it is allowed.
    pub warnings: Vec<String>,
    /// Whether the same call always has the same effects.
    pub determinism: Determinism,
}

/// An imported function and what the host makes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JudgedImport {
    /// Its full name.
    pub name: String,
    /// What the host makes of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What the host makes of an imported function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// It answers the same in every call.
    Offered,
    /// The pipeline grants it.
    Granted {
        /// The grant, as the pipeline file spells it.
        by: String,
    },
    /// The component may not have it.
    Refused {
        /// What in the component likely imports it.
        cause: &'static str,
        /// What to do.
        remedy: &'static str,
    },
}

/// One thing that a component may not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The full name of the function, or the grant.
    pub name: String,
    /// Why it is there.
    pub cause: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}; {}", self.name, self.cause, self.remedy)
    }
}

/// How far a component's effects follow from its input alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Determinism {
    /// Entirely.
    Pure,
    /// Entirely; it also gets a fixed seed or a clock that stands still.
    Granted,
    /// Not: it sees the machine's clock, random numbers or files.
    Host,
}

impl fmt::Display for Determinism {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Determinism::Pure => "pure",
            Determinism::Granted => "granted",
            Determinism::Host => "host",
        })
    }
}

impl Verdicts {
    /// Everything that is refused; empty when the component may run.
    pub fn refusals(&self) -> Vec<Refusal> {
        let imports = self
            .imports
            .iter()
            .filter_map(|import| match import.verdict {
                Verdict::Refused { cause, remedy } => Some(Refusal {
                    name: import.name.clone(),
                    cause,
                    remedy,
                }),
                Verdict::Offered | Verdict::Granted { .. } => None,
            });
        imports.chain(self.refused_grants.iter().cloned()).collect()
    }
}

/// Judges every function that `component` imports under `grants`. The kind, once it is known,
/// decides whether grants that make a component impure are allowed.
pub fn judge(component: &Component, grants: &Grants, kind: Option<ComputationKind>) -> Verdicts {
    judge_imports(component.imports(), grants, kind)
}

fn judge_imports(
    imports: &[ImportedFunction],
    grants: &Grants,
    kind: Option<ComputationKind>,
) -> Verdicts {
    let mut determinism = Determinism::Pure;
    let mut judged = Vec::with_capacity(imports.len());
    for import in imports {
        let access = access(import);
        let verdict = verdict(&access, grants);
        determinism = determinism.max(determinism_of(&access, &verdict, grants));
        judged.push(JudgedImport {
            name: import.to_string(),
            verdict,
        });
    }
    let impure = impure_grants(grants);
    let mut verdicts = Verdicts {
        imports: judged,
        refused_grants: Vec::new(),
        warnings: Vec::new(),
        determinism,
    };
    match kind {
        Some(ComputationKind::Map) => {
            verdicts.refused_grants = impure.into_iter().map(refuse_for_map).collect();
        }
        Some(ComputationKind::Transform) => {
            verdicts.warnings = impure.iter().map(|grant| warn(grant)).collect();
        }
        None => {}
    }
    verdicts
}

/// What a function would let a guest do.
enum Access {
    /// Nothing that differs between two calls.
    Harmless,
    /// Open files under the granted directories; without one, none.
    Files,
    /// Draw random numbers.
    Random(&'static str),
    /// Read a clock.
    Clock(&'static str),
    /// What no grant allows.
    Never {
        cause: &'static str,
        remedy: &'static str,
    },
}

const WITHOUT_RANDOM: &str = "use a BTreeMap, the SDK's map with a fixed hasher or numbers from \
                              the message itself, or grant random = \"seeded\"";
const WITHOUT_CLOCK: &str = "use the event time of the message or the watermark, or grant \
                             clock = \"frozen\"";
const WITHOUT_NETWORK: &str = "bring data in by a source and send it out by a sink";

fn access(import: &ImportedFunction) -> Access {
    let wasi_0_2 = import
        .version
        .as_deref()
        .is_some_and(|version| version.starts_with(WASI_VERSION));
    if import.interface.starts_with("wasi:") && !wasi_0_2 {
        return Access::Never {
            cause: "the component was built for another version of WASI than 0.2",
            remedy: "build it for wasm32-wasip2",
        };
    }
    let function = import.function.as_str();
    match import.interface.as_str() {
        "wasi:io/error" | "wasi:io/poll" | "wasi:io/streams" => Access::Harmless,
        "wasi:cli/environment" => known(
            function,
            &["get-environment", "get-arguments", "initial-cwd"],
        ),
        "wasi:cli/exit" => known(function, &["exit", "exit-with-code"]),
        "wasi:cli/stdin" => known(function, &["get-stdin"]),
        "wasi:cli/stdout" => known(function, &["get-stdout"]),
        "wasi:cli/stderr" => known(function, &["get-stderr"]),
        "wasi:cli/terminal-input" | "wasi:cli/terminal-output" => Access::Harmless,
        "wasi:cli/terminal-stdin" => known(function, &["get-terminal-stdin"]),
        "wasi:cli/terminal-stdout" => known(function, &["get-terminal-stdout"]),
        "wasi:cli/terminal-stderr" => known(function, &["get-terminal-stderr"]),
        "wasi:filesystem/types" | "wasi:filesystem/preopens" => Access::Files,
        "wasi:clocks/monotonic-clock" => match function {
            "subscribe-instant" | "subscribe-duration" => Access::Harmless,
            "now" | "resolution" => Access::Clock("likely Instant::now, or a runtime that starts"),
            _ => UNKNOWN,
        },
        "wasi:clocks/wall-clock" => match function {
            "now" | "resolution" => Access::Clock("likely SystemTime::now, or a library for dates"),
            _ => UNKNOWN,
        },
        "wasi:random/insecure-seed" => {
            Access::Random("likely a HashMap or HashSet, whose order hangs on a random seed")
        }
        "wasi:random/random" | "wasi:random/insecure" => {
            Access::Random("likely a random number generator, or a random UUID")
        }
        interface if interface.starts_with("wasi:sockets/") => Access::Never {
            cause: "likely std::net, or a client library on it",
            remedy: WITHOUT_NETWORK,
        },
        interface if interface.starts_with("wasi:http/") => Access::Never {
            cause: "likely an HTTP client or server",
            remedy: WITHOUT_NETWORK,
        },
        interface if interface.starts_with("tidelock:") => Access::Never {
            cause: "a computation gets all it may know as its batch and never calls the host",
            remedy: "build it against the contract in wit/ that belongs to this host",
        },
        _ => UNKNOWN,
    }
}

const UNKNOWN: Access = Access::Never {
    cause: "the host does not know this function",
    remedy: "leave out what imports it; a computation needs nothing beyond its batch",
};

fn known(function: &str, functions: &[&str]) -> Access {
    match functions.contains(&function) {
        true => Access::Harmless,
        false => UNKNOWN,
    }
}

fn verdict(access: &Access, grants: &Grants) -> Verdict {
    match *access {
        Access::Harmless => Verdict::Offered,
        Access::Files if grants.directories.is_empty() => Verdict::Offered,
        Access::Files => Verdict::Granted {
            by: directories_grant(grants),
        },
        Access::Random(cause) => match grants.random {
            RandomGrant::Deny => Verdict::Refused {
                cause,
                remedy: WITHOUT_RANDOM,
            },
            RandomGrant::Seeded => granted("random = \"seeded\""),
            RandomGrant::Host => granted("random = \"host\""),
        },
        Access::Clock(cause) => match grants.clock {
            ClockGrant::Deny => Verdict::Refused {
                cause,
                remedy: WITHOUT_CLOCK,
            },
            ClockGrant::Frozen => granted("clock = \"frozen\""),
            ClockGrant::Host => granted("clock = \"host\""),
        },
        Access::Never { cause, remedy } => Verdict::Refused { cause, remedy },
    }
}

fn granted(by: &str) -> Verdict {
    Verdict::Granted { by: by.to_owned() }
}

fn determinism_of(access: &Access, verdict: &Verdict, grants: &Grants) -> Determinism {
    if !matches!(verdict, Verdict::Granted { .. }) {
        return Determinism::Pure;
    }
    match access {
        Access::Random(_) if grants.random == RandomGrant::Seeded => Determinism::Granted,
        Access::Clock(_) if grants.clock == ClockGrant::Frozen => Determinism::Granted,
        _ => Determinism::Host,
    }
}

/// The grants that let a component see the machine, as the pipeline file spells them.
fn impure_grants(grants: &Grants) -> Vec<String> {
    let mut impure = Vec::new();
    if grants.random == RandomGrant::Host {
        impure.push("random = \"host\"".to_owned());
    }
    if grants.clock == ClockGrant::Host {
        impure.push("clock = \"host\"".to_owned());
    }
    if !grants.directories.is_empty() {
        impure.push(directories_grant(grants));
    }
    impure
}

fn directories_grant(grants: &Grants) -> String {
    let paths: Vec<String> = grants
        .directories
        .iter()
        .map(|directory| format!("{:?}", directory.guest_path))
        .collect();
    format!("directories = [{}]", paths.join(", "))
}

fn refuse_for_map(grant: String) -> Refusal {
    Refusal {
        name: grant,
        cause: "a map is run again at will and must always give the same bytes",
        remedy: "take the grant away, use \"seeded\" or \"frozen\", or make it a transform",
    }
}

fn warn(grant: &str) -> String {
    format!("{grant} makes the computation impure: running a batch again may give other effects")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::types::pipeline::DirectoryGrant;

    use super::*;

    fn judge_one(interface: &str, function: &str, grants: &Grants) -> (Verdict, Determinism) {
        let import = ImportedFunction {
            interface: interface.to_owned(),
            version: Some("0.2.6".to_owned()),
            function: function.to_owned(),
        };
        let mut verdicts = judge_imports(&[import], grants, None);
        (verdicts.imports.remove(0).verdict, verdicts.determinism)
    }

    fn check_refused(interface: &str, function: &str, remedy_part: &str) {
        match judge_one(interface, function, &Grants::default()).0 {
            Verdict::Refused { remedy, .. } => assert!(remedy.contains(remedy_part), "{remedy}"),
            other => panic!("{interface}.{function} is {other:?}"),
        }
    }

    #[test]
    fn functions_of_one_interface_are_judged_apart() {
        let none = Grants::default();
        let waits = judge_one("wasi:clocks/monotonic-clock", "subscribe-duration", &none);
        assert_eq!(waits, (Verdict::Offered, Determinism::Pure));
        check_refused("wasi:clocks/monotonic-clock", "now", "frozen");
    }

    #[test]
    fn what_differs_between_calls_is_refused_with_its_remedy() {
        check_refused("wasi:clocks/wall-clock", "now", "event time");
        check_refused("wasi:random/insecure-seed", "insecure-seed", "BTreeMap");
        check_refused("wasi:random/random", "get-random-bytes", "seeded");
        check_refused(
            "wasi:sockets/tcp",
            "[method]tcp-socket.start-connect",
            "source",
        );
        check_refused("wasi:http/outgoing-handler", "handle", "sink");
        check_refused("wasi:cli/environment", "set-environment", "leave out");
        check_refused("acme:secrets/vault", "open", "leave out");
        check_refused("tidelock:host/call", "emit", "contract");
    }

    #[test]
    fn grants_decide_the_determinism_of_what_is_used() {
        let seeded = Grants {
            random: RandomGrant::Seeded,
            clock: ClockGrant::Host,
            directories: Vec::new(),
        };
        let random = judge_one("wasi:random/random", "get-random-u64", &seeded);
        assert_eq!(random.1, Determinism::Granted);
        assert_eq!(
            judge_one("wasi:clocks/wall-clock", "now", &seeded).1,
            Determinism::Host
        );
        assert_eq!(
            judge_one("wasi:cli/stdout", "get-stdout", &seeded).1,
            Determinism::Pure
        );
    }

    #[test]
    fn host_grants_are_refused_for_maps_and_warned_about_for_transforms() {
        let grants = Grants {
            random: RandomGrant::Host,
            clock: ClockGrant::Host,
            directories: vec![DirectoryGrant {
                guest_path: "data".to_owned(),
                path: PathBuf::from("/data"),
            }],
        };
        let map = judge_imports(&[], &grants, Some(ComputationKind::Map));
        assert_eq!(map.refusals().len(), 3);
        let transform = judge_imports(&[], &grants, Some(ComputationKind::Transform));
        assert_eq!(
            (transform.refusals().len(), transform.warnings.len()),
            (0, 3)
        );
    }

    #[test]
    fn another_version_of_wasi_is_refused() {
        let import = ImportedFunction {
            interface: "wasi:cli/stdout".to_owned(),
            version: Some("0.3.0".to_owned()),
            function: "get-stdout".to_owned(),
        };
        let refusals = judge_imports(&[import], &Grants::default(), None).refusals();
        assert!(refusals[0].remedy.contains("wasm32-wasip2"), "{refusals:?}");
    }
}
