//! `asyncgate mail` as a person and as a program sees it.

use std::process::Command;

use serde_json::Value;

use crate::{
    cli::{Scene, lines},
    harness::{KEY, Talk, eventually},
};

fn stop(talk: Talk) {
    let killed = Command::new("kill")
        .args(["-s", "INT", &talk.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let ended = talk.wait();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr, "");
}

/// Whether no topic holds a message.
fn is_empty(scene: &Scene) -> bool {
    let topics = scene.says_json("mail topics");
    let holds = |topic: &Value| ["depth", "inflight", "dlq_depth"].map(|what| topic[what].as_u64());
    let mut topics = topics.as_array().unwrap().iter();
    topics.all(|topic| holds(topic) == [Some(0); 3])
}

/// Gives the only message of a topic back until it is dead.
fn kill(scene: &Scene, topic: &str) {
    for _ in 0..5 {
        let taken = scene.says_json(&format!("mail recv {topic} --max 1 --wait 10"));
        let (id, lease) = (&taken[0]["msg_id"], &taken[0]["lease"]);
        let (id, lease) = (id.as_str().unwrap(), lease.as_str().unwrap());
        scene.says(&format!(
            "mail nack {id} --lease {lease} --reason ink --error no-ink-left --delay 0"
        ));
    }
}

#[test]
fn a_message_is_sent_seen_received_kept_and_done() {
    let scene = Scene::set();
    let id = scene.says("mail send jobs paint --idem-key p1 --attr by=ada --attr n=1");
    assert_eq!(lines(&id), ["ID"]);
    assert_eq!(
        scene.says("mail send jobs paint --idem-key p1 --attr by=ada --attr n=1"),
        format!("{id}  (was sent before)")
    );
    assert_eq!(
        lines(&scene.says("mail peek jobs")),
        ["MESSAGE ATTEMPT SENT KEY CONTENT", "ID 0 TIME p1 paint"]
    );
    let seen = scene.says_json("mail peek jobs");
    assert_eq!(seen[0]["attrs"]["by"], "ada");
    let topics = lines(&scene.says("mail topics"));
    assert_eq!(topics[0], "TOPIC READY DELAYED INFLIGHT DEAD OLDEST");
    assert!(topics[1].starts_with("jobs 1 0 0 0 "), "{topics:?}");

    let taken = scene.says("mail recv jobs --visibility 600");
    assert_eq!(
        lines(&taken),
        ["MESSAGE ATTEMPT SENT LEASE CONTENT", "ID 1 TIME ID paint"]
    );
    assert_eq!(scene.says("mail recv jobs"), "nothing");
    let lease = taken.split_whitespace().rev().nth(1).unwrap();
    let kept = scene.says(&format!(
        "mail extend {id} --lease {lease} --visibility 900.5"
    ));
    assert_eq!(lines(&kept), ["yours until TIME"]);
    let done = format!("mail ack {id} --lease {lease}");
    assert_eq!(scene.says(&done), "done");
    assert_eq!(scene.says_json(&done)["ok"], true);
    assert!(is_empty(&scene));
    assert_eq!(
        lines(&scene.says("mail heads"))[0],
        "SHARD MESSAGES LINK SIGNED"
    );
    assert_eq!(scene.says_json("mail heads")[0]["seq"], 1);
}

#[test]
fn scripts_get_ids_and_nothing_else() {
    let scene = Scene::set();
    let id = scene.says("mail send jobs paint --idem-key p1 -q");
    assert_eq!(scene.says("mail send jobs paint --idem-key p1 -q"), id);
    let delivery = scene.says("mail recv jobs --visibility 600 -q");
    assert!(
        delivery.starts_with(&format!("{id} --lease ")),
        "{delivery}"
    );
    assert_eq!(scene.says(&format!("mail ack {delivery}")), "done");
    assert_eq!(scene.says("mail recv jobs -q"), "");
}

#[test]
fn text_is_sent_as_it_stands() {
    let scene = Scene::set();
    for text in ["@home", "-", "--json"] {
        scene.says(&format!("mail send jobs --text {text}"));
        assert_eq!(scene.run("mail recv jobs --raw --ack").stdout, text);
    }
    let both = scene.run("mail send jobs x --text y");
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn content_comes_from_anywhere_and_is_shown_as_what_it_is() {
    let scene = Scene::set();
    let dir = scene.server.launch().dir();
    std::fs::write(dir.join("bytes"), [0xff, 0xfe]).unwrap();
    scene.says("mail send jobs @bytes");
    scene.says("mail send jobs Z3LDvMOfZQ== --base64");
    scene.says("mail send jobs -5 --priority -1 --delay 0 --ttl 60");
    let mut stdin = Talk::start(scene.command("mail send jobs -"));
    stdin.say("two");
    stdin.say("lines");
    assert!(stdin.end().status.success());

    let contents = |flag: &str| -> Vec<String> {
        let seen = lines(&scene.says(&format!("mail peek jobs {flag}")));
        let last = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
        seen[1..].iter().map(last).collect()
    };
    assert_eq!(
        contents(""),
        ["base64://4=", "grüße", "two\\nlines\\n", "-5"]
    );
    assert_eq!(
        contents("--base64"),
        ["//4=", "Z3LDvMOfZQ==", "dHdvCmxpbmVzCg==", "LTU="]
    );
    let seen = scene.says_json("mail peek jobs --max 1");
    assert_eq!(seen[0]["payload_b64"], "//4=");
}

#[test]
fn each_line_is_a_message_and_contents_come_back_as_they_are() {
    let scene = Scene::set();
    let send = |flags: &str, lines: &[&str]| {
        let mut talk = Talk::start(scene.command(&format!("mail send jobs --lines {flags}")));
        for line in lines {
            talk.say(line);
        }
        talk.end()
    };
    let ended = send("--idem-key import", &["one", "", "three"]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(lines(&ended.stdout), ["ID", "ID", "ID"]);
    let again = send("--idem-key import --json", &["one", "", "three"]);
    for line in again.stdout.lines() {
        let sent: Value = serde_json::from_str(line).unwrap();
        assert_eq!(sent["duplicate"], true, "{line}");
    }
    let other = send("--idem-key import", &["one", "two"]);
    assert_eq!(other.status.code(), Some(3), "{other:?}");
    let complaint = &other.stderr;
    assert!(complaint.contains("line 2 was not sent"), "{complaint}");
    assert!(complaint.contains("E_IDEM_CONFLICT"), "{complaint}");

    let many: Vec<String> = (0..2_500).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let ended = send("--partition p", &many);
    assert_eq!(ended.stdout.lines().count(), 2_500, "{}", ended.stderr);
    let wrong = send("--base64", &["YQ==", "@@"]);
    assert!(wrong.stderr.contains("line 2"), "{}", wrong.stderr);

    let raw = scene.run("mail recv jobs --max 3 --raw --ack");
    assert_eq!(raw.stdout, "onethree");
}

#[test]
fn what_was_printed_is_acknowledged_if_asked() {
    let scene = Scene::set();
    for n in 0..3 {
        scene.says(&format!("mail send jobs {n}"));
    }
    let taken = scene.says_json("mail recv jobs --max 2 --ack");
    assert_eq!(taken.as_array().unwrap().len(), 2);
    let topics = scene.says_json("mail topics");
    assert_eq!(
        (&topics[0]["ready"], &topics[0]["inflight"]),
        (&1.into(), &0.into())
    );

    // Nobody reads it, so nobody has it.
    let mut unread = scene
        .command("mail recv jobs --wait 10 --ack")
        .spawn()
        .unwrap();
    drop(unread.stdout.take());
    assert!(unread.wait().unwrap().success());
    assert_eq!(scene.says_json("mail topics")[0]["inflight"], 1);
}

#[test]
fn dead_letters_are_listed_and_brought_back() {
    let scene = Scene::set();
    for n in 0..3 {
        scene.says(&format!("mail send jobs {n}"));
        kill(&scene, "jobs");
    }
    let dead = lines(&scene.says("mail dlq list jobs --reason ink --limit 2"));
    assert_eq!(
        dead,
        [
            "MESSAGE TOPIC CAUSE REASON ATTEMPT DIED ERROR",
            "ID jobs max_attempts ink 5 TIME no-ink-left",
            "ID jobs max_attempts ink 5 TIME no-ink-left",
        ]
    );
    assert_eq!(scene.says("mail dlq list --older-than 3600"), "nothing");
    assert_eq!(scene.says_json("mail dlq list")[2]["cause"], "max_attempts");

    let reprocess = |flags: &str| scene.says(&format!("mail dlq reprocess jobs {flags}"));
    assert_eq!(reprocess("--dry-run"), "3 would come back");
    assert_eq!(reprocess("--reason other"), "0 came back");
    assert_eq!(reprocess("--limit 1"), "1 came back");
    assert_eq!(reprocess("--per-second 1"), "2 came back");
    assert_eq!(
        scene.says_json("mail peek jobs").as_array().unwrap().len(),
        3
    );
}

#[test]
fn a_purge_must_be_meant() {
    let scene = Scene::set();
    scene.says("mail send jobs x");
    scene.ends("mail purge jobs --state all", 2, "say --yes");
    assert_eq!(
        scene.says_json("mail purge jobs --state dlq --yes")["purged"],
        0
    );
    assert_eq!(
        scene.says("mail purge jobs --state ready --yes"),
        "1 thrown away"
    );
    assert!(is_empty(&scene));
}

#[test]
fn what_went_wrong_is_one_line_and_an_exit_code() {
    let scene = Scene::set();
    let nobody = "01KA5ZV0000000000000000000";
    scene.ends(&format!("mail ack {nobody}"), 4, "E_NOT_FOUND");
    scene.ends("mail ack 7", 3, "E_SCHEMA");
    scene.ends("mail topics --key wrong", 3, "check the key");
    scene.ends("mail recv jobs --follow --key wrong", 3, "E_CAP_AUTH");
    scene.ends("mail send jobs @nowhere", 1, "cannot read nowhere");
    scene.ends("mail send jobs @@ --base64", 1, "cannot read @");
    scene.ends("mail send jobs = --base64", 2, "not base64");
    scene.ends(
        "mail topics --url http://127.0.0.1:1",
        5,
        "is the server running?",
    );
    scene.ends(
        "mail recv t --follow --url http://127.0.0.1:1",
        5,
        "is the server running?",
    );
    let id = scene.says("mail send jobs x");
    scene.ends(&format!("mail ack {id}"), 3, "E_NOT_LEASED");
    for line in [
        "mail send jobs x --delay soon",
        "mail send jobs x --attr nothing",
        "mail recv jobs --follow --wait 3",
        "mail purge jobs --state some",
        "mail dlq reprocess jobs --per-second 0",
    ] {
        let ended = scene.run(line);
        assert_eq!(ended.status.code(), Some(2), "{line}: {ended:?}");
    }
}

#[test]
fn following_prints_messages_as_they_come() {
    let scene = Scene::set();
    let live = Talk::start(scene.command("mail recv jobs --follow --ack --visibility 600"));
    scene.says("mail send jobs one");
    assert_eq!(lines(&live.hear()), ["MESSAGE ATTEMPT SENT LEASE CONTENT"]);
    assert_eq!(lines(&live.hear()), ["ID 1 TIME ID one"]);
    scene.says("mail send jobs two");
    assert_eq!(lines(&live.hear()), ["ID 1 TIME ID two"]);
    eventually("both are acknowledged", || is_empty(&scene).then_some(()));
    stop(live);

    let live = Talk::start(scene.command("mail recv jobs --follow --json"));
    let id = scene.says("mail send jobs three");
    let message: Value = serde_json::from_str(&live.hear()).unwrap();
    assert_eq!(message["msg_id"], id);
    stop(live);
}

#[test]
fn following_outlives_the_server() {
    let scene = Scene::set();
    let live = Talk::start(scene.command("mail recv jobs --follow --json --ack"));
    scene.says("mail send jobs before");
    let before: Value = serde_json::from_str(&live.hear()).unwrap();
    eventually("it is acknowledged", || is_empty(&scene).then_some(()));
    let address = scene.server.address.to_string();
    let launch = scene.server.kill().bind(Some(&address));
    let server = launch.start();
    let scene = Scene { server };
    let id = scene.says(&format!("mail send jobs after --key {KEY}"));
    let after: Value = serde_json::from_str(&live.hear()).unwrap();
    assert_eq!(after["msg_id"], id);
    assert_ne!(after["msg_id"], before["msg_id"]);
    stop(live);
}

#[test]
fn one_message_is_looked_at_brought_back_and_thrown_away() {
    let scene = Scene::set();
    let id = scene.says("mail send jobs paint --idem-key p1 -q");
    let seen = scene.says_json(&format!("mail get {id}"));
    assert_eq!(
        [&seen["state"], &seen["payload_text"]],
        ["ready", "paint"],
        "what is text is sent as text"
    );
    let said = scene.says(&format!("mail get {id}"));
    assert!(said.contains("state      ready"), "{said}");
    assert!(said.contains("content    paint"), "{said}");
    let none = scene.says(&format!("mail redrive {id}"));
    assert_eq!(none, "it is no dead letter");
    kill(&scene, "jobs");
    let dead = scene.says_json(&format!("mail get {id}"));
    assert_eq!(
        [&dead["state"], &dead["reason"], &dead["last_error"]],
        ["dead", "ink", "no-ink-left"]
    );
    assert_eq!(scene.says(&format!("mail redrive {id}")), "brought back");
    assert_eq!(scene.says(&format!("mail delete {id}")), "thrown away");
    let refused = scene.run(&format!("mail get {id}"));
    assert!(refused.stderr.contains("E_NOT_FOUND"), "{refused:?}");
    assert!(is_empty(&scene));
}
