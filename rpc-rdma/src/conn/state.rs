//! The states of a connection and every step between them.
//!
//! | state       | Established | Drain    | Quiet   | Close   | Flushed | Gone   |
//! | ----------- | ----------- | -------- | ------- | ------- | ------- | ------ |
//! | Handshaking | Ready       | Closing  | –       | Closing | –       | Closed |
//! | Ready       | –           | Draining | –       | Closing | –       | Closed |
//! | Draining    | –           | –        | Closing | Closing | –       | Closed |
//! | Closing     | –           | –        | –       | –       | Closed  | Closed |
//! | Closed      | –           | –        | –       | –       | –       | –      |
//!
//! In Handshaking messages may already arrive; they wait. In Draining the calls that are being executed
//! finish and new ones are left to the client's next connection. In Closing the queue pair is in the error
//! state and everything posted is coming back.

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Accepted by us, not yet confirmed.
    Handshaking,
    /// Calls are taken.
    Ready,
    /// Calls under way finish, none is taken.
    Draining,
    /// Disconnected; posted work is coming back.
    Closing,
    /// Over; the queue pair is to be destroyed.
    Closed,
}

/// What moves a connection from state to state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// The handshake is complete.
    Established,
    /// Somebody wants the connection to end in good order.
    Drain,
    /// No call is under way any more.
    Quiet,
    /// The peer has hung up, something failed, a limit was passed, or a timer fired.
    Close,
    /// Everything that was posted has come back.
    Flushed,
    /// The device is gone, or posted work does not come back.
    Gone,
}

impl State {
    /// The state after `input`.
    pub fn next(self, input: Input) -> Self {
        match (self, input) {
            (Self::Handshaking, Input::Established) => Self::Ready,
            (Self::Ready, Input::Drain) => Self::Draining,
            (Self::Handshaking, Input::Drain) | (Self::Draining, Input::Quiet) => Self::Closing,
            (Self::Handshaking | Self::Ready | Self::Draining, Input::Close) => Self::Closing,
            (Self::Closing, Input::Flushed) | (_, Input::Gone) => Self::Closed,
            (state, _) => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Input::*, State::*, *};

    #[test]
    fn every_pair_of_state_and_input() {
        let inputs = [Established, Drain, Quiet, Close, Flushed, Gone];
        let table: [(State, [State; 6]); 5] = [
            (Handshaking, [Ready, Closing, Handshaking, Closing, Handshaking, Closed]),
            (Ready, [Ready, Draining, Ready, Closing, Ready, Closed]),
            (Draining, [Draining, Draining, Closing, Closing, Draining, Closed]),
            (Closing, [Closing, Closing, Closing, Closing, Closed, Closed]),
            (Closed, [Closed; 6]),
        ];
        for (state, row) in table {
            for (input, expected) in inputs.into_iter().zip(row) {
                assert_eq!(state.next(input), expected, "{state:?} {input:?}");
            }
        }
    }
}
