//! Names of processes and control groups at a time, in both DuckDB versions.

use anyhow::Result;
use loom_tests::duckdb::{Session, Version};

use super::flame::load;

#[test]
fn a_process_id_that_is_used_again_is_of_two_processes() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("p.loom");
    // Process 7 began before the recording, and 8 is still there. The beginning of the third process with the id 9 is missing, and the ends of
    // this one and of the first with the id 6.
    load(
        &dir,
        "process",
        "event utf8, pid u32, ppid u32, comm utf8, cgroup u64, lived_ns u64?, exit_code u8?, signal u8?, path utf8?, args utf8?",
        "0:01.000,exit,7,1,old,1,500000000,,9,,
         0:02.000,fork,9,1,sh,1,,,,,
         0:02.100,exec,9,1,a,1,,,,/bin/a,a -x
         0:02.200,exec,9,1,b,5,,,,/bin/b,b -y
         0:02.300,fork,8,9,b,5,,,,,
         0:03.000,exit,9,1,b,5,1000000000,3,,,
         0:04.000,fork,9,8,b,5,,,,,
         0:05.000,exit,9,8,c,5,1000000000,0,,,
         0:06.000,exec,9,2,d,5,,,,/bin/d,d
         0:06.500,fork,6,1,e,5,,,,,
         0:07.000,fork,6,1,f,5,,,,,
         0:08.000,fork,9,1,g,5,,,,,",
    )?;
    for version in Version::ALL {
        let mut session = Session::open(version)?.with_macros()?;
        session.query("SET TimeZone = 'UTC'")?;
        let found = session.cells(&format!(
            "SELECT concat_ws(' ', pid, ppid, comm, coalesce(path, '-'), coalesce(args, '-'), coalesce(strftime(started, '%S.%g'), '-'),
                coalesce(strftime(ended, '%S.%g'), '-'), coalesce(exit_code::VARCHAR, '-'), coalesce(signal::VARCHAR, '-'), cgroup)
            FROM loom_processes('{}') ORDER BY pid, started NULLS LAST",
            dir.display()
        ))?;
        assert_eq!(
            found,
            [
                "6 1 e - - 06.500 07.000 - - 5",
                "6 1 f - - 07.000 - - - 5",
                "7 1 old - - 00.500 01.000 - 9 1",
                "8 9 b - - 02.300 - - - 5",
                "9 1 b /bin/b b -y 02.000 03.000 3 - 5",
                "9 8 c - - 04.000 05.000 0 - 5",
                "9 2 d /bin/d d 05.000 08.000 - - 5",
                "9 1 g - - 08.000 - - - 5",
            ]
        );
        let of_two = session.cells(&format!(
            "FROM loom_processes('{0}') AS a JOIN loom_processes('{0}') AS b ON a.pid = b.pid AND a.started < b.started
            SELECT count(*) FILTER (coalesce(a.ended > b.started, true))",
            dir.display()
        ))?;
        assert_eq!(of_two, ["0"]);
    }
    Ok(())
}

#[test]
fn a_path_of_a_control_group_names_its_container() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("g.loom");
    let id = "0123456789abcdef".repeat(4);
    let named = [
        ("/".to_owned(), "-"),
        ("/system.slice/redis.service".to_owned(), "-"),
        (format!("/system.slice/docker-{id}.scope"), id.as_str()),
        (format!("/docker/{id}"), &id),
        (format!("/machine.slice/libpod-{id}.scope/container"), &id),
        (format!("/machine.slice/libpod-conmon-{id}.scope"), "-"),
        (
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            &id,
        ),
        (format!("/kubepods/besteffort/pod12/{id}"), &id),
        (
            format!("/kubepods.slice/kubepods-pod1.slice/crio-{id}.scope"),
            &id,
        ),
        (
            r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt".to_owned(),
            "qemu-1-web",
        ),
        (
            "/machine.slice/systemd-nspawn@build.service/payload".to_owned(),
            "build",
        ),
        ("/lxc/mail/init.scope".to_owned(), "mail"),
        ("/lxc.payload.mail".to_owned(), "mail"),
    ];
    let rows = (1..)
        .zip(&named)
        .map(|(id, (path, _))| format!("0:01.000,{id},{path}\n"));
    // A group that has ended and one that begins later may have the same id.
    let rows: String = ["0:00.000,1,/earlier\n".to_owned()]
        .into_iter()
        .chain(rows)
        .collect();
    load(&dir, "cgroup", "id u64, path utf8", &rows)?;
    let expected: Vec<_> = (1..)
        .zip(&named)
        .map(|(id, (path, container))| format!("{id} {path} {container}"))
        .collect();
    for version in Version::ALL {
        let mut session = Session::open(version)?.with_macros()?;
        let found = session.cells(&format!(
            "SELECT concat_ws(' ', id, path, coalesce(container, '-')) FROM loom_cgroups('{}') ORDER BY id",
            dir.display()
        ))?;
        assert_eq!(found, expected);
    }
    Ok(())
}
