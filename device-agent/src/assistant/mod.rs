//! Model providers behind one trait, and the scripted assistant that needs no account.
