//! A socket file: the same service for processes of this machine, which are let in by their user.
//!
//! Invariants: no other user can open the file, not even while it is made; a peer that is not on the
//! list is closed before a byte of it is read.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::data_dir;

/// A socket file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on uds.path = {}: {reason}", path.display())]
pub struct Error {
    path: PathBuf,
    reason: io::Error,
}

/// A socket file that is removed when dropped.
#[derive(Debug)]
pub struct UnixSocket {
    path: PathBuf,
    listener: UnixListener,
    allowed: Vec<u32>,
}

impl UnixSocket {
    /// Makes the socket file, for its owner only; its directory too, if it is missing. A file that
    /// nobody listens on any more is replaced. Without a list, only the server's own user may connect.
    pub fn bind(path: &Path, allowed: &[u32]) -> Result<Self, Error> {
        make(path, allowed).map_err(|reason| Error {
            path: path.to_owned(),
            reason,
        })
    }

    /// Waits for a connection of a user who may connect. Returns it with the user's number.
    pub async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            match stream.peer_cred() {
                Ok(peer) if self.allowed.contains(&peer.uid()) => return Ok((stream, peer.uid())),
                Ok(peer) => tracing::warn!(
                    event = "uds.refused",
                    uid = peer.uid(),
                    pid = peer.pid(),
                    "closed a connection of a user who is not in uds.allow_uids"
                ),
                // The peer hung up before it could be asked for.
                Err(error) => tracing::debug!(%error, "closed a connection of an unknown user"),
            }
        }
    }
}

fn make(path: &Path, allowed: &[u32]) -> io::Result<UnixSocket> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    data_dir::make(dir)?;
    refuse_if_in_use(path)?;
    // The file is made under another name and renamed. So it has its permissions from the first moment
    // that it can be found, and it takes the place of a file that was left behind.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&beside)?;
    fs::set_permissions(&beside, Permissions::from_mode(0o600))?;
    // The owner of a new file is the user that this process runs as; std has no other way to ask.
    let own = fs::metadata(&beside)?.uid();
    fs::rename(&beside, path)?;
    if fs::metadata(dir)?.permissions().mode() & 0o077 != 0 {
        tracing::warn!(dir = %dir.display(), "others than its owner may enter the directory of uds.path");
    }
    Ok(UnixSocket {
        path: path.to_owned(),
        listener,
        allowed: if allowed.is_empty() {
            vec![own]
        } else {
            allowed.to_vec()
        },
    })
}

fn refuse_if_in_use(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "something that is no socket is in the way",
            ));
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another process listens there",
        )),
        Err(_) => Ok(()),
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_file_is_for_its_owner_and_goes_with_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made/here.sock");
        let socket = UnixSocket::bind(&path, &[]).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let in_use = UnixSocket::bind(&path, &[]).unwrap_err().to_string();
        assert!(in_use.contains("another process"), "{in_use}");
        let connecting = tokio::spawn(UnixStream::connect(path.clone()));
        socket.accept().await.unwrap();
        connecting.await.unwrap().unwrap();
        drop(socket);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_file_that_was_left_behind_is_replaced_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(UnixSocket::bind(&path, &[]).unwrap());
        fs::write(&path, "precious").unwrap();
        let error = UnixSocket::bind(&path, &[]).unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_user_who_is_not_on_the_list_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let own = fs::metadata(dir.path()).unwrap().uid();
        let socket = UnixSocket::bind(&path, &[own + 1]).unwrap();
        let accepting = tokio::spawn(async move { socket.accept().await });
        let stream = UnixStream::connect(&path).await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(stream.try_read(&mut [0; 1]).unwrap(), 0);
        accepting.abort();
    }
}
