//! The setting for keeping the computer awake.

deskgate_protocol::words! {
    /// When runs keep the computer awake.
    #[derive(Default)]
    pub enum KeepAwake {
        /// During every run.
        #[default]
        Always = "always",
        /// During runs as long as it is on mains.
        OnAc = "on-ac",
        /// Never: sleep may interrupt runs.
        Never = "never",
    }
}
