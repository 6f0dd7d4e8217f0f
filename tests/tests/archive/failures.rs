//! The directories and archives that the archiver refuses, and its work after a failure: nothing is lost, and nothing is written where it
//! must not be.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use loom_engine::schema::SourceDef;
use loom_tests::command::{Ended, Running, says};
use loom_tests::disk::Disk;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;

use super::{Place, archive, archived, archiver, complete, manifest, one_whole};

// case Archive: another directory's, or not whole
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
    let mut refused = |dir: &Path, why: &str| -> Result<()> {
        let attached = session.attach_with(dir, archive, "x").err();
        says(&attached.context("attached")?.to_string(), why);
        Ok(())
    };
    refused(&other.dir, "is the archive of")?;
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
            says(&attached, "archive is NULL or empty");
        }
    }
    for (options, why) in [
        (["--unsigned", "native"], "begun with --unsigned decimal"),
        (["--source", "earl"], "did you mean 'early'?"),
    ] {
        says(&place.refused(&place.dir, archive, &options)?, why);
    }
    let new = place.root.path().join("new");
    let said = place.refused(&place.dir, &new, &["--source", "early", "--source", "lat"])?;
    ensure!(
        said.contains("did you mean 'late'?") && !new.exists(),
        "{said}"
    );
    // An archive that is none, that is not a folder, or that cannot be written.
    let file = place.root.path().join("file");
    fs::write(&file, "")?;
    for (to, expected) in [
        (place.root.path(), "is not an archive"),
        (&file, "file': it is not a folder; give --to a folder"),
        (&place.dir, "may not hold other files"),
        (
            &place.dir.join("a/b"),
            "d.loom' may not hold other files; give --to a folder outside",
        ),
    ] {
        let before = names(place.root.path())?;
        let said = place.refused(&place.dir, to, &[])?;
        says(&said, expected);
        // A folder that is refused is not changed.
        ensure!(names(place.root.path())? == before);
        ensure!(!place.dir.join("a").exists() && !place.dir.join("_lock").exists());
    }
    let said = place.refused(&place.dir, Path::new("/proc/archive"), &[])?;
    says(&said, "cannot create '/proc/archive");
    // A file that the manifest does not name, and a missing one that it names.
    let files = archived(archive, "early")?.files;
    let file = files.first().and_then(|file| file["path"].as_str());
    let file = file.context("a file")?.to_owned();
    let copy = archive.join(&file).with_file_name("copy.parquet");
    fs::copy(archive.join(&file), &copy)?;
    let said = place.refused(&place.dir, archive, &[])?;
    says(
        &said,
        "copy.parquet' is in the archive and not in its manifest",
    );
    fs::rename(&copy, place.root.path().join("kept.parquet"))?;
    fs::rename(archive.join(&file), place.root.path().join("moved.parquet"))?;
    let said = place.refused(&place.dir, archive, &[])?;
    ensure!(
        said.contains(&file) && said.contains("is missing"),
        "{said}"
    );
    refused(&place.dir, "is missing")?;
    fs::rename(place.root.path().join("moved.parquet"), archive.join(&file))?;
    // Every line of the manifest is verified. An unfinished line is ignored.
    let path = archive.join("_manifest.jsonl");
    let sound = fs::read(&path)?;
    let mut flipped = sound.clone();
    if let Some(byte) = flipped.get_mut(sound.len() - 40) {
        *byte ^= 1;
    }
    fs::write(&path, flipped)?;
    let said = place.refused(&place.dir, archive, &[])?;
    says(&said, "_manifest.jsonl'; restore it from a backup");
    says(&said, "its checksum does not verify");
    refused(&place.dir, "its checksum does not verify")?;
    let unfinished = b"{\"source\":\"early\",\"posi";
    fs::write(&path, [&sound[..], unfinished].concat())?;
    one_whole(&place.dir, archive)?;
    place.push(30)?;
    ensure!(place.archive()?.starts_with("records=60 "));
    one_whole(&place.dir, archive)?;
    complete(&mut session, &place.dir, archive)?;
    // The archive of an earlier version is refused with that reason.
    let earlier = place.root.path().join("earlier");
    fs::create_dir_all(earlier.join("source=early"))?;
    fs::write(earlier.join("_manifest.json"), "{}")?;
    let said = place.refused(&place.dir, &earlier, &[])?;
    says(&said, "is the archive of an earlier version");
    Ok(())
}

/// The names in a folder.
fn names(folder: &Path) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

// case Archive: long names
#[test]
fn a_source_with_a_long_name_is_archived_in_a_folder_with_a_cut_one() -> Result<()> {
    let place = Place::new()?;
    place.push(100)?;
    let (mut writer, _) = place.open()?;
    for end in ["a", "b"] {
        let long = SourceDef::new("é".repeat(100) + end);
        let id = writer.define_source(&long)?;
        writer.push(id, b"a record")?;
    }
    writer.close()?;
    assert!(place.archive()?.starts_with("records=202 "));
    one_whole(&place.dir, &place.archive)?;
    let cut = names(&place.archive)?;
    let cut = cut
        .iter()
        .filter(|name| name.as_encoded_bytes().contains(&b'~'));
    assert_eq!(cut.count(), 2);
    Ok(())
}

/// The rows of both sources in an archive outside of some addresses, without the file that they are in.
fn rows_outside(archive: &Path, gap: [u64; 2]) -> Result<Vec<Vec<Option<String>>>> {
    let [from, to] = gap;
    let rows = Session::open(Version::V2)?.query(&format!(
        "SELECT source, addr, ts_ns, n FROM read_parquet('{}/*/*/*/*.parquet', hive_partitioning = true)
         WHERE addr < {from} OR addr >= {to} ORDER BY addr",
        archive.display()
    ))?;
    Ok(rows)
}

// case Archive: damage, and reads that fail
#[test]
fn damage_is_passed_over_named_and_noted_and_all_else_is_archived() -> Result<()> {
    let place = Place::new()?;
    place.push(4000)?;
    let whole = place.root.path().join("whole");
    archive(&place.dir, &whole, &[])?;
    // A bit is flipped in the head of the second segment's only unit.
    let segment = names(&place.dir.join("records"))?;
    let segment = segment.iter().nth(1).context("a second segment")?;
    let path = place.dir.join("records").join(segment);
    let mut bytes = fs::read(&path)?;
    *bytes.get_mut(20).context("a unit")? ^= 4;
    fs::write(&path, bytes)?;
    let said = Ended::from(archiver(&place.dir, &place.archive, &[])?.output()?)
        .ends(0)
        .err;
    let gap = [65_536, 2 * 65_536];
    for name in ["early", "late"] {
        let named = format!(
            "damaged records are not archived: source '{name}', addresses {} to {}: {}",
            gap[0],
            gap[1],
            path.display()
        );
        says(&said, &named);
        let gaps = archived(&place.archive, name)?.gaps;
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        let noted = ["from", "to"].map(|key| gaps[0][key].as_u64().unwrap_or(0));
        assert_eq!((noted, &gaps[0]["reason"]), (gap, &"damage".into()));
    }
    let rows = rows_outside(&whole, gap)?;
    ensure!(rows.len() > 4000, "{}", rows.len());
    assert_eq!(rows_outside(&place.archive, [0, 0])?, rows);
    // Later runs continue past it.
    place.push(50)?;
    assert!(place.archive()?.starts_with("records=100 "));
    Ok(())
}

// case Archive: damage, and reads that fail
#[test]
fn a_read_that_fails_for_a_while_is_no_gap() -> Result<()> {
    if !machine::has("a read that fails", &["strace"])? {
        return Ok(());
    }
    let place = Place::new()?;
    place.push(4000)?;
    let segment = names(&place.dir.join("records"))?;
    let segment = segment.iter().nth(1).context("a second segment")?;
    let command = archiver(&place.dir, &place.archive, &[])?;
    let said = Ended::from(
        Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-P"])
            .arg(place.dir.join("records").join(segment))
            .args(["-e", "trace=pread64,preadv2"])
            .args(["-e", "inject=pread64,preadv2:error=EIO"])
            .arg(command.get_program())
            .args(command.get_args())
            .output()?,
    )
    .ends(1)
    .err;
    says(&said, "Input/output error");
    for source in manifest(&place.archive)? {
        assert!(source.gaps.is_empty(), "{:?}", source.gaps);
    }
    one_whole(&place.dir, &place.archive)?;
    place.archive()?;
    complete(&mut Session::open(Version::V2)?, &place.dir, &place.archive)
}

#[test]
fn an_export_that_cannot_be_read_back_keeps_the_file_that_was_there() -> Result<()> {
    if !machine::has("an export that is read back", &["strace"])? {
        return Ok(());
    }
    let place = Place::new()?;
    place.push(1000)?;
    let out = place.root.path().join("out.parquet");
    fs::write(&out, "before")?;
    let partial = place.root.path().join("out.parquet.partial");
    let command = archiver(&place.dir, &place.archive, &[])?;
    let said = Ended::from(
        Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-P"])
            .arg(&partial)
            .args(["-e", "trace=read,pread64"])
            .args(["-e", "inject=read,pread64:error=EIO"])
            .arg(command.get_program())
            .arg("export")
            .arg(&place.dir)
            .args(["--source", "early", "--out"])
            .arg(&out)
            .output()?,
    )
    .ends(1)
    .err;
    let named = "out.parquet.partial' does not read back as it was written; check the disk";
    says(&said, named);
    says(&said, "Input/output error");
    assert_eq!(fs::read(&out)?, b"before");
    ensure!(!partial.exists());
    Ok(())
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
    // Nothing can be written while a file has the name of the folder for unfinished files.
    let blocked = place.archive.join("_tmp");
    fs::remove_dir(&blocked)?;
    fs::write(&blocked, "")?;
    place.push(10)?;
    for count in 1..=2 {
        let line = said.next().context("it ended")??;
        assert!(line.contains("/_tmp"), "{line}");
        says(&line, &format!("; failed passes: {count}; the next"));
    }
    fs::remove_file(&blocked)?;
    while !next()?.starts_with("records=20 ") {}
    complete(&mut Session::open(Version::V2)?, &place.dir, &place.archive)
}

// case Archive: a full disk
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
