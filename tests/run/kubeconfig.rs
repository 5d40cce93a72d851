//! The options of kubectl, against an API server behind TLS or behind a proxy.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::api::{ApiServer, Operator, write_kubeconfig};
use crate::processes::{Place, errors_of};
use crate::self_signed;

const TOKEN: &str = "bearer-of-the-test";
/// The name of the API server, which only the proxy can resolve.
const BEHIND: &str = "api.behind.test:6443";

/// The protocol of a front for its clients.
#[derive(Clone)]
enum Face {
    Tls(TlsAcceptor),
    Socks,
    HttpProxy,
}

/// A TLS server or a proxy in front of an API server.
struct Front {
    address: SocketAddr,
    /// The destinations that clients requested, and the bytes that they sent afterwards.
    requests: Arc<Mutex<Vec<u8>>>,
    _runtime: Runtime,
}

impl Front {
    fn before(server: &ApiServer, face: Face) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (port, log) = (server.port(), requests.clone());
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (face, log) = (face.clone(), log.clone());
                // A client that refuses the certificate ends only its own connection.
                tokio::spawn(async move { drop(face.serve(client, port, &log).await) });
            }
        });
        Self { address, requests, _runtime: runtime }
    }

    fn has(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.requests.lock().unwrap()).contains(text)
    }
}

impl Face {
    async fn serve(self, mut client: TcpStream, port: u16, log: &Mutex<Vec<u8>>) -> std::io::Result<()> {
        match self {
            Self::Tls(acceptor) => return relay(acceptor.accept(client).await?, port, log).await,
            Self::Socks => {
                let mut greeting = [0; 3];
                client.read_exact(&mut greeting).await?;
                client.write_all(&[5, 0]).await?;
                // The request has the version, the command, a reserved byte, the type "domain", and the length of the domain.
                let mut request = [0; 5];
                client.read_exact(&mut request).await?;
                assert_eq!(request[..4], [5, 1, 0, 3], "the client must let the proxy resolve the name");
                let mut destination = vec![0; usize::from(request[4]) + 2];
                client.read_exact(&mut destination).await?;
                log.lock().unwrap().extend(destination);
                client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
            }
            Self::HttpProxy => {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await?);
                }
                log.lock().unwrap().extend(head);
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            }
        }
        relay(client, port, log).await
    }
}

/// Forwards bytes to the API server and back.
async fn relay<S: AsyncRead + AsyncWrite>(client: S, port: u16, log: &Mutex<Vec<u8>>) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = server.into_split();
    let forth = async {
        let mut bytes = [0; 4096];
        while let read @ 1.. = from_client.read(&mut bytes).await? {
            log.lock().unwrap().extend(&bytes[..read]);
            to_server.write_all(&bytes[..read]).await?;
        }
        to_server.shutdown().await
    };
    tokio::try_join!(forth, tokio::io::copy(&mut from_server, &mut to_client)).map(drop)
}

/// A server behind TLS, and the file of its authority.
fn with_tls(server: &ApiServer, place: &Place) -> (Front, String) {
    let (acceptor, authority) = self_signed::server(&["127.0.0.1", "kube.test"]).unwrap();
    let file = place.folder.join("ca.pem");
    fs::write(&file, authority).unwrap();
    (Front::before(server, Face::Tls(acceptor)), file.display().to_string())
}

/// A command whose kubeconfig and proxy can come only from its options.
fn redlock(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.redlock(arguments);
    command.env("KUBECONFIG", place.folder.join("none")).env("HOME", &place.folder);
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    command
}

fn code_and_errors(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_api_server_is_reached_without_a_kubeconfig() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let (front, authority) = with_tls(&server, &place);
    let url = format!("https://{}", front.address);
    let options = ["--server", &url, "--token", TOKEN, "--as", "alice", "--as-group", "ops", "--as-group", "dev"];
    let secure = [&options[..], &["--certificate-authority", &authority]].concat();
    let commands = [
        &["list", "-n", "shop"][..],
        &["release", "shop/reindex", "--fencing-token", "1"],
        &["run", "--lock", "shop/reindex", "--ttl", "8s"],
    ];
    for command in commands {
        front.requests.lock().unwrap().clear();
        let program = if command[0] == "run" { &["--", "true"][..] } else { &[] };
        let output = redlock(&place, &[command, &secure, program].concat()).output().unwrap();
        let (code, errors) = code_and_errors(&output);
        // There is no hold to release.
        assert_eq!(code, Some(if command[0] == "release" { 125 } else { 0 }), "{command:?}: {errors}");
        for header in [
            format!("authorization: Bearer {TOKEN}\r\n").as_str(),
            "impersonate-user: alice\r\n",
            "impersonate-group: ops\r\n",
            "impersonate-group: dev\r\n",
        ] {
            assert!(front.has(header), "{command:?} sends {header}");
        }
    }
}

#[test]
fn a_certificate_is_verified_unless_an_option_disables_it() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let (front, authority) = with_tls(&server, &place);
    let (url, port) = (format!("https://{}", front.address), front.address.port());
    let by_name = format!("https://localhost:{port}");
    let list = |options: &[&str]| redlock(&place, &[&["list", "-n", "shop"][..], options].concat()).output().unwrap();
    let errors = errors_of(&list(&["-s", &url]), 125);
    assert!(errors.contains("certificate") && errors.contains("--certificate-authority"), "{errors}");
    assert_eq!(errors_of(&list(&["-s", &url, "--insecure-skip-tls-verify"]), 0), "");
    // The name is not in the certificate.
    errors_of(&list(&["-s", &by_name, "--certificate-authority", &authority]), 125);
    let named = ["-s", &by_name, "--certificate-authority", &authority, "--tls-server-name", "kube.test"];
    assert_eq!(errors_of(&list(&named), 0), "");
    let errors = errors_of(&list(&["-s", &url, "--certificate-authority", "none.pem"]), 125);
    assert!(errors.contains("failed to read --certificate-authority none.pem"), "{errors}");
}

#[test]
fn a_request_ends_at_its_timeout() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.set_away(true);
    let url = format!("http://127.0.0.1:{}", server.port());
    let output = redlock(&place, &["list", "-n", "shop", "-s", &url, "--request-timeout", "200ms"]).output().unwrap();
    let errors = errors_of(&output, 125);
    assert!(errors.contains("no answer within 200ms"), "{errors}");
}

#[test]
fn an_api_server_is_reached_through_the_proxy_of_the_kubeconfig() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    for (face, scheme) in [(Face::Socks, "socks5"), (Face::Socks, "socks5h"), (Face::HttpProxy, "http")] {
        let front = Front::before(&server, face);
        let proxy = format!("{scheme}://{}", front.address);
        let cluster = json!({"server": format!("http://{BEHIND}"), "proxy-url": proxy});
        let file = write_kubeconfig(place.folder.join("proxied"), &cluster, &json!({}), Some("shop"));
        let file = file.display().to_string();
        let output = redlock(&place, &["list", "--kubeconfig", &file]).output().unwrap();
        assert_eq!(code_and_errors(&output), (Some(0), String::new()), "{scheme}");
        assert!(front.has("api.behind.test"), "{scheme}");
    }
}
