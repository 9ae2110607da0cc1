//! The texts of stories.

use asyncgate_core::{TaskId, task::Contract};
use asyncgate_ledger::Story;

use crate::world::{World, bare, eventful};

fn story_of(world: &World, place: usize) -> Story {
    let id = world.receipts[place - 1].task_id.unwrap();
    Story::read(id, world.export().as_bytes()).unwrap()
}

#[test]
fn a_lost_worker_and_a_proof() {
    let world = eventful();
    let story = story_of(&world, 1);
    let lines = story.lines();
    assert_eq!(
        lines[1..7],
        [
            "Asked:     agent/alice asked for echo (#1)",
            "Worked:    worker/bob under lease 019b8dd0-578a-7002-8000-0000000a5d60 (#2), which ended with lease.expired (#5)",
            "Worked:    worker/carol under lease 019b8dde-132a-7006-8000-0000001af592 (#6), which ended with task.completed (#7)",
            "Reported:  worker/carol reported success and discharged #1: {\"answer\":42.0,\"said\":\"h\u{e9}llo\"}",
            "Proved:    artifacts [{\"type\":\"s3\",\"url\":\"s3://bucket/result\"}] by worker/carol (#7)",
            "Open:      nothing",
        ]
    );
    assert_eq!(
        lines[12],
        "    #5  2026-01-05T11:15:00.010Z     +15m00s  the lease of bob ran out and it was queued again"
    );
    assert_eq!(lines.len(), 16);
}

#[test]
fn a_graph_ties_receipts_to_their_parents() {
    let world = eventful();
    assert_eq!(
        story_of(&world, 1).graph(),
        "\
┌─● #1  task.assigned      agent/alice
│ ● #2  task.accepted      worker/bob → system/asyncgate
│ ● #3  task.started       worker/bob → system/asyncgate
│ ● #4  task.progress      worker/bob → system/asyncgate
│ ● #5  lease.expired      system/asyncgate → agent/alice
│ ● #6  task.accepted      worker/carol → system/asyncgate
├─● #7  task.completed     worker/carol → agent/alice
└─● #8  task.result_ready  system/asyncgate → agent/alice
"
    );
    // An acknowledgement and a result follow from one receipt, so their lines run side by side.
    assert_eq!(
        story_of(&world, 15)
            .graph()
            .replace("  ┌", ". ┌")
            .replace("  │", ". │"),
        "\
. ┌─● #15  task.assigned         agent/alice
. │ ● #16  task.accepted         worker/bob → system/asyncgate
. │ ● #17  task.retry_scheduled  worker/bob → agent/alice
. │ ● #18  task.accepted         worker/bob → system/asyncgate
┌─┼─● #19  task.failed           worker/bob → agent/alice
│ └─● #20  task.result_ready     system/asyncgate → agent/alice
└───● #21  receipt.acknowledged  agent/alice → system/asyncgate
"
    );
}

#[test]
fn a_diagram_shows_who_told_whom() {
    assert_eq!(
        story_of(&eventful(), 1).mermaid(),
        "\
sequenceDiagram
    participant p1 as agent/alice
    participant p2 as worker/bob
    participant p3 as system/asyncgate
    participant p4 as worker/carol
    p1->>p1: 1 task.assigned
    Note over p1: obligation 1 opens
    p2->>p3: 2 task.accepted
    p2->>p3: 3 task.started
    p2->>p3: 4 task.progress
    p3->>p1: 5 lease.expired
    p4->>p3: 6 task.accepted
    p4->>p1: 7 task.completed
    Note over p1: obligation 1 discharged
    p3->>p1: 8 task.result_ready
"
    );
}

#[test]
fn a_success_without_proof_leaves_the_owner_waiting() {
    let mut world = World::new();
    let id = world.create("alice");
    let hold = world.lease(id, "bob");
    world.complete(&hold, id, bare());
    let lines = story_of(&world, 1).lines().join("\n");
    assert!(lines.contains("Proved:    nothing"), "{lines}");
    assert!(
        lines.contains("Open:      agent/alice is owed an outcome (#1)"),
        "{lines}"
    );
    assert!(
        lines.contains("without proof, which discharges nothing"),
        "{lines}"
    );
    let mermaid = story_of(&world, 1).mermaid();
    assert!(mermaid.contains("obligation 1 is still open"), "{mermaid}");
}

#[test]
fn every_task_of_a_ledger_can_be_told() {
    let world = eventful();
    for receipt in &world.receipts {
        let Some(id) = receipt.task_id else { continue };
        let story = Story::read(id, world.export().as_bytes()).unwrap();
        let lines = story.lines().join("\n");
        assert!(lines.contains(&format!("#{}", receipt.seq())), "{lines}");
        assert_eq!(
            story.graph().lines().count(),
            story.mermaid().matches("->>").count()
        );
    }
}

#[test]
fn a_task_that_is_not_there_has_no_story() {
    let world = eventful();
    let story = Story::read(TaskId::from_bytes([9; 16]), world.export().as_bytes()).unwrap();
    assert!(story.is_empty());
    assert!(story.lines()[1].contains("no receipt"));
    assert_eq!(story.graph(), "");
}

/// Names and bodies come from callers; none of them may control a terminal or a diagram.
#[test]
fn what_callers_sent_is_shown_escaped() {
    let mut world = World::new();
    let id = world.create("x\u{1b}[2J\n\u{202e}; p1->>p2: #forged");
    world.cancel(id, Some("\u{7}"));
    let story = story_of(&world, 1);
    for text in [story.lines().join(" "), story.graph(), story.mermaid()] {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text:?}");
    }
    assert_eq!(story.mermaid().matches("->>").count(), 3);
}

#[test]
fn what_the_server_gave_up_is_told_as_its_own_doing() {
    let mut world = World::new();
    let id = world.create_under(
        "alice",
        Contract {
            max_lease_expiries: Some(1),
            ..Contract::default()
        },
    );
    world.lease(id, "bob");
    world.expire(id);
    let lines = story_of(&world, 1).lines().join("\n");
    assert!(
        lines.contains("system/asyncgate gave it up and discharged #1"),
        "{lines}"
    );
    assert!(lines.contains("lease_expiries"), "{lines}");
    assert!(!lines.contains("queued again"), "{lines}");
}
