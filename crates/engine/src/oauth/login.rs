//! Logins: a person is known by a provider or by a password, and the client is given a code.

use asyncgate_core::{
    TenantId,
    identity::{
        Find, IdentityLink, OauthClient, Person, Record, RecordKind,
        manage::people::{LOCAL, MAX_PASSWORD_BYTES},
        oauth::{AuthorizationRequest, Entering, LoginRefusal, enter, issue_code},
    },
};
use asyncgate_store::identity::{Reads, Snapshot};

use super::{Oauth, Visitor, WEIGHT, hash, take};
use crate::{Fault, NewSecret};

/// The longest name of a person who has a password here.
const MAX_NAME_BYTES: usize = 256;
/// The beginning of every code, by which people recognise one.
const CODE_PREFIX: &str = "agc_";

/// A person as a provider of identities has made them known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// The provider's name in the settings.
    pub provider: String,
    /// The provider's own name for the person.
    pub subject: String,
    /// The person's e-mail address, if the provider has verified it.
    pub verified_email: Option<String>,
}

/// The reason why a password lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordRefusal {
    /// The name or the password is wrong. Which of them is not told.
    Wrong,
    /// The person is known, and still not let in.
    Login(LoginRefusal),
}

impl Oauth {
    /// Lets a person in whom a provider has identified. Returns the code for the client.
    pub async fn log_in(
        &self,
        asked: &AuthorizationRequest,
        who: &Identified,
    ) -> Result<Result<NewSecret, LoginRefusal>, Fault> {
        let Some(client) = self.client(asked.client).await? else {
            return Ok(Err(LoginRefusal::NoClient));
        };
        let person = |person: Person| Find::person(client.tenant, &who.provider, &person);
        let mut links = vec![person(Person::Subject(who.subject.clone()))];
        links.extend(
            who.verified_email
                .as_ref()
                .map(|email| person(Person::Email(email.clone()))),
        );
        let entered = self.enter(asked, &client, links).await?;
        if let Err(refusal) = entered {
            self.note_refused(&client, &who.provider, &refusal.to_string());
        }
        Ok(entered)
    }

    /// Lets a person in who shows a password. Returns the code for the client.
    ///
    /// A wrong name takes as long as a wrong password, so that nobody learns which names there are.
    pub async fn log_in_with_password(
        &self,
        asked: &AuthorizationRequest,
        name: &str,
        password: NewSecret,
    ) -> Result<Result<NewSecret, PasswordRefusal>, Fault> {
        let Some(client) = self.client(asked.client).await? else {
            return Ok(Err(PasswordRefusal::Login(LoginRefusal::NoClient)));
        };
        self.bounds.attempts.count_password(self.now())?;
        let link = self.local_person(client.tenant, name).await?;
        if !self.is_password_of(link.as_ref(), password).await? {
            self.note_refused(&client, LOCAL, "the name or the password is wrong");
            return Ok(Err(PasswordRefusal::Wrong));
        }
        let Some(link) = link else {
            return Ok(Err(PasswordRefusal::Wrong));
        };
        self.bounds.attempts.forgive();
        let links = vec![Find::id(RecordKind::IdentityLink, link.id)];
        let entered = self.enter(asked, &client, links).await?;
        if let Err(refusal) = entered {
            self.note_refused(&client, LOCAL, &refusal.to_string());
        }
        Ok(entered.map_err(PasswordRefusal::Login))
    }

    async fn local_person(
        &self,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<IdentityLink>, Fault> {
        if name.len() > MAX_NAME_BYTES {
            return Ok(None);
        }
        let person = Person::Subject(name.to_owned());
        let found = self.find(Find::person(tenant, LOCAL, &person)).await?;
        Ok(found.and_then(Record::into_link))
    }

    /// Returns true if the password is that of the person. Without a person, a hash is made all the same.
    async fn is_password_of(
        &self,
        link: Option<&IdentityLink>,
        password: NewSecret,
    ) -> Result<bool, Fault> {
        // The semaphore is never closed.
        let _turn = self.bounds.hashing.acquire().await.ok();
        let keyring = self.engine.keyring()?;
        // Longer ones are not hashed, and nobody has one.
        let fits = password.reveal().len() <= MAX_PASSWORD_BYTES;
        let shown = match fits {
            true => password,
            false => NewSecret::new(String::new()),
        };
        match link.and_then(|link| link.password_hash.clone()) {
            Some(kept) => Ok(keyring.has_hash(shown, kept).await? && fits),
            None => {
                let decoy = self.bounds.decoy.get_or_try_init(|| async {
                    let nobodys = keyring.secret()?;
                    keyring.hash(nobodys).await
                });
                keyring.has_hash(shown, decoy.await?.clone()).await?;
                Ok(false)
            }
        }
    }

    /// Gives out a code by the first of the leaves that exists.
    async fn enter(
        &self,
        asked: &AuthorizationRequest,
        client: &OauthClient,
        links: Vec<Find>,
    ) -> Result<Result<NewSecret, LoginRefusal>, Fault> {
        let secret = self.engine.keyring()?.secret()?;
        let code = NewSecret::new(format!("{CODE_PREFIX}{}", secret.reveal()));
        let mut records = vec![
            Find::id(RecordKind::OauthClient, client.id),
            Find::tenant(client.tenant),
        ];
        records.extend(links);
        let reads = Reads {
            records,
            ..Reads::default()
        };
        let (asked, hash, visitor) = (asked.clone(), hash(code.reveal()), Visitor::current());
        let decide = move |mut env: asyncgate_core::Env, snapshot: Snapshot| {
            let [client, tenant, first, second] = take(snapshot.records);
            let client = client.and_then(Record::into_client);
            let tenant = tenant.and_then(Record::into_tenant);
            let first = first.and_then(Record::into_link);
            let second = second.and_then(Record::into_link);
            let entering = Entering {
                client: client.as_ref(),
                tenant: tenant.as_ref(),
                link: enter(first.as_ref(), second.as_ref()),
            };
            Ok(visitor.sign_all(issue_code(&mut env, &asked, entering, &hash)))
        };
        let entered = self.engine.transact(client.tenant, WEIGHT, reads, decide);
        Ok(entered.await?.map(|_| code))
    }

    fn note_refused(&self, client: &OauthClient, provider: &str, reason: &str) {
        let id = client.id.to_string();
        let details = [("provider", provider), ("client_id", id.as_str())];
        self.note_failure(Some(client.tenant), reason, &details);
    }
}
