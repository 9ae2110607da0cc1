//! The handshake of a connection: chosen by what the client offers, counted, and noted in the log for `debug`.

use std::io;
use std::sync::Arc;

use asyncgate_engine::{Downgrade, HandshakeResult, KeyExchange, Surface};
use rustls::server::Acceptor as HelloReader;
use rustls::{CommonState, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::PqMode;
use super::exchange::{Exchanges, Offer};
use super::subject::subject;

/// What makes TLS of a connection.
///
/// The library takes the exchange that stands first in the *client's* list, whatever the server prefers. So the first
/// message is read before the configuration is chosen: who offers the hybrid exchange gets one that has no other.
#[derive(Debug)]
pub struct Acceptor {
    pub(super) mode: PqMode,
    /// For clients that offer the hybrid exchange.
    pub(super) able: Arc<ServerConfig>,
    /// For all others.
    pub(super) others: Arc<ServerConfig>,
    pub(super) exchanges: Exchanges,
}

impl Acceptor {
    /// Agrees on a key with the client, and checks its certificate if there should be one.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(HelloReader::default(), stream).await;
        let hello = hello.inspect_err(|error| self.note_unread(error))?;
        let offer = self.exchanges.offered(&hello.client_hello());
        let config = match offer.hybrid {
            true => &self.able,
            false => &self.others,
        };
        let accepted = hello.into_stream(config.clone()).await;
        match &accepted {
            Ok(stream) => self.note_agreed(offer, stream.get_ref().1),
            Err(error) => self.note_failed(offer, error),
        }
        accepted
    }

    /// Notes a connection whose first message did not come or is none of TLS.
    fn note_unread(&self, error: &io::Error) {
        // Balancers connect and hang up to see whether the port is open.
        let hung_up = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        if !hung_up.contains(&error.kind()) {
            self.note_end(None, HandshakeResult::Failed, error);
        }
    }

    fn note_agreed(&self, offer: Offer, session: &CommonState) {
        let group = session.negotiated_key_exchange_group();
        let agreed = group.and_then(|group| self.exchanges.kind(group.name()));
        // A session of TLS 1.2 that goes on agrees on nothing anew.
        let agreed = agreed.or(offer.classical);
        let metrics = &self.exchanges.metrics;
        metrics.handshake(agreed, HandshakeResult::Ok);
        match (self.mode, offer.hybrid) {
            (PqMode::Off, true) => metrics.downgraded(Downgrade::Mode),
            (PqMode::Hybrid, false) => metrics.downgraded(Downgrade::Client),
            (PqMode::Off, false) | (PqMode::Hybrid, true) | (PqMode::Only, _) => {}
        }
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        tracing::debug!(
            event = "tls.accepted",
            pq_mode = self.mode.as_str(),
            peer_mode = peer_mode(offer),
            algos = agreed.map(KeyExchange::as_str),
            client_subject = certificate.map(|certificate| subject(certificate)),
            "the client has a key"
        );
    }

    fn note_failed(&self, offer: Offer, error: &io::Error) {
        let metrics = &self.exchanges.metrics;
        match (self.mode, offer.hybrid) {
            (PqMode::Only, false) => {
                metrics.refused(Surface::Transport);
                self.note_end(Some(offer), HandshakeResult::Refused, error);
            }
            (PqMode::Only, true) | (PqMode::Off | PqMode::Hybrid, _) => {
                self.note_end(Some(offer), HandshakeResult::Failed, error);
            }
        }
    }

    /// Counts a handshake that came to nothing. The line of the log is for `debug`: strangers can make any number of them.
    fn note_end(&self, offer: Option<Offer>, result: HandshakeResult, error: &io::Error) {
        let wanted = offer.and_then(|offer| match (self.mode, offer.hybrid) {
            (PqMode::Hybrid | PqMode::Only, true) => Some(KeyExchange::Hybrid),
            (PqMode::Off, _) | (PqMode::Hybrid | PqMode::Only, false) => offer.classical,
        });
        self.exchanges.metrics.handshake(wanted, result);
        let problem = match result {
            HandshakeResult::Refused => "the client knows no exchange that pq.mode = only allows",
            HandshakeResult::Ok | HandshakeResult::Failed => "the handshake failed",
        };
        tracing::debug!(
            event = "tls.failed",
            pq_mode = self.mode.as_str(),
            peer_mode = offer.map(peer_mode),
            algos = wanted.map(KeyExchange::as_str),
            %error,
            "{problem}"
        );
    }
}

const fn peer_mode(offer: Offer) -> &'static str {
    match (offer.hybrid, offer.classical.is_some()) {
        (true, true) => "hybrid",
        (true, false) => "only",
        (false, _) => "off",
    }
}
