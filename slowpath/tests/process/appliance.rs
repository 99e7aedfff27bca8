//! An appliance for tests: its files, and the processes `slowpath` and `weir`.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use control_client::Request;
use patience::{DEFAULT_TIMEOUT, eventually_within, ports::free_port};
use serde_json::Value;
use tables::region::RegionLocation;

/// The folder of an appliance, with its configuration, region, socket and log.
pub struct Folder {
    pub path: PathBuf,
    /// Ports of `health.listen`, `health.tcp` and `metrics.listen`.
    pub ports: [u16; 3],
}

/// Returns the path of `weir`, which the crate `cli` builds into the same folder as `slowpath`.
pub fn weir() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_slowpath")).with_file_name("weir");
    assert!(path.exists(), "{path:?} does not exist; `cargo build -p cli` builds it");
    path
}

impl Folder {
    /// Creates the folder, with a configuration and a service with two backends.
    pub fn new(name: &str) -> Folder {
        let path = PathBuf::from(format!("/dev/shm/weir-process-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let folder = Folder { path, ports: [free_port(), free_port(), free_port()] };
        folder.services(&["10.97.2.11", "10.97.2.12"]);
        folder.write("weir.toml", &folder.config());
        folder
    }

    /// Returns the default configuration, with DPDK's null devices as NICs. The interfaces
    /// `wsp-none0` and `wsp-none1` do not exist.
    pub fn config(&self) -> String {
        let (folder, [http, tcp, metrics]) = (self.path.display(), self.ports);
        let maps = self.maps();
        let maps = maps.path().display();
        format!(
            r#"
            name = "weir-p"
            services = "{folder}/services.toml"
            [fastpath]
            hugepages = false
            lcores = [1]
            [region]
            path = "{folder}/region/file"
            maps = "{maps}"
            max_flows = 1024
            [ingress]
            device = "net_null0"
            address = ["10.97.1.10/24"]
            mtu = 9001
            tap = "wsp-none0"
            [egress]
            device = "net_null1"
            address = ["10.97.2.10/24"]
            mtu = 9001
            tap = "wsp-none1"
            [nat]
            addresses = ["10.97.2.10"]
            [[gateway]]
            name = "aws"
            kind = "aws"
            sources = ["10.97.1.0/24"]
            [health]
            listen = ["127.0.0.1:{http}"]
            tcp = ["127.0.0.1:{tcp}"]
            [metrics]
            listen = "127.0.0.1:{metrics}"
            [control]
            socket = "{folder}/control.sock"
            state = "{folder}/state"
            "#
        )
    }

    /// Returns the location of the region's kernel maps with `plane = "xdp"`.
    pub fn maps(&self) -> RegionLocation {
        let name = self.path.file_name().unwrap();
        RegionLocation::maps(Path::new("/sys/fs/bpf").join(name))
    }

    /// Replaces a file atomically, so that slowpath never reads half of it.
    pub fn write(&self, name: &str, text: &str) {
        let temporary = self.path.join("temporary");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(&temporary, self.path.join(name)).unwrap();
    }

    pub fn socket(&self) -> String {
        self.path.join("control.sock").display().to_string()
    }

    /// Writes the services file: the service `default/web` with these backends.
    pub fn services(&self, backends: &[&str]) {
        let backends: Vec<String> =
            backends.iter().map(|b| format!("{{address = \"{b}\", port = 80}}")).collect();
        self.write(
            "services.toml",
            &format!(
                "[[service]]\nname = \"default/web\"\nmode = \"nat\"\n\
                 frontends = [{{address = \"203.0.113.1\", port = 80, protocol = \"tcp\"}}]\n\
                 backends = [{}]\n",
                backends.join(", ")
            ),
        );
    }

    /// Starts slowpath with the folder's configuration.
    pub fn slowpath(&self) -> Running {
        self.slowpath_with(&[])
    }

    /// Starts slowpath with additional environment variables.
    pub fn slowpath_with(&self, environment: &[(&str, &str)]) -> Running {
        let log = std::fs::File::create(self.path.join("log")).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_slowpath"));
        program.arg("--config").arg(self.path.join("weir.toml")).stderr(log);
        program.envs(environment.iter().copied());
        Running(program.spawn().unwrap())
    }

    /// Runs `weir` with the folder's configuration.
    pub fn weir(&self, args: &[&str]) -> Output {
        let mut program = Command::new(weir());
        program.arg("--config").arg(self.path.join("weir.toml")).args(args).output().unwrap()
    }

    /// Runs `weir ARGS --json` until the output satisfies `fits`; returns the output.
    pub fn until(
        &self,
        args: &[&str],
        fits: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        self.until_within(DEFAULT_TIMEOUT, args, fits)
    }

    /// Same as [`Folder::until`], with another timeout.
    pub fn until_within(
        &self,
        timeout: Duration,
        args: &[&str],
        fits: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        eventually_within(timeout, &format!("expected output of `weir {}`", args.join(" ")), || {
            let out = self.weir(&[args, &["--json"]].concat());
            let value = serde_json::from_slice(&out.stdout).ok().filter(|value| fits(value));
            value.ok_or_else(|| format!("{out:?}\n{}", self.log()))
        })
    }

    /// Returns slowpath's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path.join("log")).unwrap_or_default()
    }

    /// Sends a request to the API over the unix socket.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let tried = self.try_request(method, path, headers, body);
        tried.unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    /// Same as [`Folder::request`], but returns the error if there is no response.
    pub fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        let request = Request { method, path, headers, body, idle_timeout: DEFAULT_TIMEOUT * 10 };
        let response = control_client::send(Path::new(&self.socket()), &request)?;
        let headers = response.headers.iter();
        let head = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        let (status, head) = (response.status.as_u16(), head.collect());
        Ok(Answer { status, head, body: response.text()? })
    }

    /// Sends a GET request over TCP, and returns the response with its head.
    pub fn get(&self, port: u16, path: &str, accept: &str) -> String {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nAccept: {accept}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
        let _ = self.maps().remove();
    }
}

/// A small file system in memory, which is unmounted when the test ends.
pub struct Tmpfs(pub PathBuf);

impl Tmpfs {
    /// Mounts the file system at a path, with a size such as `256k`.
    pub fn new(path: PathBuf, size: &str) -> Tmpfs {
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&path);
        assert!(mount.status().unwrap().success(), "{}", path.display());
        Tmpfs(path)
    }

    /// Fills the file system.
    pub fn fill(&self) {
        let filled = std::fs::write(self.0.join("filler"), vec![b'x'; 16 << 20]);
        assert!(filled.is_err(), "{}", self.0.display());
    }

    /// Removes the file with which [`Tmpfs::fill`] filled the file system.
    pub fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A process that is killed when its test ends.
pub struct Running(pub Child);

impl Running {
    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let killed = Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(killed.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A response of the API.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    /// Parses a response; `None` if it is incomplete.
    pub fn read(text: &str) -> Option<Answer> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let answer = Answer { status, head: head.to_owned(), body: body.to_owned() };
        let complete =
            answer.header("content-length").is_none_or(|len| len == body.len().to_string());
        complete.then_some(answer)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}
