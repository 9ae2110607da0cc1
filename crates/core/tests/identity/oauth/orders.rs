//! Codes and tokens in every order in which clients, thieves, admins and time can meet them.

use std::collections::BTreeSet;

use asyncgate_core::identity::{
    IdentityLink, OauthClient, Record,
    audit::Event,
    oauth::{Exchange, GrantRefusal},
};
use proptest::prelude::*;

use super::world::{
    DAY_MS, LIVES, OTHER_CHALLENGE, Registrar, World, asking, exchanging, new_person, refreshing,
};

/// Something that happens.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The client exchanges its code.
    Exchange,
    /// Somebody tries the code without the verifier.
    WrongVerifier,
    /// Another client tries the code.
    OtherExchange,
    /// The client uses the refresh token that it was given as the nth.
    Refresh(usize),
    /// Another client uses that token.
    OtherRefresh(usize),
    /// The client revokes its tokens.
    Revoke,
    /// An admin lets the person in no more.
    RemovePerson,
    /// The tenant is suspended, or let in again.
    Suspend(bool),
    /// Time passes.
    Advance(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Exchange),
        1 => Just(Step::WrongVerifier),
        1 => Just(Step::OtherExchange),
        6 => (0..6_usize).prop_map(Step::Refresh),
        1 => (0..6_usize).prop_map(Step::OtherRefresh),
        1 => Just(Step::Revoke),
        1 => Just(Step::RemovePerson),
        1 => any::<bool>().prop_map(Step::Suspend),
        2 => prop::sample::select(vec![1, 59_999, 60_000, DAY_MS, LIVES.refresh_ms]).prop_map(Step::Advance),
    ]
}

/// What a reader of the contract would keep in mind.
struct Model {
    issued_at: i64,
    /// The code was exchanged.
    exchanged: bool,
    /// The times at which the refresh tokens were given out.
    given: Vec<i64>,
    used: BTreeSet<usize>,
    revoked: bool,
    person: bool,
    suspended: bool,
}

impl Model {
    /// Says if a step gives tokens, and notes what it does.
    fn gives_tokens(&mut self, step: Step, now: i64) -> bool {
        let let_in = self.person && !self.suspended;
        match step {
            Step::Exchange | Step::WrongVerifier | Step::OtherExchange if self.exchanged => {
                self.revoked = true;
                false
            }
            Step::Exchange => {
                let good = let_in && now < self.issued_at + 60_000;
                if good {
                    self.exchanged = true;
                    self.given.push(now);
                }
                good
            }
            Step::Refresh(n) | Step::OtherRefresh(n) if self.used.contains(&n) => {
                self.revoked = true;
                false
            }
            Step::Refresh(n) => {
                let given = self.given.get(n);
                let lives = given.is_some_and(|at| now < at + LIVES.refresh_ms);
                let good = lives && let_in && !self.revoked;
                if good {
                    self.used.insert(n);
                    self.given.push(now);
                }
                good
            }
            Step::Revoke => {
                self.revoked |= self.exchanged;
                false
            }
            Step::RemovePerson => {
                self.person = false;
                false
            }
            Step::Suspend(suspended) => {
                self.suspended = suspended;
                false
            }
            Step::WrongVerifier
            | Step::OtherExchange
            | Step::OtherRefresh(_)
            | Step::Advance(_) => false,
        }
    }
}

struct Scene {
    world: World,
    client: OauthClient,
    other: OauthClient,
    person: IdentityLink,
    family: Option<asyncgate_core::RecordId>,
    given: usize,
}

impl Scene {
    fn new() -> Self {
        let mut world = World::new();
        let (client, other) = (
            world.register(Registrar::Admin),
            world.register(Registrar::Admin),
        );
        let person = world.let_in(new_person("ada"));
        world.log_in(&asking(&client), &person, "code").unwrap();
        Self {
            world,
            client,
            other,
            person,
            family: None,
            given: 0,
        }
    }

    /// Does a step. Returns true if it gave tokens.
    fn take(&mut self, step: Step) -> bool {
        let next = format!("refresh {}", self.given);
        let issued = match step {
            Step::Exchange => {
                let asked = exchanging(&self.client, &next);
                self.world.exchange("code", &asked)
            }
            Step::WrongVerifier => {
                let asked = Exchange {
                    challenge: OTHER_CHALLENGE.to_owned(),
                    ..exchanging(&self.client, &next)
                };
                self.world.exchange("code", &asked)
            }
            Step::OtherExchange => {
                let asked = exchanging(&self.other, &next);
                self.world.exchange("code", &asked)
            }
            Step::Refresh(n) => {
                let asked = refreshing(&self.client, &next);
                self.world.refresh(&format!("refresh {n}"), &asked)
            }
            Step::OtherRefresh(n) => {
                let asked = refreshing(&self.other, &next);
                self.world.refresh(&format!("refresh {n}"), &asked)
            }
            Step::Revoke => {
                let client = self.client.clone();
                if let Some(family) = self.family {
                    self.world.revoke(family, &client).unwrap();
                }
                Err(GrantRefusal::Revoked)
            }
            Step::RemovePerson => {
                let key = Record::IdentityLink(self.person.clone()).key();
                self.world.records.remove(&key);
                Err(GrantRefusal::NoLeave)
            }
            Step::Suspend(suspended) => {
                self.world.suspend(suspended);
                Err(GrantRefusal::Suspended)
            }
            Step::Advance(millis) => {
                self.world.advance(millis);
                Err(GrantRefusal::Expired)
            }
        };
        let Ok(issued) = issued else {
            return false;
        };
        self.given += 1;
        self.family = Some(issued.family);
        true
    }

    fn is_revoked(&self) -> bool {
        let family = self.family.and_then(|family| self.world.family(family));
        family.is_some_and(|family| family.revoked_at.is_some())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn tokens_are_given_when_the_contract_says_so(steps in prop::collection::vec(step(), 1..24)) {
        let mut scene = Scene::new();
        let mut model = Model {
            issued_at: scene.world.now.as_millis(),
            exchanged: false,
            given: Vec::new(),
            used: BTreeSet::new(),
            revoked: false,
            person: true,
            suspended: false,
        };
        for step in steps {
            let expected = model.gives_tokens(step, scene.world.now.as_millis());
            prop_assert_eq!(scene.take(step), expected, "{:?}", step);
            prop_assert_eq!(scene.is_revoked(), model.revoked, "{:?}", step);
            // A family is revoked once, and told of once.
            let ends = [Event::TokenRevoked, Event::TokenReuseDetected];
            let told = scene.world.events.iter().filter(|event| ends.contains(event));
            prop_assert_eq!(told.count(), usize::from(model.revoked));
        }
    }
}

/// Every order of four things that can happen to a code and its first tokens.
#[test]
fn every_order_of_use_reuse_revocation_and_expiry_ends_in_no_tokens() {
    let things = [
        Step::Exchange,
        Step::Refresh(0),
        Step::Refresh(1),
        Step::Revoke,
        Step::Advance(LIVES.refresh_ms),
    ];
    let mut orders = 0;
    for first in 0..things.len() {
        for second in 0..things.len() {
            for third in 0..things.len() {
                for fourth in 0..things.len() {
                    let mut scene = Scene::new();
                    let order = [first, second, third, fourth].map(|n| things[n]);
                    let gave = order.map(|step| scene.take(step));
                    let exchanges = order
                        .iter()
                        .zip(gave)
                        .filter(|(step, gave)| *gave && matches!(step, Step::Exchange));
                    assert!(exchanges.count() <= 1, "{order:?}");
                    if scene.is_revoked() {
                        for n in 0..4 {
                            assert!(!scene.take(Step::Refresh(n)), "{order:?}");
                        }
                        assert!(!scene.take(Step::Exchange), "{order:?}");
                    }
                    orders += 1;
                }
            }
        }
    }
    assert_eq!(orders, 625);
}
