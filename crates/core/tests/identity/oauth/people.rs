//! Who may enter, and with which password.

use asyncgate_core::identity::{
    IdentityLink, Person,
    manage::people::{BadPassword, LOCAL, check_password},
    oauth::enter,
};

use super::world::{World, new_person};

#[test]
fn passwords_are_for_people_without_a_provider() {
    let subject = Person::Subject("ada".to_owned());
    let email = Person::Email("ada@x.example".to_owned());
    let misplaced = Err(BadPassword::Misplaced);
    for (provider, person, password, expected) in [
        (LOCAL, &subject, Some("correct horse"), Ok(())),
        (LOCAL, &subject, None, misplaced),
        (LOCAL, &email, Some("correct horse"), misplaced),
        (LOCAL, &email, None, misplaced),
        ("acme", &subject, Some("correct horse"), misplaced),
        ("acme", &email, Some("correct horse"), misplaced),
        ("acme", &subject, None, Ok(())),
        ("acme", &email, None, Ok(())),
    ] {
        let checked = check_password(provider, person, password);
        assert_eq!(checked, expected, "{provider} {person:?} {password:?}");
    }
    for (password, expected) in [
        ("1234567", false),
        ("12345678", true),
        ("\u{e9}\u{e9}\u{e9}\u{e9}", false),
        (&"x".repeat(1_024), true),
        (&"x".repeat(1_025), false),
    ] {
        let checked = check_password(LOCAL, &subject, Some(password));
        assert_eq!(checked.is_ok(), expected, "{}", password.len());
    }
}

#[test]
fn the_providers_own_name_counts_before_the_address() {
    let mut world = World::new();
    let by_subject = world.let_in(new_person("ada"));
    let by_email = world.let_in(IdentityLink {
        person: Person::Email("ada@x.example".to_owned()),
        ..new_person("eve")
    });
    let both = enter(Some(&by_subject), Some(&by_email));
    assert_eq!(both, Some(&by_subject));
    assert_eq!(enter(None, Some(&by_email)), Some(&by_email));
    assert_eq!(enter(None, None), None);
}
