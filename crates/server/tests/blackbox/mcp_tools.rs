//! The list of tools over HTTP and stdio: names, toolsets, and what it costs a model.

use serde_json::{Value, json};

use crate::calls::{members, text};
use crate::harness::{Launch, Server, Talk, run};
use crate::mcp::{ERAS, Era, carry_to, message, outcome};

/// The tools of the contract for tasks.
const TOOLS: [&str; 18] = [
    "asyncgate_ack_receipt",
    "asyncgate_bootstrap",
    "asyncgate_cancel_task",
    "asyncgate_complete",
    "asyncgate_create_task",
    "asyncgate_fail",
    "asyncgate_get_config",
    "asyncgate_get_receipt",
    "asyncgate_get_task",
    "asyncgate_lease_next",
    "asyncgate_list_ledger",
    "asyncgate_list_open_obligations",
    "asyncgate_list_receipts",
    "asyncgate_list_tasks",
    "asyncgate_release_lease",
    "asyncgate_renew_lease",
    "asyncgate_report_progress",
    "asyncgate_start_task",
];

/// A token of such a text has about four bytes.
const BYTES_PER_TOKEN: usize = 4;

/// The result of `tools/list` at a target.
#[track_caller]
fn list_at(server: &Server, era: Era, target: &str) -> Value {
    let list = message(era, 1, "tools/list", json!({}));
    let answer = server.send(carry_to(target, era, &list)).expect(200);
    answer["result"].clone()
}

fn names(result: &Value) -> Vec<&str> {
    let tools = result["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.collect()
}

#[test]
fn the_tools_are_listed_with_their_schemas() {
    let server = Server::start();
    let mut lists = Vec::new();
    for era in ERAS {
        let result = list_at(&server, era, "/mcp?tools=all");
        if era == Era::Stateless {
            assert_eq!(result["resultType"], "complete");
            assert!(result["ttlMs"].as_u64().is_some(), "{result}");
            assert_eq!(result["cacheScope"], "private");
        }
        lists.push(result["tools"].clone());
    }
    assert_eq!(lists[0], lists[1], "in a fixed order");
    let tools = lists[0].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    for tool in TOOLS {
        assert!(names.contains(&tool), "{tool} is missing");
    }
    for tool in tools {
        assert!(text(&tool["description"]).len() > 20, "{tool}");
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{tool}");
        }
        let properties = &tool["inputSchema"]["properties"];
        let all = properties
            .as_object()
            .map_or(Vec::new(), |_| members(properties));
        for required in tool["inputSchema"]["required"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert!(all.contains(&required.as_str().unwrap()), "{tool}");
        }
    }
}

#[test]
fn who_does_not_choose_is_shown_little() {
    let server = Server::start();
    let shown = list_at(&server, Era::Stateless, "/mcp");
    let bytes = shown.to_string().len();
    assert!(bytes < 4_000 * BYTES_PER_TOKEN, "{bytes} bytes");
    for tool in [
        "create_task",
        "get_task",
        "list_open_obligations",
        "ack_receipt",
    ] {
        assert!(
            names(&shown).contains(&&*format!("asyncgate_{tool}")),
            "{tool}"
        );
    }
    assert!(!names(&shown).contains(&"asyncgate_lease_next"));
    let agent = list_at(&server, Era::Stateless, "/mcp?tools=agent");
    assert_eq!(shown["tools"], agent["tools"]);
}

#[test]
fn toolsets_are_chosen_by_the_query_or_the_setting() {
    let server = Launch::new().set("mcp.toolsets=worker,ops").start();
    let usual = list_at(&server, Era::Handshake, "/mcp");
    let both = list_at(&server, Era::Handshake, "/mcp?tools=ops,worker");
    assert_eq!(names(&usual), names(&both), "the same order always");
    assert!(names(&usual).contains(&"mailbox_purge"));
    let mail = list_at(&server, Era::Stateless, "/mcp?tools=mailbox");
    assert!(names(&mail).contains(&"mailbox_send"));
    assert!(
        names(&mail).iter().all(|name| name.starts_with("mailbox_")),
        "{mail}"
    );
    let admission = list_at(&server, Era::Stateless, "/mcp?tools=admission");
    for tool in ["host_check_nonces", "limits_check", "limits_policies"] {
        assert!(names(&admission).contains(&tool), "{tool}");
    }
    let all = list_at(
        &server,
        Era::Handshake,
        "/mcp?tools=agent,worker,mailbox,admission,ops",
    );
    let short = list_at(&server, Era::Handshake, "/mcp?tools=all");
    assert_eq!(names(&all), names(&short));
    for (target, word) in [
        ("/mcp?tools=agent,nothing", "nothing"),
        ("/mcp?toolz=agent", "toolz"),
    ] {
        let list = message(Era::Stateless, 1, "tools/list", json!({}));
        let answer = server.send(carry_to(target, Era::Stateless, &list));
        let refused = answer.refused(400, "BAD_REQUEST");
        assert!(text(&refused["message"]).contains(word), "{refused}");
    }
    // Toolsets are about lists: whoever may call a tool may call it.
    let config = json!({"name": "asyncgate_get_config", "arguments": {}});
    let call = message(Era::Stateless, 1, "tools/call", config);
    let answer = server.send(carry_to("/mcp?tools=mailbox", Era::Stateless, &call));
    outcome(&answer.expect(200)).unwrap();
    let refused = Launch::new().set("mcp.toolsets=agents").refused();
    assert!(refused.complaint().contains("mcp.toolsets"), "{refused:?}");
}

#[test]
fn names_may_have_dots_if_the_operator_wants_them() {
    let server = Launch::new().set("mcp.tool_names=dotted").start();
    let all = list_at(&server, Era::Stateless, "/mcp?tools=all");
    for tool in [
        "asyncgate.create_task",
        "mailbox.send",
        "host.check_nonces",
        "limits.check",
    ] {
        assert!(names(&all).contains(&tool), "{tool}");
    }
    assert!(names(&all).iter().all(|name| name.contains('.')), "{all}");
}

#[test]
fn a_call_may_use_either_name_and_so_may_its_header() {
    let server = Server::start();
    for (name, header) in [
        ("asyncgate_get_config", "asyncgate_get_config"),
        ("asyncgate.get_config", "asyncgate.get_config"),
        ("asyncgate.get_config", "asyncgate_get_config"),
        ("asyncgate_get_config", "asyncgate.get_config"),
    ] {
        let params = json!({"name": name, "arguments": {}});
        let call = message(Era::Stateless, 1, "tools/call", params);
        let mut routed = call.clone();
        routed["params"]["name"] = json!(header);
        let request = carry_to("/mcp", Era::Stateless, &routed).body(call.to_string());
        let answer = server.send(request).expect(200);
        assert_eq!(
            outcome(&answer).unwrap()["durability"],
            "fsync",
            "{name} {header}"
        );
    }
}

#[test]
fn policies_can_be_listed_before_they_are_asked() {
    let server = Server::start();
    let call = |tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let call = message(Era::Stateless, 1, "tools/call", params);
        outcome(
            &server
                .send(carry_to("/mcp", Era::Stateless, &call))
                .expect(200),
        )
        .unwrap()
    };
    let listed = call("limits_policies", json!({}));
    assert_eq!(listed, server.get("/v1/limits/policies").expect(200));
    for policy in listed["policies"].as_array().unwrap() {
        let arguments = json!({"policy": policy["policy"], "key": "k", "peek": true});
        assert_eq!(call("limits_check", arguments)["policy"], policy["policy"]);
    }
}

#[test]
fn toolsets_are_chosen_over_stdio_too() {
    let list = message(Era::Handshake, 1, "tools/list", json!({})).to_string();
    for (args, tool, other) in [
        (&[][..], "asyncgate_create_task", "mailbox_send"),
        (
            &["--tools", "mailbox"],
            "mailbox_send",
            "asyncgate_create_task",
        ),
    ] {
        let mut talk = Talk::start(Launch::without_key().args(args).command("mcp"));
        talk.say(&list);
        let answer: Value = serde_json::from_str(&talk.hear()).unwrap();
        let names = names(&answer["result"]);
        assert!(
            names.contains(&tool) && !names.contains(&other),
            "{names:?}"
        );
        assert_eq!(talk.end().status.code(), Some(0));
    }
    let ended = run(Launch::without_key()
        .args(&["--tools", "nothing"])
        .command("mcp"));
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(
        ended.complaint().contains("agent,worker,mailbox"),
        "{ended:?}"
    );
}
