//! What the archiver refuses, and what it does after a failure: nothing is lost, and nothing is written where it must not be.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use loom_engine::schema::SourceDef;
use loom_tests::disk::Disk;
use loom_tests::duckdb::{Session, Version};

use super::{Place, Running, archive, archiver, complete, manifest, one_whole};

#[test]
fn an_archive_that_is_not_this_directorys_or_not_whole_is_refused_by_name() -> Result<()> {
    let (place, other) = (Place::new()?, Place::new()?);
    for place in [&place, &other] {
        place.push(50)?;
        place.archive()?;
    }
    let archive = &place.archive;
    let said = place.refused(&other.dir, archive, &[])?;
    for dir in [&place.dir, &other.dir] {
        ensure!(said.contains(dir.to_str().context("a path")?), "{said}");
    }
    let mut session = Session::open(Version::V1)?;
    let attached = session
        .attach_with(&other.dir, archive, "x")
        .err()
        .context("attached")?;
    ensure!(
        attached.to_string().contains("is the archive of"),
        "{attached}"
    );
    for version in [Version::V1, Version::V2] {
        let mut session = Session::open(version)?;
        let given = match version.is_v2() {
            true => "archive =",
            false => "archive :=",
        };
        for nothing in ["NULL", "''"] {
            let arguments = format!("{given} {nothing}");
            let attached = session.attach_by(&place.dir, &arguments).err();
            let attached = attached.context("attached")?.to_string();
            ensure!(attached.contains("archive is NULL or empty"), "{attached}");
        }
    }
    ensure!(
        place
            .refused(&place.dir, archive, &["--unsigned", "native"])?
            .contains("begun with --unsigned decimal")
    );
    ensure!(
        place
            .refused(&place.dir, archive, &["--source", "earl"])?
            .contains("did you mean 'early'?")
    );
    let new = place.root.path().join("new");
    let said = place.refused(&place.dir, &new, &["--source", "early", "--source", "lat"])?;
    ensure!(
        said.contains("did you mean 'late'?") && !new.exists(),
        "{said}"
    );
    // Not an archive, or not a folder, or none that can be written.
    let file = place.root.path().join("file");
    fs::write(&file, "")?;
    for (to, expected) in [
        (place.root.path(), "is not an archive"),
        (&file, "file': it is not a folder; give --to a folder"),
        (&place.dir, "is no place for other files"),
        (
            &place.dir.join("a/b"),
            "d.loom' is no place for other files; give --to a folder outside",
        ),
    ] {
        let before = names(place.root.path())?;
        let said = place.refused(&place.dir, to, &[])?;
        ensure!(said.contains(expected), "{said}");
        // A folder that is refused stays as it was.
        ensure!(names(place.root.path())? == before);
        ensure!(!place.dir.join("a").exists() && !place.dir.join("_lock").exists());
    }
    let said = place.refused(&place.dir, Path::new("/proc/archive"), &[])?;
    ensure!(said.contains("cannot create '/proc/archive"), "{said}");
    // A file that the manifest does not name, and one that it names.
    let file = manifest(archive)?["sources"][0]["files"][0]["path"]
        .as_str()
        .context("a file")?
        .to_owned();
    let copy = archive.join(&file).with_file_name("copy.parquet");
    fs::copy(archive.join(&file), &copy)?;
    let said = place.refused(&place.dir, archive, &[])?;
    ensure!(
        said.contains("copy.parquet' is in the archive and not in its manifest"),
        "{said}"
    );
    fs::rename(&copy, place.root.path().join("kept.parquet"))?;
    fs::rename(archive.join(&file), place.root.path().join("moved.parquet"))?;
    let said = place.refused(&place.dir, archive, &[])?;
    ensure!(
        said.contains(&file) && said.contains("is missing"),
        "{said}"
    );
    let attached = session
        .attach_with(&place.dir, archive, "x")
        .err()
        .context("attached")?;
    ensure!(attached.to_string().contains("is missing"), "{attached}");
    fs::rename(place.root.path().join("moved.parquet"), archive.join(&file))?;
    fs::write(archive.join("_manifest.json"), "{")?;
    let said = place.refused(&place.dir, archive, &[])?;
    ensure!(
        said.contains("_manifest.json'; restore it from a backup"),
        "{said}"
    );
    Ok(())
}

/// What stands in a folder.
fn names(folder: &Path) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

#[test]
fn a_source_whose_folder_would_have_too_long_a_name_is_named_and_the_others_are_archived()
-> Result<()> {
    let place = Place::new()?;
    place.push(100)?;
    let (mut writer, _) = place.open()?;
    let long = SourceDef::new("é".repeat(100));
    let id = writer.define_source(&long)?;
    writer.push(id, b"a record")?;
    writer.close()?;
    let output = archiver(&place.dir, &place.archive, &[])?.output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("ééé': its folder's name would have 607 bytes"),
        "{said}"
    );
    assert!(said.contains("record it under a shorter name"), "{said}");
    let printed = String::from_utf8(output.stdout)?;
    assert!(printed.starts_with("records=200 "), "{printed}");
    one_whole(&place.dir, &place.archive)
}

#[test]
fn an_archiver_that_runs_again_and_again_outlives_a_failed_pass() -> Result<()> {
    let place = Place::new()?;
    place.push(100)?;
    place.archive()?;
    let mut command = archiver(&place.dir, &place.archive, &["--every", "100ms"])?;
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut running = Running(child);
    let mut printed = BufReader::new(running.0.stdout.take().context("piped")?).lines();
    let mut said = BufReader::new(running.0.stderr.take().context("piped")?).lines();
    let mut next = || {
        printed
            .next()
            .context("it ended")?
            .map_err(anyhow::Error::from)
    };
    assert_eq!(next()?, "records=0 files=0 bytes=0");
    // The manifest cannot be replaced while a folder has the name of its successor.
    let blocked = place.archive.join("_manifest.json.new");
    fs::create_dir(&blocked)?;
    place.push(10)?;
    for count in 1..=2 {
        let line = said.next().context("it ended")??;
        assert!(line.contains("_manifest.json': Is a directory"), "{line}");
        assert!(
            line.contains(&format!("; failed passes: {count}; the next")),
            "{line}"
        );
    }
    fs::remove_dir(&blocked)?;
    while !next()?.starts_with("records=20 ") {}
    complete(&mut Session::open(Version::V2)?, &place.dir, &place.archive)
}

#[test]
fn a_full_disk_is_an_error_and_the_next_run_goes_on() -> Result<()> {
    let Some(disk) = Disk::mount("an archive on a full disk", 8)? else {
        return Ok(());
    };
    let place = Place::new()?;
    place.push(2000)?;
    let to = disk.at().join("archive");
    archive(&place.dir, &to, &[])?;
    place.push(30_000)?;
    let ballast = disk.at().join("ballast");
    let filled = std::io::copy(&mut std::io::repeat(7), &mut File::create(&ballast)?);
    ensure!(filled.is_err());
    let said = place.refused(&place.dir, &to, &[])?;
    ensure!(
        said.contains("cannot write '") && said.contains("': No space left"),
        "{said}"
    );
    one_whole(&place.dir, &to)?;
    fs::remove_file(&ballast)?;
    archive(&place.dir, &to, &[])?;
    complete(&mut Session::open(Version::V2)?, &place.dir, &to)
}
