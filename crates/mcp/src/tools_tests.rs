//! The list of tools as a client meets it.

use super::*;
use crate::fake;

/// A token of English and JSON has about four bytes: o200k_base makes 4.16 of the whole list.
const BYTES_PER_TOKEN: usize = 4;

fn all(operations: &[Listed], names: ToolNames) -> Vec<Value> {
    parsed(&Catalogue::new(operations, names).list(|_, _| true))
}

fn parsed(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap()
}

fn product() -> Vec<Value> {
    all(&crate::backend::operations(), ToolNames::Underscore)
}

fn names(tools: &[Value]) -> Vec<&str> {
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.collect()
}

#[test]
fn tools_keep_the_order_of_the_operations_and_skip_those_without_a_tool() {
    let operations = fake::operations();
    let listed = all(&operations, ToolNames::Underscore);
    let expected = ["fake_echo", "fake_wait", "fake_refuse", "fake_old"];
    assert_eq!(names(&listed), expected);
    let dotted = all(&operations, ToolNames::Dotted);
    assert_eq!(
        names(&dotted),
        expected.map(|name| name.replace("fake_", "fake."))
    );
}

#[test]
fn a_tool_is_found_by_either_name_however_it_is_listed() {
    for listed in [ToolNames::Underscore, ToolNames::Dotted] {
        let catalogue = Catalogue::new(&fake::operations(), listed);
        for name in ["fake.refuse", "fake_refuse"] {
            let found = catalogue.find(name);
            assert_eq!(found, Some(3), "hidden ones keep their number");
        }
        for name in ["hidden", "fake-refuse", "fake", "refuse"] {
            assert_eq!(catalogue.find(name), None, "{name}");
        }
    }
}

#[test]
fn a_list_has_what_is_wanted() {
    let catalogue = Catalogue::new(&fake::operations(), ToolNames::Underscore);
    let workers = catalogue.list(|_, toolset| toolset == Toolset::Worker);
    assert_eq!(names(&parsed(&workers)), ["fake_wait"]);
    let first = catalogue.list(|number, _| number == 0);
    assert_eq!(names(&parsed(&first)), ["fake_echo"]);
    assert_eq!(catalogue.list(|_, _| false), "[]");
}

#[test]
fn every_tool_of_the_product_is_fit_for_clients() {
    let tools = product();
    assert!(tools.len() >= 18);
    // The strictest hosts and model providers take 64 of these and nothing else.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        assert!(name.len() <= 64 && name.bytes().all(plain), "{name}");
        for side in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[side]["type"], "object", "{name}");
            let text = tool[side].to_string();
            for odd in [
                r#""type":["#,
                r#""format":"uint"#,
                r#""title":"#,
                r#""$schema":"#,
            ] {
                assert!(!text.contains(odd), "{name}: {text}");
            }
        }
        let said = tool["description"].as_str().unwrap();
        assert!(said.len() > 30 && !said.contains("  "), "{name}: {said}");
    }
}

#[test]
fn the_lists_of_agents_and_workers_are_cheap() {
    let catalogue = Catalogue::new(&crate::backend::operations(), ToolNames::Underscore);
    for (toolset, tokens) in [(Toolset::Agent, 4_000), (Toolset::Worker, 4_000)] {
        let list = catalogue.list(|_, own| own == toolset);
        let bytes = list.len() + r#"{"tools":}"#.len();
        let name = toolset.as_str();
        assert!(bytes < tokens * BYTES_PER_TOKEN, "{name}: {bytes} bytes");
    }
}

#[test]
fn an_agent_is_shown_what_it_needs() {
    let catalogue = Catalogue::new(&crate::backend::operations(), ToolNames::Underscore);
    let list = parsed(&catalogue.list(|_, own| own == Toolset::Agent));
    for tool in [
        "create_task",
        "get_task",
        "list_tasks",
        "cancel_task",
        "list_open_obligations",
        "list_receipts",
        "list_ledger",
        "get_receipt",
        "ack_receipt",
    ] {
        let tool = format!("asyncgate_{tool}");
        assert!(names(&list).contains(&tool.as_str()), "{tool}");
    }
}

#[test]
fn hints_say_which_calls_a_person_should_be_asked_about() {
    let tools = product();
    let hints = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name);
        let hints = &tool.unwrap_or_else(|| panic!("no {name}"))["annotations"];
        assert_eq!(hints["openWorldHint"], false, "{name}");
        ["readOnlyHint", "destructiveHint", "idempotentHint"].map(|hint| hints[hint] == true)
    };
    let read = "asyncgate_get_task asyncgate_list_tasks asyncgate_list_open_obligations \
        asyncgate_list_receipts asyncgate_list_ledger asyncgate_read_ledger asyncgate_get_ledger_head \
        asyncgate_get_receipt asyncgate_get_config mailbox_peek mailbox_topics mailbox_dlq \
        mailbox_heads host_check_revocations host_revocations host_health limits_policies";
    let add = "asyncgate_create_task asyncgate_create_tasks asyncgate_ack_receipt asyncgate_lease_next \
        asyncgate_report_progress mailbox_recv mailbox_dlq_reprocess host_check_nonces \
        host_increment_counter host_verify limits_check";
    let advance = "asyncgate_renew_lease asyncgate_renew_leases asyncgate_release_lease asyncgate_start_task \
        asyncgate_complete asyncgate_fail asyncgate_finish_tasks asyncgate_bootstrap mailbox_send mailbox_send_batch \
        mailbox_ack mailbox_ack_batch mailbox_nack mailbox_extend";
    let end = "asyncgate_cancel_task mailbox_purge host_revoke host_unrevoke";
    for (group, expected) in [
        (read, [true, false, true]),
        (add, [false, false, false]),
        (advance, [false, false, true]),
        (end, [false, true, true]),
    ] {
        for name in group.split_whitespace() {
            assert_eq!(hints(name), expected, "{name}");
        }
    }
}

#[test]
fn a_tool_says_what_it_is_and_what_it_does() {
    let tools = all(&fake::operations(), ToolNames::Underscore);
    let echo = &tools[0];
    assert_eq!(echo["description"], "Gives back. All of it.");
    assert_eq!(echo["annotations"]["readOnlyHint"], true);
    let old = &tools[3];
    let said = "Is old. Still works. Deprecated: call fake_echo instead.";
    assert_eq!(old["description"], said);
}

#[test]
fn schemas_are_objects_and_so_are_those_of_their_properties() {
    let tools = all(&fake::operations(), ToolNames::Underscore);
    for tool in &tools {
        for side in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[side]["type"], "object", "{tool}");
        }
    }
    let input = &tools[0]["inputSchema"];
    assert_eq!(input["properties"]["payload"], json!({}));
    assert_eq!(input["additionalProperties"], false);
}

#[test]
fn a_record_is_described_once_in_a_toolset() {
    let tools = product();
    let output = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["outputSchema"].clone()
    };
    let task = output("asyncgate_get_task");
    assert_eq!(task["properties"]["task_id"], json!({"type": "string"}));
    let tasks = output("asyncgate_list_tasks");
    let said = "As asyncgate_get_task returns it.";
    assert_eq!(tasks["properties"]["tasks"]["items"]["description"], said);
    // Operators are not shown the tool that reads one receipt.
    let ledger = output("asyncgate_read_ledger");
    let receipt = &ledger["properties"]["receipts"]["items"];
    assert_eq!(
        receipt["properties"]["receipt_id"],
        json!({"type": "string"})
    );
}
