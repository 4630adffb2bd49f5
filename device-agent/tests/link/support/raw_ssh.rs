//! SSH by hand (RFC 4253, 4252, 4254), for either side: says what no library would let it say.
//!
//! curve25519-sha256, ssh-ed25519, aes256-gcm@openssh.com, strict key exchange; nothing else, and no second exchange.

use ed25519_dalek::{Signer, SigningKey};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SystemRandom;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

pub const CHANNEL_OPEN: u8 = 90;
pub const CHANNEL_OPEN_CONFIRMATION: u8 = 91;
pub const CHANNEL_OPEN_FAILURE: u8 = 92;
pub const CHANNEL_WINDOW_ADJUST: u8 = 93;
pub const CHANNEL_DATA: u8 = 94;
pub const GLOBAL_REQUEST: u8 = 80;
pub const REQUEST_SUCCESS: u8 = 81;
pub const REQUEST_FAILURE: u8 = 82;

/// A packet under construction.
#[derive(Clone, Default)]
pub struct Packet(pub Vec<u8>);

impl Packet {
    pub fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn string(mut self, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.0.extend((value.len() as u32).to_be_bytes());
        self.0.extend(value);
        self
    }

    /// A positive number of 32 bytes (RFC 4251, mpint).
    fn number(self, value: &[u8]) -> Self {
        let mut digits: Vec<_> = value.iter().copied().skip_while(|byte| *byte == 0).collect();
        if digits.first().is_some_and(|first| first & 0x80 != 0) {
            digits.insert(0, 0);
        }
        self.string(digits)
    }

    /// A channel of this kind, with what the kind adds.
    pub fn channel(kind: &str, number: u32, more: Packet) -> Self {
        let mut packet = Self::new(CHANNEL_OPEN).string(kind).u32(number).u32(1 << 20).u32(32_768);
        packet.0.extend(more.0);
        packet
    }
}

/// A packet as it came.
pub struct Received(pub Vec<u8>, usize);

impl Received {
    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    pub fn u32(&mut self) -> u32 {
        self.1 += 4;
        u32::from_be_bytes(self.0[self.1 - 4..self.1].try_into().expect("four bytes"))
    }

    pub fn string(&mut self) -> Vec<u8> {
        let length = self.u32() as usize;
        self.1 += length;
        self.0[self.1 - length..self.1].to_vec()
    }

    pub fn skip(&mut self, bytes: usize) {
        self.1 += bytes;
    }
}

struct Cipher {
    key: LessSafeKey,
    nonce: [u8; 12],
}

impl Cipher {
    fn next(&mut self) -> Nonce {
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let count = u64::from_be_bytes(self.nonce[4..].try_into().expect("eight bytes"));
        self.nonce[4..].copy_from_slice(&count.wrapping_add(1).to_be_bytes());
        nonce
    }
}

pub struct RawWriter(OwnedWriteHalf, Option<Cipher>);

impl RawWriter {
    /// Sends packets in one write. `Err`: the other side has hung up.
    pub async fn send(&mut self, packets: impl IntoIterator<Item = Packet>) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for Packet(payload) in packets {
            let (block, head) = if self.1.is_some() { (16, 0) } else { (8, 4) };
            let mut padding = block - (head + 1 + payload.len()) % block;
            padding += if padding < 4 { block } else { 0 };
            let length = ((1 + payload.len() + padding) as u32).to_be_bytes();
            let mut body = vec![padding as u8];
            body.extend(payload);
            body.extend(vec![0; padding]);
            if let Some(cipher) = &mut self.1 {
                let nonce = cipher.next();
                cipher.key.seal_in_place_append_tag(nonce, Aad::from(length), &mut body).expect("sealed");
            }
            bytes.extend(length);
            bytes.extend(body);
        }
        self.0.write_all(&bytes).await
    }
}

pub struct RawReader(OwnedReadHalf, Option<Cipher>);

impl RawReader {
    /// `None`: the other side has hung up.
    pub async fn receive(&mut self) -> Option<Received> {
        loop {
            let mut length = [0; 4];
            self.0.read_exact(&mut length).await.ok()?;
            let tag = if self.1.is_some() { 16 } else { 0 };
            let mut body = vec![0; u32::from_be_bytes(length) as usize + tag];
            self.0.read_exact(&mut body).await.ok()?;
            if let Some(cipher) = &mut self.1 {
                let nonce = cipher.next();
                cipher.key.open_in_place(nonce, Aad::from(length), &mut body).expect("what the other side sealed");
                body.truncate(body.len() - tag);
            }
            let payload = body[1..body.len() - usize::from(body[0])].to_vec();
            // Disconnect; ignore, debug, extensions.
            match payload[0] {
                1 => return None,
                2 | 4 | 7 => {}
                _ => return Some(Received(payload, 1)),
            }
        }
    }
}

/// One side of a connection that has signed in.
pub struct RawSsh {
    pub reader: RawReader,
    pub writer: RawWriter,
    session_id: Vec<u8>,
}

fn key_blob(key: &SigningKey) -> Vec<u8> {
    Packet::default().string("ssh-ed25519").string(key.verifying_key().to_bytes()).0
}

fn signature(key: &SigningKey, message: &[u8]) -> Vec<u8> {
    Packet::default().string("ssh-ed25519").string(key.sign(message).to_bytes()).0
}

impl RawSsh {
    /// Takes any device in.
    pub async fn server(socket: TcpStream, host_key: &SigningKey) -> Option<Self> {
        let mut ssh = Self::exchange(socket, Some(host_key)).await?;
        ssh.reader.receive().await.filter(|packet| packet.kind() == 5)?;
        ssh.writer.send([Packet::new(6).string("ssh-userauth")]).await.ok()?;
        loop {
            let mut request = ssh.reader.receive().await.filter(|packet| packet.kind() == 50)?;
            let (_user, _service, method) = (request.string(), request.string(), request.string());
            assert_eq!(method, b"publickey");
            request.skip(1);
            if request.0[request.1 - 1] != 0 {
                ssh.writer.send([Packet::new(52)]).await.ok()?;
                return Some(ssh);
            }
            let (algorithm, key) = (request.string(), request.string());
            ssh.writer.send([Packet::new(60).string(algorithm).string(key)]).await.ok()?;
        }
    }

    /// Signs in with this key, whoever the server is.
    pub async fn client(socket: TcpStream, device: &SigningKey) -> Option<Self> {
        let mut ssh = Self::exchange(socket, None).await?;
        ssh.writer.send([Packet::new(5).string("ssh-userauth")]).await.ok()?;
        ssh.reader.receive().await.filter(|packet| packet.kind() == 6)?;
        let request = Packet::new(50).string("device").string("ssh-connection").string("publickey").byte(1);
        let request = request.string("ssh-ed25519").string(key_blob(device));
        let mut signed = Packet::default().string(&ssh.session_id);
        signed.0.extend(&request.0);
        ssh.writer.send([request.string(signature(device, &signed.0))]).await.ok()?;
        ssh.reader.receive().await.filter(|packet| packet.kind() == 52)?;
        Some(ssh)
    }

    async fn exchange(mut socket: TcpStream, host_key: Option<&SigningKey>) -> Option<Self> {
        const VERSION: &str = "SSH-2.0-Raw";
        socket.write_all(format!("{VERSION}\r\n").as_bytes()).await.ok()?;
        let mut theirs = Vec::new();
        while !theirs.ends_with(b"\r\n") {
            theirs.push(socket.read_u8().await.ok()?);
        }
        theirs.truncate(theirs.len() - 2);
        let (reader, writer) = socket.into_split();
        let (mut reader, mut writer) = (RawReader(reader, None), RawWriter(writer, None));
        let strict = if host_key.is_some() { "s" } else { "c" };
        let mut own_init = Packet::new(20);
        own_init.0.extend([7; 16]);
        let lists = [&format!("curve25519-sha256,kex-strict-{strict}-v00@openssh.com"), "ssh-ed25519"];
        let cipher = "aes256-gcm@openssh.com";
        for list in lists.into_iter().chain([cipher, cipher, "hmac-sha2-256-etm@openssh.com"]) {
            own_init = own_init.string(list);
        }
        own_init = own_init.string("hmac-sha2-256-etm@openssh.com").string("none").string("none");
        own_init = own_init.string("").string("").byte(0).u32(0);
        writer.send([own_init.clone()]).await.ok()?;
        let their_init = reader.receive().await.filter(|packet| packet.kind() == 20)?.0;

        let own_secret = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).expect("a key");
        let own_point = own_secret.compute_public_key().expect("a key").as_ref().to_vec();
        let agree = |secret, point: &[u8]| {
            agree_ephemeral(secret, &UnparsedPublicKey::new(&X25519, point), |shared| shared.to_vec()).expect("agreed")
        };
        let digest = |parts: [&[u8]; 7], shared: &[u8]| {
            let message = parts.into_iter().fold(Packet::default(), Packet::string).number(shared);
            Sha256::digest(message.0).to_vec()
        };
        let own_version = VERSION.as_bytes();
        let (shared, hash) = if let Some(host_key) = host_key {
            let point = reader.receive().await.filter(|packet| packet.kind() == 30)?.string();
            let (shared, blob) = (agree(own_secret, &point), key_blob(host_key));
            let parts = [&*theirs, own_version, &their_init, &own_init.0, &blob, &point, &own_point];
            let hash = digest(parts, &shared);
            let answer = Packet::new(31).string(&blob).string(&own_point).string(signature(host_key, &hash));
            writer.send([answer]).await.ok()?;
            (shared, hash)
        } else {
            writer.send([Packet::new(30).string(&own_point)]).await.ok()?;
            let mut answer = reader.receive().await.filter(|packet| packet.kind() == 31)?;
            let (blob, point) = (answer.string(), answer.string());
            let shared = agree(own_secret, &point);
            let parts = [own_version, &*theirs, &own_init.0, &their_init, &blob, &own_point, &point];
            let hash = digest(parts, &shared);
            (shared, hash)
        };
        writer.send([Packet::new(21)]).await.ok()?;
        reader.receive().await.filter(|packet| packet.kind() == 21)?;
        let derive = |letter: u8| {
            let mut message = Packet::default().number(&shared).0;
            message.extend(&hash);
            message.push(letter);
            message.extend(&hash);
            Sha256::digest(message).to_vec()
        };
        let cipher = |nonce: u8, key: u8| Cipher {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &derive(key)).expect("32 bytes")),
            nonce: derive(nonce)[..12].try_into().expect("twelve bytes"),
        };
        let (from_client, from_server) = (cipher(b'A', b'C'), cipher(b'B', b'D'));
        let (incoming, outgoing) =
            if host_key.is_some() { (from_client, from_server) } else { (from_server, from_client) };
        (reader.1, writer.1) = (Some(incoming), Some(outgoing));
        Some(Self { reader, writer, session_id: hash })
    }
}
