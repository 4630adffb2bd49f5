//! The network that a definition may give to commands.

deskgate_protocol::words! {
    /// The network that the commands of a service have.
    #[derive(Default)]
    pub enum Network {
        /// No network: even this computer's own servers cannot be reached.
        #[default]
        None = "none",
        /// The computer's: the Internet, the networks it is in, and every server on the computer itself.
        Host = "host",
    }
}

impl Network {
    /// Whether commands have no network.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}
