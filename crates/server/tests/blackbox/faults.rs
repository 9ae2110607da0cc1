//! Faults of the disk: a full one stops writes and loses nothing, a useless one stops the start.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::json;
use tempfile::TempDir;

use crate::calls::text;
use crate::harness::{Launch, Server, eventually, run};
use crate::http::{Request, Response};
use crate::journal::{Journal, verify_ledger, verify_stories};

/// A small file system of its own, unmounted when dropped.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// Nothing, with a word on why, where the machine does not allow it.
    #[expect(clippy::print_stderr, reason = "a test that was skipped says so")]
    fn mount(megabytes: u32, options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={megabytes}m{options}"),
                "tmpfs",
            ])
            .arg(dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { dir }),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                eprintln!("skipped: cannot mount a tmpfs here: {}", why.trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: cannot mount a tmpfs here: {error}");
                None
            }
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Writes a file until nothing more fits.
    fn fill(&self) {
        let mut filler = File::create(self.dir.path().join("filler")).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            let piece = vec![b'x'; size];
            while filler.write_all(&piece).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.dir.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that is just being killed may still have files open.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
    }
}

/// Creates tasks with a payload until one is refused; gives back the ids of the others.
#[track_caller]
fn create_until_refused(server: &Server, key: &str) -> (Vec<String>, Response) {
    let mut ids = Vec::new();
    for n in 0..10_000 {
        let input = json!({
            "type": "x",
            "principal_id": "alice",
            "idempotency_key": format!("{key}-{n}"),
            "payload": "x".repeat(20_000),
        });
        let answer = server.post("/v1/tasks", &input);
        if answer.status != 201 {
            return (ids, answer);
        }
        ids.push(text(&answer.json()["task_id"]));
    }
    panic!("the disk does not get full");
}

#[track_caller]
fn is_unavailable(answer: &Response) {
    let refusal = answer.refused(503, "UNAVAILABLE");
    let after = answer.header("Retry-After").expect("Retry-After");
    assert!(after.parse::<u32>().unwrap() > 0, "{answer:?}");
    let told = refusal.to_string().to_lowercase();
    for internal in ["sqlite", "database", "/tmp", "errno"] {
        assert!(!told.contains(internal), "internal text in {told}");
    }
}

fn ready(server: &Server) -> Response {
    server.send_bare(&Request::get("/readyz"))
}

#[track_caller]
fn until_ready(server: &Server) {
    eventually("readiness returns by itself", || {
        (ready(server).status == 200).then_some(())
    });
}

#[test]
fn a_full_disk_stops_writes_tells_so_and_recovers_by_itself() {
    let Some(disk) = SmallDisk::mount(12, "") else {
        return;
    };
    let server = Launch::new().data_dir(&disk.data()).start();
    let first = server.create(&json!({"type": "first", "principal_id": "alice"}));
    let held = server.take("w");
    assert_eq!(ready(&server).status, 200);
    disk.fill();
    let (_, refused) = create_until_refused(&server, "full");
    is_unavailable(&refused);

    let not_ready = ready(&server);
    assert_eq!(not_ready.status, 503, "{not_ready:?}");
    assert!(not_ready.header("Retry-After").is_some());
    assert_eq!(
        server.send_bare(&Request::get("/healthz")).status,
        200,
        "it is alive"
    );
    let health = server.send_bare(&Request::get("/v1/health")).expect(200);
    assert_eq!(health["status"], "failing");
    let writes = [
        server.under(&held, "progress", &json!({"progress": 1})),
        server.under(&held, "complete", &json!({"artifacts": [1]})),
        server.post(&format!("/v1/tasks/{first}/cancel"), &json!({})),
    ];
    for answer in &writes {
        is_unavailable(answer);
    }
    // Reads go on.
    assert_eq!(server.status(&first), "leased");
    let before = server.ledger();
    assert_eq!(server.get("/v1/tasks").status, 200);
    assert_eq!(server.send_bare(&Request::get("/metrics")).status, 200);

    disk.free();
    until_ready(&server);
    assert_eq!(server.ledger(), before, "what was refused left no trace");
    server.complete(&held, &json!("after"));
    assert_eq!(server.status(&first), "succeeded");
    server.create_plain("after");
    let health = server.send_bare(&Request::get("/v1/health")).expect(200);
    assert_eq!(health["status"], "healthy");
}

#[test]
fn writes_come_back_with_the_first_that_fits_even_before_readiness_was_asked() {
    let Some(disk) = SmallDisk::mount(12, "") else {
        return;
    };
    let server = Launch::new().data_dir(&disk.data()).start();
    disk.fill();
    let (_, refused) = create_until_refused(&server, "full");
    is_unavailable(&refused);
    disk.free();
    server.create_plain("x");
    assert_eq!(ready(&server).status, 200);
}

#[test]
fn nothing_acknowledged_on_a_full_disk_is_lost_even_to_a_kill() {
    let Some(disk) = SmallDisk::mount(24, "") else {
        return;
    };
    let launch = Launch::new().data_dir(&disk.data());
    let server = launch.start();
    let mut ids = Vec::new();
    for round in 0..3 {
        disk.fill();
        let (created, refused) = create_until_refused(&server, &format!("{round}"));
        is_unavailable(&refused);
        ids.extend(created);
        disk.free();
        until_ready(&server);
        for n in 0..20 {
            let payload = "y".repeat(10_000);
            let input = json!({"type": "y", "payload": payload, "idempotency_key": format!("y-{round}-{n}")});
            ids.push(server.create(&input));
        }
    }
    disk.fill();
    let (created, _) = create_until_refused(&server, "last");
    ids.extend(created);
    let ledger = server.ledger();
    server.kill();
    disk.free();
    let server = launch.start();
    assert_eq!(server.ledger(), ledger);
    for id in &ids {
        assert_eq!(server.status(id), "queued");
    }
    assert_eq!(
        server.metric("asyncgate_tasks{status=\"queued\"}"),
        Some(ids.len() as f64)
    );
}

#[test]
fn a_disk_that_fills_up_under_load_loses_nothing() {
    let Some(disk) = SmallDisk::mount(16, "") else {
        return;
    };
    let launch = Launch::new().data_dir(&disk.data());
    let server = launch.start();
    let journal = Journal::default();
    for round in 0..3 {
        let enough = journal.promises() + 60;
        thread::scope(|scope| {
            // Each hand stops at its first 503.
            scope.spawn(|| journal.load(&server, 4, round));
            eventually("enough was promised", || {
                (journal.promises() >= enough).then_some(())
            });
            disk.fill();
        });
        assert_eq!(ready(&server).status, 503);
        disk.free();
        until_ready(&server);
    }
    let ledger = verify_ledger(&server);
    verify_stories(&server, &ledger);
    journal.verify(&server);
    let ledger = server.ledger();
    server.kill();
    let server = launch.start();
    assert_eq!(server.ledger(), ledger);
    journal.verify(&server);
    journal.verify_claimable(&server);
    verify_ledger(&server);
}

#[test]
fn deadlines_that_come_while_the_disk_is_full_are_kept_when_space_returns() {
    let Some(disk) = SmallDisk::mount(12, "") else {
        return;
    };
    let launch = Launch::new()
        .data_dir(&disk.data())
        .set("expiry_jitter_max_seconds=0");
    let server = launch.start();
    let id = server.create_plain("x");
    let lost = server.take_for("lost", 1);
    disk.fill();
    let (_, refused) = create_until_refused(&server, "full");
    is_unavailable(&refused);
    eventually("the lease has ended", || {
        let answer = server.under(&lost, "renew", &json!({}));
        (answer.status == 409).then_some(())
    });
    disk.free();
    let next =
        server.claim(&json!({"worker_id": "next", "wait_seconds": 20, "accept_types": ["x"]}));
    assert!(next.iter().any(|held| held.task_id == id), "{next:?}");
    assert_eq!(server.task(&id)["attempt"], 0);
}

#[test]
fn a_start_on_a_full_disk_is_refused_with_one_line() {
    let Some(disk) = SmallDisk::mount(4, "") else {
        return;
    };
    disk.fill();
    let ended = Launch::new().data_dir(&disk.data()).refused();
    assert!(ended.complaint().contains("data"), "{ended:?}");
    disk.free();
    Launch::new().data_dir(&disk.data()).start();
}

#[test]
fn a_data_directory_that_cannot_be_written_stops_the_start_with_one_line() {
    let launch = Launch::new();
    let in_the_way = launch.dir().join("file");
    std::fs::write(&in_the_way, "in the way").unwrap();
    let mut places = vec![
        in_the_way.clone(),
        in_the_way.join("below"),
        PathBuf::from("/proc/nowhere"),
    ];
    let read_only = SmallDisk::mount(1, ",ro");
    if let Some(disk) = &read_only {
        places.push(disk.data());
    }
    for place in places {
        let ended = Launch::new().data_dir(&place).refused();
        names(&ended.stderr, &place);
        ended.complaint();
    }
    assert_eq!(std::fs::read_to_string(&in_the_way).unwrap(), "in the way");
}

#[track_caller]
fn names(message: &str, path: &Path) {
    let path = path.to_str().unwrap();
    assert!(message.contains(path), "{path} is not named in {message}");
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let first = Server::start();
    let id = first.create_plain("x");
    let data = first.launch().data().to_owned();
    let ended = Launch::new().data_dir(&data).refused();
    names(ended.complaint(), &data);
    assert!(ended.stderr.contains("in use"), "{ended:?}");
    let mcp = run(Launch::new().data_dir(&data).command("mcp"));
    assert!(!mcp.status.success(), "{mcp:?}");
    assert!(mcp.complaint().contains("in use"), "{mcp:?}");
    assert_eq!(first.status(&id), "queued", "the first goes on");
    let launch = first.kill();
    let again = launch.start();
    assert_eq!(again.status(&id), "queued", "a dead process holds nothing");
}

#[test]
fn a_file_that_is_no_database_stops_the_start_and_is_left_as_it_is() {
    let launch = Launch::new();
    launch.start().stop();
    let database = launch.data().join("asyncgate.db");
    let garbage = b"this is not a database ".repeat(1_000);
    std::fs::write(&database, &garbage).unwrap();
    for beside in ["asyncgate.db-wal", "asyncgate.db-shm"] {
        // They are gone after an orderly stop.
        let _ = std::fs::remove_file(launch.data().join(beside));
    }
    let ended = launch.refused();
    names(ended.complaint(), &database);
    assert_eq!(std::fs::read(&database).unwrap(), garbage);
}

#[test]
fn a_port_that_is_taken_stops_the_start_before_anything_is_made() {
    let first = Server::start();
    let address = first.address.to_string();
    let launch = Launch::new().bind(Some(&address));
    let ended = launch.refused();
    assert!(ended.complaint().contains(&address), "{ended:?}");
    assert!(!launch.data().exists(), "nothing is left behind");
}
