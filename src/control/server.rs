//! The end of the socket that a mounted pool holds.

use std::fs;
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::protocol::{Answer, REQUEST_MAX_BYTES, Request, receive, send};
use super::{ControlError, Result};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, JoinHandle, spawn};

/// A client that takes longer than this to send or to read is hung up on.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most clients at one time.
const CLIENTS_MAX: usize = 16;

/// Path of a pool's socket in the runtime directory `dir`.
pub fn socket_path(dir: &Path, pool: Uuid) -> PathBuf {
    dir.join(format!("{pool}.sock"))
}

/// Answers requests until it is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on the socket of `pool` in `dir` and has `answer` answer. Only the owner can connect. A socket that
    /// is there already was left by a process that died: the pool's lock is held by now.
    ///
    /// # Errors
    /// [`ControlError::File`] when the socket can't be made.
    pub fn start(
        dir: &Path,
        pool: Uuid,
        answer: impl Fn(Request) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let path = socket_path(dir, pool);
        let listener = listen(&path).map_err(|source| ControlError::File {
            path: path.clone(),
            doing: "listening for commands",
            source,
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = spawn("control", move || serve(&listener, &stopped, Arc::new(answer)));
        Ok(Self { path, stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for somebody to connect. Without that it stays until the process ends.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // The directory keeps others out already; this is for those who look.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn serve<F>(listener: &UnixListener, stop: &AtomicBool, answer: Arc<F>)
where
    F: Fn(Request) -> Answer + Send + Sync + 'static,
{
    let clients = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                log::warn!("a command could not connect: {error}");
                // Out of file descriptors, most likely: do not spin.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (answer, clients) = (Arc::clone(&answer), Arc::clone(&clients));
        spawn("control-client", move || {
            if let Err(error) = converse(&client, &*answer) {
                log::debug!("a command was not answered: {error}");
            }
            clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn converse(client: &UnixStream, answer: &impl Fn(Request) -> Answer) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let reply = match receive(&mut BufReader::new(client), REQUEST_MAX_BYTES) {
        Ok(request) => answer(request),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Answer::Error(error.to_string()),
        Err(error) => return Err(error),
    };
    send(&mut &*client, reply)
}

#[cfg(test)]
mod tests {
    use super::super::client;
    use super::*;

    #[test]
    fn a_client_is_answered_and_the_socket_goes_with_the_server() {
        let dir = tempfile::tempdir().expect("a directory");
        let pool = Uuid::from_u128(5);
        fs::write(socket_path(dir.path(), pool), "left behind").expect("written");
        let server = Server::start(dir.path(), pool, |request| match request {
            Request::Pid => Answer::Pid(42),
            Request::Sync => Answer::Done,
            _ => Answer::Error("not now".into()),
        })
        .expect("a server");
        assert_eq!(client::ask(dir.path(), pool, &Request::Pid).expect("an answer"), Answer::Pid(42));
        assert!(matches!(
            client::ask(dir.path(), pool, &Request::Status),
            Err(ControlError::Refused { why, .. }) if why == "not now"
        ));
        assert_eq!(client::served(dir.path()).expect("listed"), vec![pool]);
        drop(server);
        assert!(!socket_path(dir.path(), pool).exists());
        assert!(client::ask(dir.path(), pool, &Request::Pid).is_err());
    }
}
