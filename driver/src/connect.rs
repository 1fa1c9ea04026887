//! The way to the server: a limit where the configuration sets none, and errors that name the server and
//! never the password.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};

use crate::error::Error;

/// How long reaching one address may take where nothing else is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// `config` with a time limit if it has none.
pub(crate) fn limited(mut config: Config) -> Config {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    config
}

/// A new connection. The limit of `config` is tokio-postgres's for each address that a host's name has,
/// and ends when a socket is open; twice the limit for each host is ours for all of it, so that a server
/// which takes the connection and never answers is an error, too.
pub(crate) async fn reach<T>(
    config: &Config,
    tls: T,
) -> Result<(Client, Connection<Socket, T::Stream>), Error>
where
    T: MakeTlsConnect<Socket>,
{
    let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
    let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
    let patience = limit.saturating_mul(2).saturating_mul(hosts as u32);
    let connected = match tokio::time::timeout(patience, config.connect(tls)).await {
        Ok(connected) => connected,
        Err(_) => Err(silence().await),
    };
    connected.map_err(|e| Error::postgres(doing(config), e))
}

/// "connect to" and where.
fn doing(config: &Config) -> String {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let ports = config.get_ports();
    let places: Vec<_> = (0..hosts.len().max(addresses.len()))
        .map(|i| {
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            match (hosts.get(i), addresses.get(i)) {
                #[cfg(unix)]
                (Some(Host::Unix(directory)), None) => {
                    format!("{}", directory.join(format!(".s.PGSQL.{port}")).display())
                }
                (Some(Host::Tcp(name)), None) if name.contains(':') => format!("[{name}]:{port}"),
                (Some(Host::Tcp(name)), None) => format!("{name}:{port}"),
                (_, Some(address)) => std::net::SocketAddr::from((*address, port)).to_string(),
                (None, None) => String::new(),
            }
        })
        .collect();
    match places.as_slice() {
        [] => "connect".to_owned(),
        places => format!("connect to {}", places.join(", ")),
    }
}

/// tokio-postgres's own error for a server that does not answer. It can't be made by hand, so it is
/// what comes of a connection on which nothing comes.
async fn silence() -> tokio_postgres::Error {
    match Config::new().user("nobody").connect_raw(Silence, NoTls).await {
        Err(error) => error,
        Ok(_) => unreachable!("every read and write of silence fails"),
    }
}

struct Silence;

impl Silence {
    fn told<T>() -> Poll<io::Result<T>> {
        let told = "it did not answer in time";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, told)))
    }
}

impl AsyncRead for Silence {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::told()
    }
}

impl AsyncWrite for Silence {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Self::told()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::told()
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::told()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Connector;

    fn config(url: &str) -> Config {
        limited(url.parse().unwrap())
    }

    async fn connect(url: &str) -> Result<Client, Error> {
        Connector::without_tls(url).unwrap().connect().await
    }

    #[test]
    fn a_connection_string_without_a_limit_gets_one() {
        let limit = |url| config(url).get_connect_timeout().copied();
        assert_eq!(limit("host=a"), Some(Duration::from_secs(10)));
        assert_eq!(limit("postgresql://u:p@a/d?connect_timeout=3"), Some(Duration::from_secs(3)));
    }

    #[test]
    fn the_place_is_named_and_the_password_is_not() {
        let named = |url| doing(&config(url));
        for (url, expected) in [
            ("postgresql://ada:secret@db.example.org/app", "connect to db.example.org:5432"),
            ("host=/run/pg port=5433 password=secret", "connect to /run/pg/.s.PGSQL.5433"),
            ("host=a,b port=1,2 user=u", "connect to a:1, b:2"),
            ("host=a hostaddr=10.0.0.1", "connect to 10.0.0.1:5432"),
            ("hostaddr=::1 port=9", "connect to [::1]:9"),
            ("postgresql://[::1]:9/app", "connect to [::1]:9"),
            ("dbname=app", "connect"),
        ] {
            assert_eq!(named(url), expected);
        }
    }

    /// A port that nobody listens on: nothing else can have it while the socket is bound.
    #[tokio::test]
    async fn no_server_is_an_error_of_the_connection() {
        let bound = tokio::net::TcpSocket::new_v4().unwrap();
        bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = bound.local_addr().unwrap().port();
        let url = format!("postgresql://ada:secret@127.0.0.1:{port}/app");
        let error = connect(&url).await.unwrap_err();
        assert!(error.is_connection() && !error.is_unknown(), "{error:?}");
        let said = error.to_string();
        assert!(said.starts_with(&format!("connect to 127.0.0.1:{port}: ")), "{said}");
        assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
    }

    /// To try again would be of no use.
    #[tokio::test]
    async fn an_unreadable_connection_string_is_no_error_of_the_connection() {
        let error = Connector::without_tls("host=localhost prot=5432").err().unwrap();
        assert!(!error.is_connection() && !error.is_unknown(), "{error:?}");
        let said = error.to_string();
        assert!(
            said.starts_with("read the connection string: ") && said.contains("prot"),
            "{said}"
        );
    }

    /// The system takes the connection for a socket that listens, and nobody ever answers on it.
    #[tokio::test]
    async fn a_server_that_never_answers_is_an_error_of_the_connection() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let url = format!("host=127.0.0.1 port={port} user=ada connect_timeout=1");
        let error = connect(&url).await.unwrap_err();
        assert!(error.is_connection(), "{error:?}");
        let expected = format!("connect to 127.0.0.1:{port}: ");
        let said = error.to_string();
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.ends_with(": it did not answer in time"), "{said}");
    }
}
