//! `cargo xtask demo`: the flights example from nothing to a verified result. It runs in a folder of
//! its own below `target/demo`, so that it can begin from a clean state each time without touching
//! what somebody keeps beside the example.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

use crate::command;
use crate::components;
use crate::flights::{Answers, Results};
use crate::steps::{self, Steps};
use crate::toolchain::Toolchain;
use crate::workspace::Workspace;

/// Builds what is missing, runs the pipeline from a clean state, shows the result and compares it
/// with the answers that an independent calculation gave.
///
/// # Errors
///
/// If a build or the run fails, or the result is not the expected one.
pub(crate) fn run(workspace: &Workspace, toolchain: &Toolchain, year: Option<&Path>) -> Result<()> {
    let year = year
        .map(|path| {
            path.canonicalize()
                .with_context(|| format!("failed to find the flights file {}", path.display()))
        })
        .transpose()?;
    let mut steps = Steps::default();
    let example = workspace.root.join("examples/flights");
    let guests = workspace
        .guests
        .iter()
        .filter(|guest| guest.folder.starts_with(&example));
    steps.run("components", || {
        components::build(workspace, toolchain, guests)
    })?;
    steps.run("host", || {
        command::run(command::cargo().current_dir(&workspace.root).args([
            "build",
            "--release",
            "--locked",
            "--package",
            "tidelock",
        ]))
    })?;

    let (name, answers) = match year {
        Some(_) => ("year", Answers::Year),
        None => ("week", Answers::Week),
    };
    let folder = workspace.root.join("target/demo").join(name);
    let pipeline = prepare(&example, &folder, year.as_deref())?;

    let tidelock = workspace.target.join("release/tidelock");
    let elapsed = steps.run("run", || {
        let (result, elapsed) =
            steps::timed(|| command::run(Command::new(tidelock).arg("run").arg(&pipeline)));
        result.map(|()| elapsed)
    })?;

    let results = Results::read(&folder.join("out"))?;
    println!("\n{results}");
    println!(
        "{} records, the header aside, in {} (start included): {:.0} records/s",
        results.records(),
        steps::seconds(elapsed),
        results.records() as f64 / elapsed.as_secs_f64()
    );
    println!("The whole output lies in {}", folder.join("out").display());
    println!("Pipeline file and state:  {}", folder.display());

    let compared = answers.verify(&folder.join("out"), &example.join("expected"))?;
    println!(
        "Equal to the independently calculated answers: {}",
        compared.join(", ")
    );
    Ok(())
}

/// Makes the demo's folder anew and writes its pipeline file: the example's own, its paths made
/// absolute, and reading `year` if that is given.
fn prepare(example: &Path, folder: &Path, year: Option<&Path>) -> Result<PathBuf> {
    if folder.exists() {
        eprintln!(
            "\nremoving the last demo's output and state in {}",
            folder.display()
        );
        fs::remove_dir_all(folder)
            .with_context(|| format!("failed to remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;

    let original = example.join("tidelock.toml");
    let text = fs::read_to_string(&original)
        .with_context(|| format!("failed to read {}", original.display()))?;
    let derived = derive(&text, example, year).with_context(|| {
        format!(
            "failed to derive the demo's pipeline from {}",
            original.display()
        )
    })?;
    let path = folder.join("tidelock.toml");
    fs::write(&path, derived).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}

/// The example's pipeline as it reads from another folder.
fn derive(text: &str, example: &Path, year: Option<&Path>) -> Result<String> {
    let mut pipeline: Table = text.parse()?;
    for (name, path) in table(&mut pipeline, "components")? {
        let Value::String(path) = path else {
            bail!("component {name} is not named by a path");
        };
        *path = absolute(example, path)?;
    }
    for (name, source) in table(&mut pipeline, "sources")? {
        let Some(Value::String(path)) = source.get_mut("path") else {
            bail!("source {name} has no path");
        };
        *path = match year {
            Some(year) => year
                .to_str()
                .context("the path of the flights file is not UTF-8")?
                .to_owned(),
            None => absolute(example, path)?,
        };
    }
    let body = toml::to_string(&pipeline)?;
    Ok(format!(
        "# Derived from examples/flights/tidelock.toml by `cargo xtask demo`, which writes it anew each time.\n{body}"
    ))
}

fn table<'a>(pipeline: &'a mut Table, name: &str) -> Result<&'a mut Table> {
    match pipeline.get_mut(name) {
        Some(Value::Table(table)) => Ok(table),
        _ => bail!("it has no table [{name}]"),
    }
}

fn absolute(folder: &Path, path: &str) -> Result<String> {
    let path = folder.join(path);
    let path = path
        .canonicalize()
        .with_context(|| format!("it names {}, which cannot be found", path.display()))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| anyhow::anyhow!("the path {} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPELINE: &str = r#"
        name = "flights"
        [components]
        parse = "src/main.rs"
        [sources.departures]
        type = "file"
        path = "src/demo.rs"
        [sinks.alerts]
        type = "file"
        path = "out/alerts.jsonl"
    "#;

    fn derived(year: Option<&Path>) -> Table {
        let example = Path::new(env!("CARGO_MANIFEST_DIR"));
        derive(PIPELINE, example, year).unwrap().parse().unwrap()
    }

    #[test]
    fn components_and_sources_are_found_from_another_folder_and_sinks_write_into_it() {
        let pipeline = derived(None);
        let component = pipeline["components"]["parse"].as_str().unwrap();
        assert!(
            Path::new(component).is_absolute() && component.ends_with("src/main.rs"),
            "{component}"
        );
        let source = pipeline["sources"]["departures"]["path"].as_str().unwrap();
        assert!(
            Path::new(source).is_absolute() && source.ends_with("src/demo.rs"),
            "{source}"
        );
        assert_eq!(
            pipeline["sinks"]["alerts"]["path"].as_str(),
            Some("out/alerts.jsonl")
        );
    }

    #[test]
    fn the_year_replaces_the_source_and_nothing_else() {
        let mut year = derived(Some(Path::new("/data/flights.csv.zip")));
        assert_eq!(
            year["sources"]["departures"]["path"].as_str(),
            Some("/data/flights.csv.zip")
        );
        year["sources"] = derived(None)["sources"].clone();
        assert_eq!(year, derived(None));
    }

    #[test]
    fn a_path_that_leads_nowhere_is_named() {
        let text = PIPELINE.replace("src/demo.rs", "src/absent.csv");
        let error = derive(&text, Path::new(env!("CARGO_MANIFEST_DIR")), None).unwrap_err();
        assert!(format!("{error:#}").contains("src/absent.csv"), "{error:#}");
    }
}
