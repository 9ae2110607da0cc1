//! A machine whose clock is wrong, or is set while the server runs.
//!
//! A library that is loaded into the server moves the time of day by the seconds that stand in a file. It is
//! made with the C compiler that the build needs anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Launch, Server, eventually};
use crate::http::Request;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, time);
    const char *path = getenv("CLOCK_OFFSET");
    if (failed || id != CLOCK_REALTIME || !path) return failed;
    FILE *file = fopen(path, "r");
    long long seconds = 0;
    if (file) {
        if (fscanf(file, "%lld", &seconds) == 1) time->tv_sec += seconds;
        fclose(file);
    }
    return 0;
}
"#;

const DAY: i64 = 86_400;

/// Makes the library, or says that it cannot be made here.
fn library(dir: &Path) -> Option<PathBuf> {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output();
    if made.is_ok_and(|made| made.status.success()) && cfg!(target_os = "linux") {
        return Some(library);
    }
    eprintln!("skipped: the library that moves the clock cannot be made");
    None
}

/// A launch on a machine whose clock is off by the seconds in the file `offset`.
fn shifted(seconds: i64) -> Option<Launch> {
    let launch = Launch::new();
    let library = library(launch.dir())?;
    let offset = launch.dir().join("offset");
    set(&launch, seconds);
    let launch = launch.env("LD_PRELOAD", library.to_str().unwrap());
    Some(launch.env("CLOCK_OFFSET", offset.to_str().unwrap()))
}

/// Sets the clock of a launch. It is renamed into place, so that nobody reads half a number.
fn set(launch: &Launch, seconds: i64) {
    let (new, offset) = (launch.dir().join("offset.new"), launch.dir().join("offset"));
    std::fs::write(&new, seconds.to_string()).unwrap();
    std::fs::rename(new, offset).unwrap();
}

fn ready(server: &Server) -> Value {
    server.send_bare(&Request::get("/readyz")).expect(200)
}

fn created_at(server: &Server, id: &str) -> String {
    server.task(id)["created_at"].as_str().unwrap().to_owned()
}

#[test]
fn a_step_of_the_clock_is_told_and_stops_nothing() {
    let Some(launch) = shifted(0) else { return };
    let server = launch.start();
    assert_eq!(ready(&server), json!({"status": "ready"}));
    server.create_plain("x");
    let held = server.take_for("w", 600);
    let mut last = created_at(&server, &server.create_plain("y"));
    for (n, (step, told)) in [
        (3_600, "ahead"),
        (-3_600, "behind"),
        (10_000 * DAY, "ahead"),
        // A few years before 1970.
        (-25_000 * DAY, "behind"),
    ]
    .into_iter()
    .enumerate()
    {
        set(&launch, step);
        let notice = eventually("a notice", || {
            let notice = ready(&server)["notices"][0].clone();
            (notice["key"] == "clock_skew" && notice["text"].as_str()?.contains(told))
                .then_some(notice)
        });
        assert!(notice["text"].as_str().unwrap().contains("restart") || told == "behind");
        // New work goes on, in time that never runs back, and no lease ends.
        let id = server.create_plain("z");
        let at = created_at(&server, &id);
        assert!(at >= last, "{at} is before {last}");
        last = at;
        server.send_message("t", &n.to_string(), "aGk=");
        server.under(&held, "renew", &json!({})).expect(200);
        eventually("the step is told", || {
            (server.log().matches("clock.stepped").count() > n).then_some(())
        });
        let steps = server.metric("asyncgate_clock_steps_total").unwrap();
        assert!(steps > n as f64, "{steps}");
    }
    set(&launch, 0);
    eventually("all is well again", || {
        (ready(&server) == json!({"status": "ready"})).then_some(())
    });
    server.complete(&held, &json!(1));
    let log = server.stop().stderr;
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_restart_with_a_clock_behind_goes_on_from_the_last_commit() {
    let Some(launch) = shifted(0) else { return };
    let server = launch.start();
    let before = created_at(&server, &server.create_plain("x"));
    server.stop();
    set(&launch, -30 * DAY);
    let server = launch.start();
    let after = created_at(&server, &server.create_plain("x"));
    assert!(after >= before, "{after} is before {before}");
    let notice = ready(&server)["notices"][0]["text"].clone();
    assert!(notice.as_str().unwrap().contains("behind"), "{notice}");
    server.logged("the machine's clock is behind the last commit");
    server.stop();
}

#[test]
fn a_restart_with_a_clock_far_ahead_is_warned_of() {
    let Some(launch) = shifted(0) else { return };
    let server = launch.start();
    server.create_plain("x");
    server.stop();
    set(&launch, 400 * DAY);
    let server = launch.start();
    server.logged("the machine's clock is far ahead of the last commit");
    server.create_plain("x");
    server.stop();
}

#[test]
fn before_1970_the_start_is_refused_with_a_clear_line() {
    let Some(launch) = shifted(-25_000 * DAY) else {
        return;
    };
    let ended = launch.refused();
    let complaint = ended.complaint();
    assert!(
        complaint.contains("set it to a time between 1970"),
        "{ended:?}"
    );
}
