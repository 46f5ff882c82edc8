//! Tests of the built programs, in one binary: the host as a process, the guests as components. Each
//! file is one subject; no test depends on another or on the order in which they run.

// Departures and their alerts between two queues.
mod alerts;
// Outputs that follow from several messages.
mod batching;
// All findings of a pipeline at once, before anything runs.
mod check;
// What `cargo xtask components` leaves behind.
mod components;
// Pipelines that change between runs.
mod changes;
// The flights example as it is written, for tests to change.
mod example;
// The pipeline that several of them run.
mod flights;
// Dead letters at the command line.
mod dead_letters;
// Directories that are read and written, and records that are made.
mod directories;
// What an epoch is, and each fault that one can meet.
mod epochs;
// The same of a job between two queues.
mod queue_epochs;
// Kills between what is pushed into a queue and what a pipeline makes of it.
mod queue_kills;
// Queues at the command line and in pipelines, as a person uses them.
mod queues;
// A pipeline's graph, printed and drawn.
mod graph;
// What lanes leave in a data directory.
mod lanes;
// The keyed-sum example as it is written, for tests to change.
mod keyed_sum;
// SIGKILL at any moment, and output as if nothing had happened.
mod isolation;
mod kill;
// The operating manual, word for word.
mod operating;
// Standard output that is closed or full.
mod printing;
// Transforms cut into several partitions.
mod partitions;
// Transforms whose partitions change between runs.
mod repartition;
// The command line as a person uses it.
mod run;
// What guests can do, and what becomes of those that try more.
mod sandbox;
// Files that come into the list of a source and leave it.
mod source_lists;
// Sources of several files.
mod sources;
// What states a data directory keeps, shown.
mod state;
// Backups, restoring, and what is found of damage.
mod store;
// Records that a source can't decode.
mod undecodable;
// What fails is one item, and no result depends on how batches are cut.
mod verdicts;
// A pipeline that does with timers what its lines say, for tests to change and to run.
mod alarms;
// Watermarks, timers, lateness and times to live of real runs.
mod time;
// Departures by the hour, from data in order and out of order.
mod hourly_delays;
// Two streams that come together by event time.
mod flights_weather;
// What a run shows of its jobs.
mod watching;
// When an epoch ends, and what makes no difference to it.
mod cadence;
