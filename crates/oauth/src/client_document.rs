//! Clients that are described by a document at the address that is their name: the document is fetched, checked and
//! remembered.
//!
//! Invariants: nothing is fetched from where strangers must not send this server; few documents are fetched for one
//! client and for all; what is remembered is bounded in number and time; what a fetch ran into is told to nobody.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use asyncgate_core::{
    Timestamp,
    identity::{
        OauthClient,
        oauth::{
            BAD_DOCUMENT_LIFE_MS, BadDocument, ClientName, DOCUMENT_LIFE_MS, ErrorCode,
            MAX_DOCUMENT_BYTES, Reach, Statement, check_statement,
        },
    },
};
use asyncgate_engine::{
    Fault,
    oauth::{Oauth, Registration, oauth_fault},
};

use crate::{
    app::App,
    fetch::{Bounds, Fetcher, Lookup},
    metadata::Metadata,
};

/// The longest time of a fetch. A person waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most documents that are remembered. Each has a few kilobytes.
const MAX_KNOWN: usize = 256;

/// Where documents may be, and how their hosts are found.
#[derive(Debug, Clone)]
pub struct DocumentOptions {
    /// Where they may be.
    pub reach: Reach,
    /// Finds the addresses of hosts.
    pub lookup: Lookup,
}

/// The documents of clients.
pub(crate) struct Documents {
    reach: Reach,
    fetcher: Fetcher,
    known: Mutex<HashMap<String, Known>>,
}

/// What came of a document.
#[derive(Clone)]
struct Known {
    said: Result<Registration, BadDocument>,
    until: Timestamp,
}

impl App {
    /// Returns the client that a request names. If a document describes it, it is as the document says now.
    pub(crate) async fn client(&self, name: &ClientName) -> Result<Option<OauthClient>, Fault> {
        let ClientName::Document(address) = name else {
            return self.oauth.client_named(name).await;
        };
        if !self.oauth.settings().client_documents {
            return Ok(None);
        }
        let said = self.documents.read(&self.oauth, address).await?;
        self.oauth.describe(address, said).await.map(Some)
    }
}

impl Documents {
    pub(crate) fn new(options: DocumentOptions) -> Self {
        let bounds = Bounds {
            patience: PATIENCE,
            max_bytes: MAX_DOCUMENT_BYTES,
            reach: Some(options.reach),
        };
        Self {
            reach: options.reach,
            fetcher: Fetcher::new(bounds, options.lookup),
            known: Mutex::default(),
        }
    }

    /// Returns what a document says, as it was read lately.
    async fn read(&self, oauth: &Oauth, address: &str) -> Result<Registration, Fault> {
        self.reach.check(address).map_err(refused)?;
        if let Some(said) = self.remembered(address, oauth.now()) {
            return said.map_err(refused);
        }
        oauth.count_document()?;
        let said = self.fetch(address).await;
        self.remember(address, &said, oauth.now());
        said.map_err(refused)
    }

    async fn fetch(&self, address: &str) -> Result<Registration, BadDocument> {
        let text = self.fetcher.get(address).await.map_err(|failed| {
            tracing::info!(event = "client_document.refused", address, cause = %failed);
            BadDocument::Unreadable
        })?;
        let metadata: Metadata = serde_json::from_slice(&text).map_err(|_| BadDocument::Form)?;
        let said = Statement {
            client_id: metadata.client_id.as_deref(),
            auth_method: metadata.token_endpoint_auth_method.as_deref(),
            has_secret: metadata.has_secret(),
        };
        check_statement(address, &said)?;
        metadata.check().map_err(BadDocument::Wish)?;
        Ok(metadata.registration(false))
    }

    fn remembered(
        &self,
        address: &str,
        now: Timestamp,
    ) -> Option<Result<Registration, BadDocument>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = known.get(address).filter(|known| now < known.until);
        fresh.map(|known| known.said.clone())
    }

    fn remember(&self, address: &str, said: &Result<Registration, BadDocument>, now: Timestamp) {
        let life = match said {
            Ok(_) => DOCUMENT_LIFE_MS,
            Err(_) => BAD_DOCUMENT_LIFE_MS,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, known| now < known.until);
        if known.len() >= MAX_KNOWN {
            let first = known.iter().min_by_key(|(_, known)| known.until);
            if let Some(first) = first.map(|(address, _)| address.clone()) {
                known.remove(&first);
            }
        }
        let fresh = Known {
            said: said.clone(),
            until: now.plus_millis(life),
        };
        known.insert(address.to_owned(), fresh);
    }
}

/// Nothing is sent to an address that such a document names, so the answer stays on this server.
fn refused(bad: BadDocument) -> Fault {
    oauth_fault(ErrorCode::InvalidRequest, bad.to_string())
}
