//! Lists the open obligations of a principal: what it is still owed.

use asyncgate_api::{Code, ListOpenObligations, ListOpenObligationsOutput, RelationshipRecord};
use asyncgate_core::{Changes, Decision, Delivery, Principal, Relationship, Seq};
use asyncgate_store::ReadSet;

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

impl Execute for ListOpenObligations {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let principal = caller.acting(Named::principal(
            input.principal_kind,
            input.principal_id,
            input.principal_instance_id,
        ))?;
        let settings = engine.settings();
        let limit = input::limit(
            "limit",
            input.limit,
            settings.default_list_limit,
            settings.max_list_limit,
        )?;
        let since = input.since_receipt_id.as_deref();
        let page = engine.page_after(caller.tenant, since, limit).await?;
        let owner = principal.key();
        let open = engine.store.obligations(caller.tenant, owner, page).await?;
        let relationship = sight(engine, caller, principal).await?;
        let cut = view::cut(open, page.limit, since);
        Ok(ListOpenObligationsOutput {
            server: engine.server_info(),
            relationship,
            open_obligations: cut
                .receipts
                .iter()
                .map(|found| view::receipt(caller.tenant, found))
                .collect(),
            cursor: cut.cursor,
            next_cursor: cut.next_cursor,
        })
    }
}

/// Records that a principal was seen. A reader is answered also while nothing can be written.
async fn sight(
    engine: &Engine,
    caller: &Caller,
    principal: Principal,
) -> Result<RelationshipRecord, Fault> {
    let key = principal.key();
    match seen(engine, caller, principal.clone(), Vec::new()).await {
        Err(fault) if fault.code == Code::Unavailable => {
            let known = engine.store.relationship(caller.tenant, key).await?;
            let policy = &engine.settings().policy;
            let seen = Relationship::seen(known, principal, engine.now(), policy);
            Ok(view::relationship(&seen))
        }
        answer => answer,
    }
}

/// Records that a principal was seen, and which receipts it was handed for the first time. Nothing is
/// written if nothing is new.
pub(super) async fn seen(
    engine: &Engine,
    caller: &Caller,
    principal: Principal,
    delivered: Vec<Seq>,
) -> Result<RelationshipRecord, Fault> {
    let key = principal.key();
    let policy = &engine.settings().policy;
    if let Some(known) = engine
        .store
        .relationship(caller.tenant, key.clone())
        .await?
    {
        let known_again =
            Relationship::seen(Some(known.clone()), principal.clone(), engine.now(), policy);
        if delivered.is_empty() && !known_again.is_news(&known) {
            return Ok(view::relationship(&known_again));
        }
    }
    let reads = ReadSet {
        relationship: Some(key),
        ..ReadSet::default()
    };
    let relationship = engine
        .transact(caller.tenant, 0, reads, move |env, snapshot| {
            let known = snapshot.relationship;
            let seen = Relationship::seen(known, principal.clone(), env.now, &env.policy);
            let seqs = delivered.clone();
            Ok(Decision {
                changes: Changes {
                    relationship: Some(seen.clone()),
                    delivered: (!seqs.is_empty()).then_some(Delivery { seqs, at: env.now }),
                    ..Changes::default()
                },
                output: seen,
            })
        })
        .await?;
    Ok(view::relationship(&relationship))
}
