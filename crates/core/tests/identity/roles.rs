use asyncgate_core::{
    PrincipalKind,
    identity::{Missing, Role, Scope, Scopes, UnknownRole, UnknownScope, may},
};

use Scope::{
    AdminRead, AdminWrite, HostAdmin, HostUse, MailboxAdmin, MailboxRecv, MailboxSend,
    PlatformAdmin, ReceiptsAck, ReceiptsRead, TasksLease, TasksRead, TasksWrite,
};

/// By scope: its name, and for each role if it has the scope by default (`d`), can be given it (`g`), or
/// cannot have it (`-`). The columns are agent, worker, admin, system.
const TABLE: [(Scope, &str, &str); 13] = [
    (TasksRead, "tasks:read", "d-dd"),
    (TasksWrite, "tasks:write", "d-dd"),
    (TasksLease, "tasks:lease", "-dd-"),
    (ReceiptsRead, "receipts:read", "dddd"),
    (ReceiptsAck, "receipts:ack", "d-d-"),
    (AdminRead, "admin:read", "--dd"),
    (AdminWrite, "admin:write", "--d-"),
    (MailboxSend, "mailbox:send", "ddd-"),
    (MailboxRecv, "mailbox:recv", "ddd-"),
    (MailboxAdmin, "mailbox:admin", "--d-"),
    (HostUse, "host:use", "ggdd"),
    (HostAdmin, "host:admin", "--d-"),
    (PlatformAdmin, "platform:admin", "--g-"),
];

/// Every role with every scope, and the letter of the table.
fn cells() -> impl Iterator<Item = (Role, Scope, char)> {
    TABLE.iter().flat_map(|(scope, _, letters)| {
        let roles = Role::ALL.into_iter().zip(letters.chars());
        roles.map(|(role, letter)| (role, *scope, letter))
    })
}

fn everything() -> Scopes {
    Scope::ALL.into_iter().collect()
}

#[test]
fn names_are_those_of_the_wire() {
    assert_eq!(TABLE.map(|row| row.0), Scope::ALL);
    for (scope, name, _) in TABLE {
        assert_eq!(scope.as_str(), name);
        assert_eq!(name.parse(), Ok(scope));
    }
    for bad in [
        "",
        "tasks",
        "tasks:",
        "Tasks:read",
        " tasks:read",
        "tasks:read ",
    ] {
        assert_eq!(bad.parse::<Scope>(), Err(UnknownScope), "{bad}");
    }
    let names: Vec<&str> = TABLE.iter().map(|row| row.1).collect();
    assert_eq!(everything().to_string(), names.join(" "));
}

#[test]
fn each_role_has_its_scopes_by_default_and_no_others() {
    for (role, scope, letter) in cells() {
        let has = role.default_scopes().contains(scope);
        assert_eq!(has, letter == 'd', "{role:?} {scope}");
        assert_eq!(may(role, role.default_scopes(), [scope]).is_ok(), has);
        assert_eq!(role.effective_scopes(None).contains(scope), has);
    }
}

#[test]
fn a_scope_outside_the_role_gives_nothing_but_for_host_use() {
    for (role, scope, letter) in cells() {
        // Even with every scope there is, the role is the bound.
        for named in [Scopes::of(&[scope]), everything()] {
            let allowed = may(role, named, [scope]);
            assert_eq!(allowed.is_ok(), letter != '-', "{role:?} {scope}");
            let has = role.effective_scopes(Some(named)).contains(scope);
            assert_eq!(has, letter != '-', "{role:?} {scope}");
        }
    }
}

#[test]
fn a_refusal_names_the_role_or_the_scope_that_is_missing() {
    for (role, scope, letter) in cells() {
        let expected = match letter {
            // The role could have it.
            'd' | 'g' => Missing::Scope(scope),
            _ => Missing::Role(match scope {
                TasksLease => Role::Worker,
                TasksRead | TasksWrite | ReceiptsRead | ReceiptsAck | MailboxSend | MailboxRecv
                | HostUse => Role::Agent,
                AdminRead | AdminWrite | MailboxAdmin | HostAdmin | PlatformAdmin => Role::Admin,
            }),
        };
        let refused = may(role, Scopes::NONE, [scope]);
        assert_eq!(refused, Err(expected), "{role:?} {scope}");
    }
}

#[test]
fn wide_scopes_cover_narrow_ones() {
    for held in Scope::ALL {
        for needed in Scope::ALL {
            let wider = (held == AdminWrite && needed != PlatformAdmin)
                || (held == AdminRead && matches!(needed, TasksRead | ReceiptsRead))
                || (held == HostAdmin && needed == HostUse);
            let expected = wider || held == needed;
            assert_eq!(held.covers(needed), expected, "{held} {needed}");
            let allowed = may(Role::Admin, Scopes::of(&[held]), [needed]);
            assert_eq!(allowed.is_ok(), expected, "{held} {needed}");
        }
    }
}

#[test]
fn one_of_several_scopes_is_enough() {
    // Reading a task: an agent by the one, a worker by the other.
    let needed = [TasksRead, TasksLease];
    for role in [Role::Agent, Role::Worker, Role::Admin, Role::System] {
        let allowed = may(role, role.default_scopes(), needed);
        let own = role.default_scopes().and(Scopes::of(&needed));
        assert_eq!(allowed, Ok(own), "{role:?}");
    }
    let send_only = Scopes::of(&[MailboxSend]);
    let missing = |role| may(role, send_only, needed);
    assert_eq!(missing(Role::Agent), Err(Missing::Scope(TasksRead)));
    assert_eq!(missing(Role::Worker), Err(Missing::Scope(TasksLease)));
    let admins = may(Role::Agent, everything(), [MailboxAdmin, AdminRead]);
    assert_eq!(admins, Err(Missing::Role(Role::Admin)));
    for role in Role::ALL {
        assert_eq!(may(role, Scopes::NONE, []), Ok(Scopes::NONE), "{role:?}");
    }
}

/// Operations and roles, by the scopes of which each operation needs one.
#[test]
fn the_matrix_of_permissions_holds() {
    let rows = [
        ("create_task", &[TasksWrite][..], "a-as"),
        ("get_task", &[TasksRead, TasksLease], "aaas"),
        ("list_tasks", &[TasksRead], "a-as"),
        ("cancel_task", &[TasksWrite], "a-as"),
        ("lease_next", &[TasksLease], "-aa-"),
        ("list_receipts", &[ReceiptsRead], "aaas"),
        ("list_audit", &[AdminRead], "--as"),
    ];
    for (operation, needed, columns) in rows {
        for (role, column) in Role::ALL.into_iter().zip(columns.chars()) {
            let allowed = may(role, role.default_scopes(), needed.iter().copied()).is_ok();
            assert_eq!(allowed, column != '-', "{operation} {role:?}");
        }
    }
}

#[test]
fn no_credential_is_the_system() {
    for role in [Role::Agent, Role::Worker, Role::Admin] {
        assert_eq!(role.as_str().parse(), Ok(role));
    }
    assert_eq!(Role::System.as_str(), "system");
    assert_eq!("system".parse::<Role>(), Err(UnknownRole));
    for kind in PrincipalKind::ALL {
        let expected = if kind == PrincipalKind::Worker {
            Role::Worker
        } else {
            Role::Agent
        };
        assert_eq!(Role::of_kind(kind), expected, "{kind:?}");
    }
}

#[test]
fn sets_are_sets() {
    let some = Scopes::of(&[TasksRead, HostUse, TasksRead]);
    assert_eq!(some.iter().collect::<Vec<_>>(), [TasksRead, HostUse]);
    assert_eq!(some.and(Scopes::of(&[HostUse])), Scopes::of(&[HostUse]));
    assert_eq!(some.or(Scopes::NONE), some);
    assert_eq!(format!("{some:?}"), r#"{"tasks:read", "host:use"}"#);
}
