//! The workloads: what the engine runs, as a pipeline file.

use std::path::Path;

/// A task that both programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Count and sum for each of 100,000 users, a row for each event.
    W1,
    /// User and amount of each event, no state.
    W3,
}

impl Workload {
    /// Its name in the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::W1 => "w1",
            Workload::W3 => "w3",
        }
    }

    /// What it does, for the report.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Workload::W1 => {
                "file -> map (parse) -> transform (count and sum of 100,000 keys) -> file, durable"
            }
            Workload::W3 => "file -> map (parse) -> file, durable",
        }
    }

    /// Its pipeline file.
    pub(crate) fn pipeline(
        self,
        input: &Path,
        components: &Path,
        output: &Path,
        partitions: u32,
    ) -> String {
        let component = |name: &str| components.join(format!("keyed_sum_{name}.wasm"));
        let parse = component("parse");
        let sum = component("sum");
        let head = format!(
            "name = \"bench\"\n\
             [sources.events]\ntype = \"file\"\npath = {input:?}\nformat = \"lines\"\n\
             [computations.parse]\ncomponent = \"parse\"\nkind = \"map\"\n\
             inputs = [\"events\"]\noutputs = [\"amounts\"]\n"
        );
        // What is 1 where nothing is said need not be said.
        let partitions = match partitions {
            1 => String::new(),
            count => format!("partitions = {count}\n"),
        };
        let tail = match self {
            Workload::W1 => format!(
                "[computations.sum]\ncomponent = \"sum\"\nkind = \"transform\"\n{partitions}\
                 inputs = [\"amounts\"]\noutputs = [\"sums\"]\n\
                 [sinks.rows]\ntype = \"file\"\npath = {output:?}\ninputs = [\"sums\"]\n\
                 [components]\nparse = {parse:?}\nsum = {sum:?}\n"
            ),
            Workload::W3 => format!(
                "[sinks.rows]\ntype = \"file\"\npath = {output:?}\ninputs = [\"amounts\"]\n\
                 [components]\nparse = {parse:?}\n"
            ),
        };
        head + &tail
    }
}
