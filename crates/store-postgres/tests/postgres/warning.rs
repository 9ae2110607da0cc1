//! A warning during a commit leaves it open whether the commit stands.

use std::sync::Arc;

use asyncgate_core::Reach;
use asyncgate_store::{
    Error, Health, ReadSet, Store,
    conformance::{Driver, echo, eventually},
};
use asyncgate_store_postgres::{Options, PostgresStore};

use crate::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_warning_is_never_told_as_a_success() {
    let Some(server) = Server::shared() else {
        return;
    };
    let address = server.database();
    let name = address.rsplit('=').next().unwrap();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&address, &Options::default()).unwrap());
    let mut driver = Driver::new(Arc::clone(&store));
    driver.create(echo()).await;
    // It warns while the transaction is being committed, as the end of a wait for a standby does.
    server.sql(
        name,
        "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE WARNING 'canceling wait'; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER warns AFTER INSERT ON receipt DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION warn()",
    );
    let created = driver.try_decide(ReadSet::to_create(&echo()), |env, snapshot| {
        snapshot.create(env, echo())
    });
    assert!(matches!(created.await, Err(Error::Unknown(_))));
    server.sql(name, "DROP TRIGGER warns ON receipt");
    eventually("the store works again", async || {
        store.health() == Health::Ready
    })
    .await;
    // It was committed after all, and the owner has read that back.
    assert_eq!(driver.claim(Reach::default(), 5).await.len(), 2);
}
