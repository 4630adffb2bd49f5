//! The tools an assistant may call, confined to the working directory.
