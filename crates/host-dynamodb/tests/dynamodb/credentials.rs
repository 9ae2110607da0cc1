//! Signatures and permissions, as moto checks them with AWS's own code.

use asyncgate_store::{Error, admission::Host};

use crate::emulators::{Emulator, Kind, host_as, send, unsigned};

/// Returns the text between two words of an answer.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap();
    rest.split_once(after).unwrap().0
}

async fn iam(emulator: &Emulator, query: &str) -> String {
    let head = format!(
        "content-type: application/x-www-form-urlencoded\r\nauthorization: {}\r\n",
        unsigned("iam")
    );
    let (status, answer) = send(emulator.port, &head, query).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn signatures_are_right_and_wrong_credentials_are_reported_without_showing_them() {
    // The first five requests are not checked: they make the table, the user and its key.
    let unchecked = [("INITIAL_NO_AUTH_ACTION_COUNT", "5")];
    let Some(emulator) = Emulator::start_with(Kind::Moto, &unchecked).await else {
        return;
    };
    emulator.make("gate").await;
    iam(&emulator, "Action=CreateUser&UserName=gate").await;
    let policy = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C\
                  %22Action%22%3A%22dynamodb%3AGetItem%22%2C%22Resource%22%3A%22%2A%22%7D%5D%7D";
    let put = format!("Action=PutUserPolicy&UserName=gate&PolicyName=p&PolicyDocument={policy}");
    iam(&emulator, &put).await;
    let key = iam(&emulator, "Action=CreateAccessKey&UserName=gate").await;
    let id = between(&key, "<AccessKeyId>", "</AccessKeyId>");
    let secret = between(&key, "<SecretAccessKey>", "</SecretAccessKey>");
    let host = |id: &str, secret: &str| {
        let env = [("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", secret)];
        host_as(emulator.port, "gate", &env)
    };
    assert_eq!(host(id, secret).ping().await, Ok(()));
    for (id, secret) in [(id, "wr0ngsecret"), ("AKIAUNKNOWN", secret)] {
        let told = host(id, secret).ping().await;
        let Err(Error::Unavailable(text)) = &told else {
            panic!("{told:?}");
        };
        assert!(text.contains("credentials are not accepted"), "{text}");
        assert!(!text.contains(secret) && !text.contains(id), "{text}");
    }
    // An operation that the key may not do is an error as well.
    let tenant = asyncgate_core::TenantId::from_bytes([1; 16]);
    let listed = host(id, secret).revocations(tenant, None, 1).await;
    assert!(
        matches!(&listed, Err(Error::Unavailable(text)) if text.contains("may not do this")),
        "{listed:?}"
    );
}
